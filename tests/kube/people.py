"""What people do with a hub on the emulated cluster, and what they see: in few words, for tests."""

from __future__ import annotations

from typing import Any

import aiohttp

from tests.emulator.api import Api, Object
from tests.emulator.cluster import NAMESPACE
from tests.emulator.hub import EmulatedHub
from tests.emulator.running import eventually

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

    async def start(self) -> int:
        """Ask for a start (a resume where it is paused); 200, or the status of the refusal."""
        return await self.status("POST", self._server)

    async def stop(self) -> None:
        await self.status("DELETE", self._server)
        await self.until_no_pod()

    async def ready(self, seconds: float = 60) -> None:
        async def look() -> bool:
            return bool((await self.hub.call("GET", f"/users/{self.name}"))["servers"].get("", {}).get("ready"))

        await eventually(f"a ready server of {self.name}", look, seconds)

    async def started(self) -> dict[str, Any]:
        """A new server, ready; who it is."""
        assert await self.status("POST", f"/users/{self.name}", {}) in (200, 409)
        assert await self.start() == 200
        await self.ready()
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

    async def cancel(self) -> None:
        pause_id = (await self.workspace())["pause"]["id"]
        await self.hub.call("POST", f"{self._server}/pause/{pause_id}/cancel")

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


async def left(admin: Api) -> dict[str, list[str]]:
    """Names of what the hub has in the cluster, by kind, but for claims."""
    found = {}
    for kind in ("Pod", "Secret", "PodSnapshotManualTrigger", "PodSnapshot"):
        items = await admin.list(kind, NAMESPACE)
        found[kind] = sorted(item["metadata"]["name"] for item in items if item.get("type") != "kubernetes.io/service-account-token")
    return found
