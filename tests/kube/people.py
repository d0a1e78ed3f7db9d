"""What people do with a hub on the emulated cluster, and what they see: in few words, for tests."""

from __future__ import annotations

from typing import Any

import aiohttp

from tests.emulator.api import OUTAGES, Api, Object
from tests.emulator.cluster import NAMESPACE
from tests.emulator.hub import EmulatedHub
from tests.emulator.running import NotYet, eventually

AT_REST = ("running", "paused", "unproven")


class Person:
    """One user with a default server."""

    def __init__(self, hub: EmulatedHub, name: str, admin: Api) -> None:
        self.hub, self.name, self.admin = hub, name, admin

    @property
    def _server(self) -> str:
        return f"/users/{self.name}/server"

    @property
    def pod_name(self) -> str:
        return f"jupyter-{self.name}"

    async def status(self, method: str, path: str, body: object = None) -> int:
        """The status of a call that may be refused."""
        try:
            await self.hub.call(method, path, body)
        except aiohttp.ClientResponseError as error:
            return error.status
        return 200

    async def start(self, **options: str) -> int:
        """Ask for a start (a resume where it is paused); 200, or the status of the refusal."""
        return await self.status("POST", self._server, options or None)

    async def stop(self) -> None:
        await self.status("DELETE", self._server)
        await self.until_no_pod()

    async def ready(self, seconds: float = 60) -> None:
        async def look() -> bool:
            return bool((await self.hub.call("GET", f"/users/{self.name}"))["servers"].get("", {}).get("ready"))

        await eventually(f"a ready server of {self.name}", look, seconds)

    async def made(self) -> None:
        """Known to the hub."""
        assert await self.status("POST", f"/users/{self.name}", {}) in (200, 409)

    async def started(self, **options: str) -> dict[str, Any]:
        """A new server, ready; who it is."""
        await self.made()
        assert await self.start(**options) == 200
        await self.ready()
        return await self.count()

    async def lives(self, **options: str) -> dict[str, Any]:
        """Who the server is; started where there is none yet."""
        await self.made()
        if not (await self.hub.call("GET", f"/users/{self.name}"))["servers"].get("", {}).get("ready"):
            return await self.started(**options)
        return await self.count()

    async def count(self) -> dict[str, Any]:
        """Who the server is (boot id, pid), and what it counts in its memory; each call adds one."""
        answer: dict[str, Any] = await self.hub.call("GET", f"/user/{self.name}/count", base="")
        return answer

    async def answers(self, seconds: float = 60) -> dict[str, Any]:
        """Like :meth:`count`, once it answers (again): a route comes back a moment after the phase."""

        async def look() -> dict[str, Any] | None:
            try:
                return await self.count()
            except aiohttp.ClientResponseError:
                return None

        return await eventually(f"an answer of {self.name}'s server", look, seconds)

    async def workspace(self) -> dict[str, Any]:
        """The workspace as REST shows it, with the code of its reason."""
        answer: dict[str, Any] = await self.hub.call("GET", f"{self._server}/pause")
        return {**answer, "reason": (answer.get("reason") or {}).get("code")}

    async def at_rest(self, seconds: float = 60) -> dict[str, Any]:
        """The workspace once nothing of it is under way."""

        async def look() -> dict[str, Any] | None:
            seen = await self.workspace()
            return seen if seen["phase"] in AT_REST and not seen.get("intent", "none").startswith("re") else None

        return await eventually(f"{self.name}'s workspace at rest", look, seconds)

    async def in_phase(self, phase: str, seconds: float = 30) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            seen = await self.workspace()
            return seen if seen["phase"] == phase else None

        return await eventually(f"{self.name}'s workspace in {phase}", look, seconds)

    async def ask_pause(self) -> dict[str, Any]:
        answer: dict[str, Any] = await self.hub.call("POST", f"{self._server}/pause")
        return answer

    async def pause(self, seconds: float = 60) -> dict[str, Any]:
        """Pause and wait for what comes of it."""
        await self.ask_pause()
        return await self.at_rest(seconds)

    async def resume(self, seconds: float = 60) -> dict[str, Any]:
        """Resume and wait for what comes of it."""
        await self.start()
        return await self.at_rest(seconds)

    async def ask(self, verb: str, body: object = None) -> int:
        """Ask for something that names the open pause (``cancel``, ``retry``, ...); 200, or the status of the refusal."""
        pause_id = (await self.workspace())["pause"]["id"]
        return await self.status("POST", f"{self._server}/pause/{pause_id}/{verb}", body)

    async def cancel(self) -> None:
        assert await self.ask("cancel") == 200

    # ------------------------------------------------------------ the cluster

    async def pods(self) -> list[Object]:
        return [pod for pod in await self.admin.list("Pod", NAMESPACE) if pod["metadata"]["name"] == self.pod_name]

    async def pod(self) -> Object:
        (pod,) = await self.pods()
        return pod

    async def until_no_pod(self) -> None:
        async def look() -> bool:
            return not await self.pods()

        await eventually(f"no pod of {self.name}", look, 30)


async def up(admin: Api) -> bool:
    """Whether the API server answers: one that goes or comes refuses, breaks off or says no."""
    try:
        await admin.list("Node")
    except OUTAGES:
        return False
    return True


KINDS = ("Pod", "PodSnapshotManualTrigger", "PodSnapshot", "Secret", "PersistentVolumeClaim")
"""What a hub has in a cluster."""


async def left(admin: Api) -> dict[str, list[str]]:
    """Names of what the hub has in the cluster, by kind; homes stay, and are not told."""
    return {kind: sorted(item["metadata"]["name"] for item in await admin.list(kind, NAMESPACE)) for kind in KINDS[:-1]}


async def until_nothing_is_left(admin: Api, seconds: float = 30) -> None:
    """Raises NotYet with what is left of all servers, homes too."""
    found: list[str] = []

    async def look() -> bool:
        found[:] = [f"{kind}/{item['metadata']['name']}" for kind in KINDS for item in await admin.list(kind, NAMESPACE)]
        return not found

    try:
        await eventually("nothing left in the cluster", look, seconds)
    except NotYet:
        raise NotYet(f"left in the cluster: {', '.join(found)}") from None


async def wipe(admin: Api) -> None:
    """Take away what is left of servers, whatever they are."""
    for kind in KINDS:
        for item in await admin.list(kind, NAMESPACE):
            await admin.delete(kind, NAMESPACE, item["metadata"]["name"], grace=0 if kind == "Pod" else None)
    await until_nothing_is_left(admin)
