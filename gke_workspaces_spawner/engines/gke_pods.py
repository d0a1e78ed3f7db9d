"""The pods of servers, each found by its lineage: created, waited for, looked at, removed, together with the Secret they refer to."""

from __future__ import annotations

import logging

from ..kube import facts, manifest, reading
from ..kube.client import EVENT, NODE, POD, SECRET, Cluster, Object
from ..kube.errors import AlreadyExists, Forbidden
from ..lifecycle.model import Want
from ..lifecycle.ports import Clock, Server
from ..lifecycle.reasons import Refused, TryLater
from . import gke_objects as objects
from .gke_settings import FORCE_AFTER, LOOK, Settings, in_our_words, lineage_of


class Pods:
    """Everything is asked of the API server at that moment: what follows may destroy something."""

    def __init__(self, cluster: Cluster, settings: Settings, hub: str, clock: Clock, log: logging.Logger) -> None:
        self._cluster = cluster
        self._settings = settings
        self._namespace = settings.namespace
        self._hub = hub
        self._clock = clock
        self._log = log

    # ------------------------------------------------------------ looking

    async def of(self, server: Server) -> list[Object]:
        """All pods of that lineage; more than one only while one is going away."""
        found, _version = await self._cluster.list(POD, self._namespace, f"{facts.LINEAGE}={server.owner.lineage}")
        return found

    async def the(self, server: Server) -> Object | None:
        """The server's pod; the youngest where another one is still going away."""
        return max(await self.of(server), key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default=None)

    async def alive(self, server: Server) -> bool:
        """Whether anything of the server runs, or waits to."""
        return any(reading.runs(pod) for pod in await self.of(server))

    async def events(self, pod: Object) -> list[Object]:
        """What was said of that very pod."""
        found, _version = await self._cluster.list(EVENT, self._namespace, fields=f"involvedObject.uid={pod['metadata']['uid']}")
        return found

    async def node(self, pod: Object) -> Object | None:
        """The pod's node, where nodes may be read (they are not part of a namespace)."""
        name = pod["spec"].get("nodeName")
        if not name:
            return None
        try:
            return await self._cluster.get(NODE, None, name)
        except Forbidden:
            return None

    async def nodes_like(self, labels: dict[str, str]) -> list[Object] | None:
        """The nodes with those labels; None where nodes may not be read."""
        try:
            found, _version = await self._cluster.list(NODE, None, ",".join(f"{key}={value}" for key, value in sorted(labels.items())))
        except Forbidden:
            return None
        return found

    async def crashed(self, server: Server) -> str | None:
        """The message of a restore that gVisor began and did not finish, or of a pod that ended before it ran; None so far."""
        with in_our_words("restore_failed"):
            for pod in await self.of(server):
                message = reading.crashed(pod)
                if message is not None:
                    return message
                if not reading.runs(pod):
                    status = pod.get("status") or {}
                    return str(status.get("message") or status.get("reason") or "the pod ended")
        return None

    # ------------------------------------------------------------ the Secret

    async def keep(self, server: Server, token: str, guest: str, pod: Object) -> None:
        """Write the server's Secret, before its pod is created."""
        secret = objects.server_secret(server, self._hub, token, guest, pod)
        with in_our_words("start_failed"):
            try:
                await self._cluster.create(SECRET, self._namespace, secret)
            except AlreadyExists:
                await self._cluster.delete(SECRET, self._namespace, secret["metadata"]["name"])
                await self._cluster.create(SECRET, self._namespace, secret)

    async def kept(self, server: Server) -> Object | None:
        """The server's Secret."""
        return await self._cluster.get(SECRET, self._namespace, objects.server_secret_name(server.owner.lineage))

    async def forget(self, lineage: str) -> None:
        """Delete the Secret of a server that will not come back."""
        with in_our_words("internal"):
            await self._cluster.delete(SECRET, self._namespace, objects.server_secret_name(lineage))

    # ------------------------------------------------------------ acting

    async def create(self, server: Server, pod: Object) -> None:
        """Create the pod; another server's of the same name is ended first, but never one of another Hub.

        Raises ``Refused('start_failed')`` with what the API server says against it.
        """
        name = pod["metadata"]["name"]
        with in_our_words("start_failed"):
            end = self._clock.time() + self._settings.remove_seconds
            while True:
                try:
                    await self._cluster.create(POD, self._namespace, pod)
                    return
                except AlreadyExists:
                    there = await self._cluster.get(POD, self._namespace, name)
                    if there is not None and self._is_the_same(there, pod):
                        return
                    if there is not None and (there["metadata"].get("labels") or {}).get(facts.HUB, self._hub) != self._hub:
                        raise Refused("start_failed", f"pod {name} belongs to another hub in this namespace") from None
                    if self._clock.time() > end:
                        raise
                    if there is not None and not there["metadata"].get("deletionTimestamp"):
                        self._log.info("Ending pod %s, which is in the way of %s", name, server.key)
                        await self.end(there)
                    await self._clock.sleep(LOOK)

    @staticmethod
    def _is_the_same(there: Object, pod: Object) -> bool:
        """Whether an earlier try of the same call made it; also one that has ended meanwhile, which is not to be tried again by itself."""
        if there["metadata"].get("deletionTimestamp"):
            return False
        return lineage_of(there) == lineage_of(pod) and manifest.snapshot_of(there) == manifest.snapshot_of(pod)

    async def end(self, pod: Object) -> None:
        """Begin its deletion."""
        metadata = pod["metadata"]
        await self._cluster.delete(POD, self._namespace, metadata["name"], uid=metadata["uid"], grace=self._settings.grace)

    async def remove(self, server: Server) -> None:
        """End the pods of the server and see them gone. Raises ``TryLater('remove_failed')`` when one does not go."""
        with in_our_words("remove_failed"):
            begun = self._clock.time()
            asked: set[str] = set()
            forced: set[str] = set()
            while True:
                pods = await self.of(server)
                if not pods:
                    return
                waited = self._clock.time() - begun
                for pod in pods:
                    uid = pod["metadata"]["uid"]
                    if uid not in asked:
                        asked.add(uid)
                        await self.end(pod)
                    elif waited > FORCE_AFTER and uid not in forced and (reading.crashed(pod) or not reading.runs(pod)):
                        forced.add(uid)
                        self._log.warning("Pod %s has ended and resists its deletion: forced", pod["metadata"]["name"])
                        await self._cluster.delete(POD, self._namespace, pod["metadata"]["name"], uid=uid, grace=0)
                if waited > self._settings.remove_seconds:
                    raise TryLater("remove_failed", f"pod {pods[0]['metadata']['name']} is still there")
                await self._clock.sleep(LOOK)

    async def in_line(self, server: Server, pod: Object) -> Want | None:
        """Put the pod in line for a node, once; what it waits for, or None when it had one (it may have crashed)."""
        there = await self.the(server)
        if there is None:
            await self.create(server, pod)
            return Want("waiting_for_scheduler")
        if not self._is_the_same(there, pod):
            await self.end(there)
            return Want("waiting_for_scheduler")
        if reading.bound(there):
            return None
        code, message = reading.why_waiting(there, await self.events(there))
        self._log.debug("%s waits: %s: %s", server.key, code, message)
        return Want(code, message)
