"""GKE Pod Snapshots: the lifecycle's engine over :mod:`..kube`.

A save is a PodSnapshotManualTrigger and is durable when the trigger AND the PodSnapshot say so. Whatever destroys something is decided
by what the API server says at that moment, never by a picture from a watch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..kube import facts, manifest, reading
from ..kube.client import POD, POLICY, SECRET, TRIGGER, Cluster, Object
from ..kube.errors import Forbidden
from ..lifecycle.model import Json, SnapshotManifest, Want
from ..lifecycle.ports import Abilities, Clock, Estimate, Failed, Freeze, Nothing, Observation, Saved, SaveRequest, Saving, Server, Signal
from ..lifecycle.reasons import Refused, TryLater
from . import gke_objects as objects
from .gke_pods import Pods
from .gke_saves import Saves, Unsaved
from .gke_settings import LOOK, Settings, in_our_words, lineage_of

UNKNOWN_BYTES = 2 << 30
"""What a server without a memory limit is taken for."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the Hub's records speak of at one moment."""

    lineages: frozenset[str]
    pauses: frozenset[str]
    """Open ones, and those with a snapshot on the shelf."""
    running: frozenset[str]
    """Lineages of which a pod may exist."""


class GKEEngine:
    """Implements :class:`~..lifecycle.ports.Engine`."""

    abilities = Abilities(name="gke", freezes=False, cancel_while_saving=False, gpu=True, tpu=False, reserves=True)

    def __init__(self, cluster: Cluster, settings: Settings, hub_key: bytes, clock: Clock, log: logging.Logger) -> None:
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._log = log
        self.hub = objects.hub_label(hub_key)
        self.pods = Pods(cluster, settings, self.hub, clock, log)
        self._saves = Saves(cluster, settings, self.hub, hub_key, clock, log)
        self._sizes: dict[str, int] = {}

    @property
    def namespace(self) -> str:
        """Where the pods of servers that can be paused are."""
        return self._settings.namespace

    async def has_pod(self, server: Server) -> bool:
        """Whether there is a pod of that server, in whatever state."""
        with in_our_words("cluster_unreachable"):
            return await self.pods.the(server) is not None

    # ------------------------------------------------------------ a pause

    async def estimate(self, server: Server, facts_given: Mapping[str, Json]) -> Estimate:
        pace = facts.data("facts")["pace"]
        with in_our_words("snapshots_unavailable"):
            pod = await self.pods.the(server)
            refusal, detail = ("not_pausable", "") if pod is None else await self._refusal(pod)
        size = (manifest.memory_limit(pod) if pod is not None else None) or UNKNOWN_BYTES
        self._sizes[server.owner.lineage] = size
        stops = _policy(pod) == facts.STOP
        return Estimate(
            bytes=size,
            seconds_pause=round(pace["fixed"] + size / pace["usual"], 1),
            seconds_resume=round(pace["restore_fixed"] + size / pace["restore_usual"], 1),
            refusal=refusal,
            detail=detail,
            freeze=Freeze.NONE if stops else Freeze.WANTED if self._settings.allow_unfrozen else Freeze.NEEDED,
            seconds_limit=self._settings.pause_seconds + size / pace["slowest"],
            will_not_return=("Open network connections to other machines end; programs that hold them have to connect again.",),
        )

    async def save(self, server: Server, request: SaveRequest) -> None:
        with in_our_words("save_failed"):
            pod, kept = await self.pods.the(server), await self.pods.kept(server)
            if pod is None or reading.phase(pod) != "Running" or not reading.runs(pod) or pod["metadata"].get("deletionTimestamp"):
                raise Refused("sandbox_gone", "there is no running pod")
            if kept is None:
                raise Refused("not_pausable", "the Secret of the server is gone")
            node = await self.pods.node(pod)
            made = SnapshotManifest(
                snapshot_id=request.snapshot_id,
                pause_id=request.pause_id,
                key=server.key,
                owner=server.owner,
                engine=self.abilities.name,
                created=0.0,
                bytes=self._sizes.get(server.owner.lineage) or manifest.memory_limit(pod) or UNKNOWN_BYTES,
                launch={
                    "pod": objects.pod_of(kept),
                    "uid": pod["metadata"]["uid"],
                    "restarts": reading.restarts(pod),
                    "origin": manifest.origin_of(node),
                    "node_version": manifest.node_version(node),
                    "images": reading.images(pod),
                    "asked_at": self._clock.time(),
                    "deadline": request.deadline,
                },
                identity=request.identity,
            )
            await self._saves.ask(server, made, pod["metadata"]["name"])

    async def observe(self, server: Server, pause_id: str) -> Observation:
        with in_our_words("save_failed"):
            save = await self._saves.known(pause_id)
            if save is None:
                return Nothing()
            try:
                seen = await self._saves.look(save)
            except Unsaved as error:
                return Failed("save_failed", str(error), await self.pods.alive(server))
        if isinstance(seen, Saved):
            return seen
        return Saving(save.begun) if seen else Nothing()

    async def confirm_frozen(self, server: Server, pause_id: str, seconds: float) -> bool:
        """Whether what is there is still the very pod that was saved (or that the save has ended), nothing was started again in it, and
        what was saved is there at this moment: somebody else may have deleted it.

        A pod that is being deleted by somebody else is as good as one that we are about to delete: its session is in the snapshot.
        """
        with in_our_words("cluster_unreachable"):
            save, pod = await self._saves.known(pause_id), await self.pods.the(server)
            if save is None or pod is None or pod["metadata"]["uid"] != objects.launch_of(save.manifest, "uid"):
                return False
            if await self._saves.manifest(save.manifest.snapshot_id) is None:
                return False
        if reading.stopped_by_save(pod):
            return _policy(pod) == facts.STOP
        return reading.runs(pod) and reading.restarts(pod) == objects.launch_of(save.manifest, "restarts")

    async def thaw(self, server: Server, pause_id: str) -> None:
        """A checkpoint cannot be called off: wait for its outcome, at most until its deadline. The server extension lets go."""
        with in_our_words("cluster_unreachable"):
            save = await self._saves.known(pause_id)
        end = 0.0 if save is None else float(objects.launch_of(save.manifest, "deadline"))
        while self._clock.time() < end:
            try:
                seen = await self.observe(server, pause_id)
            except TryLater:
                seen = Saving()
            if not isinstance(seen, Saving):
                return
            await self._clock.sleep(LOOK)

    # ------------------------------------------------------------ a resume

    async def manifest(self, snapshot_id: str) -> SnapshotManifest | None:
        with in_our_words("snapshots_unavailable"):
            return await self._saves.manifest(snapshot_id)

    def launch(self, saved: SnapshotManifest, plain: Mapping[str, Json]) -> Mapping[str, Json]:
        """The saved pod again, with the snapshot's name on it, if today's cold start would grant the same."""
        before, today = objects.launch_of(saved, "pod"), plain["pod"]
        what = manifest.not_granted(before, today)
        if what is not None:
            raise Refused("policy_changed", f"{what} differs from what a start would give today")
        name = str(objects.launch_of(saved, "podsnapshot"))
        pod = manifest.restored(before, name, objects.launch_of(saved, "origin"))
        pod["metadata"]["labels"] = manifest.labels_of(before, today)
        return {"pod": pod, "snapshot": name}

    async def capacity(self, server: Server, saved: SnapshotManifest, launch: Mapping[str, Json] | None) -> Want | None:
        """Put the pod in line, and say what it waits for; None once it has a node."""
        if launch is None:
            raise Refused("internal", "a restore without its launch spec")
        with in_our_words("start_failed"):
            if await self.pods.the(server) is None:
                await self._check_nodes(saved)
            try:
                return await self.pods.in_line(server, launch["pod"])
            except TryLater as error:
                if error.values.get("quota"):
                    return Want("quota_exhausted", error.detail)
                raise

    async def _check_nodes(self, saved: SnapshotManifest) -> None:
        """Refuse what cannot come back, where nodes may be read: GKE itself starts such a pod cold, and need not say so."""
        origin, version = objects.launch_of(saved, "origin"), objects.launch_of(saved, "node_version")
        nodes = await self.pods.nodes_like(origin) if origin and version else None
        if nodes and all(manifest.node_version(node) != version for node in nodes):
            raise Refused("nodes_changed", f"{version} when it was paused, {manifest.node_version(nodes[0])} now")

    async def signal(self, server: Server, saved: SnapshotManifest) -> str:
        name = str(objects.launch_of(saved, "podsnapshot"))
        with in_our_words("cluster_unreachable"):
            pod = await self.pods.the(server)
            if pod is None:
                return Signal.GONE
            what, message = reading.outcome(pod, await self.pods.events(pod), name)
        if what == reading.CRASHED or not reading.runs(pod):
            self._log.warning("The restore of %s from PodSnapshot %s failed: %s", server.key, name, message)
            return Signal.GONE
        if what == reading.COLD or manifest.snapshot_of(pod) != name:
            self._log.warning("GKE started %s cold instead of restoring PodSnapshot %s: %s", server.key, name, message)
            return Signal.FRESH
        before, now = objects.launch_of(saved, "images"), reading.images(pod)
        moved = [each for each in before if each in now and now[each] != before[each]]
        if moved:
            raise Refused("image_changed", f"container {moved[0]}: {before[moved[0]]} when it was paused, {now[moved[0]]} now")
        return Signal.RESTORED if what == reading.RESTORED else Signal.LATE

    async def settled(self, server: Server) -> bool:
        with in_our_words("cluster_unreachable"):
            pod = await self.pods.the(server)
            if pod is None or not manifest.snapshot_of(pod):
                return True
            return reading.outcome(pod, await self.pods.events(pod), manifest.snapshot_of(pod))[0] == reading.RESTORED

    async def aids(self, server: Server) -> Mapping[str, Json]:
        return {}

    # ------------------------------------------------------------ everything else

    async def alive(self, server: Server) -> bool:
        with in_our_words("cluster_unreachable"):
            return await self.pods.alive(server)

    async def remove(self, server: Server) -> None:
        await self.pods.remove(server)

    async def delete(self, snapshot_id: str) -> None:
        with in_our_words("snapshots_unavailable"):
            await self._saves.delete(snapshot_id)

    async def list(self) -> tuple[SnapshotManifest, ...]:
        with in_our_words("snapshots_unavailable"):
            return await self._saves.list()

    async def clear_orphans(self, known: Callable[[], Known]) -> tuple[str, ...]:
        """Remove what no record of the Hub speaks of; returns what went, as ``kind/name``. Only what bears this Hub's label is looked at.

        ``known`` is asked after each look at the cluster: what a look shows was made by a record that is there by then.
        """
        gone: list[str] = []
        mine, namespace = f"{facts.HUB}={self.hub}", self._settings.namespace
        with in_our_words("cluster_unreachable"):
            pods, _version = await self._cluster.list(POD, namespace, mine)
            running = known().running
            for pod in pods:
                if lineage_of(pod) not in running and not pod["metadata"].get("deletionTimestamp"):
                    await self.pods.end(pod)
                    gone.append(f"pod/{pod['metadata']['name']}")
            secrets, _version = await self._cluster.list(SECRET, namespace, f"{mine},{facts.PART}={objects.SERVER}")
            lineages = known().lineages
            for secret in secrets:
                if lineage_of(secret) not in lineages:
                    await self.pods.forget(lineage_of(secret))
                    gone.append(f"secret/{secret['metadata']['name']}")
            left = await self._saves.pauses()
            pauses = known().pauses
            for pause_id in left:
                if pause_id in pauses:
                    continue
                try:
                    await self._saves.delete(f"s-{pause_id}")
                except TryLater:  # one that is stuck keeps no other from going
                    continue
                gone.append(f"snapshot/s-{pause_id}")
        return tuple(gone)

    async def _refusal(self, pod: Object) -> tuple[str | None, str]:
        if reading.phase(pod) != "Running":
            return "not_running", f"the pod is {reading.phase(pod)}"
        if not await self._cluster.serves(TRIGGER):
            return "snapshots_unavailable", "the cluster does not serve podsnapshot.gke.io/v1"
        try:
            policies, _version = await self._cluster.list(POLICY, self._settings.namespace)
        except Forbidden:
            return None, ""
        labels = pod["metadata"].get("labels") or {}
        mine = [policy for policy in policies if _selects(policy, labels)]
        if not mine:
            return "snapshots_unavailable", f"no PodSnapshotPolicy in {self._settings.namespace} selects {facts.POLICY}={_policy(pod)}"
        state, message = reading.state(mine[0], POLICY.name)
        if state == reading.FAILED:
            return "snapshots_unavailable", f"PodSnapshotPolicy {mine[0]['metadata']['name']} is not ready: {message}"
        after = mine[0]["spec"].get("triggerConfig", {}).get("postCheckpoint") or facts.RESUME
        if after != _policy(pod):  # we would remove a server that runs on, or wait for one that GKE has ended
            return "snapshots_unavailable", f"PodSnapshotPolicy {mine[0]['metadata']['name']} has postCheckpoint {after}"
        return None, ""


def _policy(pod: Object | None) -> str:
    labels = ((pod or {}).get("metadata") or {}).get("labels") or {}
    return str(labels.get(facts.POLICY) or facts.RESUME)


def _selects(policy: Object, labels: Mapping[str, str]) -> bool:
    """Whether a policy's plain labels fit; expressions are left to GKE."""
    wanted = ((policy.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())
