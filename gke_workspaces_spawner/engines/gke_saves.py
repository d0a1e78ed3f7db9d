"""Saves and what they leave: triggers, PodSnapshots and the Secret beside them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from dataclasses import dataclass, replace

from ..kube import facts, reading
from ..kube.client import SECRET, SNAPSHOT, TRIGGER, Cluster, Object
from ..kube.errors import AlreadyExists, NotFound
from ..kube.watch import Watch
from ..lifecycle.model import SnapshotManifest
from ..lifecycle.ports import Clock, Saved, Server
from ..lifecycle.reasons import LifecycleError, Refused, TryLater
from . import gke_objects as objects
from .gke_settings import LOOK, Settings, lineage_of

UNSEEN = 5.0
"""Seconds for which what was just created may be missing from the watch's picture, and between two looks at what it does not show."""
FIRST_PICTURE = 10.0
"""Seconds to wait for a watch that has just been begun."""


class Unsaved(Exception):
    """The save came to nothing, for good."""


@dataclass(slots=True)
class Save:
    """A save as this life of the Hub knows it."""

    manifest: SnapshotManifest
    asked_at: float | None = None
    """When this life asked for it; None for one that an earlier life did."""
    looked_at: float = 0.0
    saved: Saved | None = None

    @property
    def pause_id(self) -> str:
        return self.manifest.pause_id

    @property
    def begun(self) -> float:
        """When it was asked for, by whichever life of the Hub."""
        return float(objects.launch_of(self.manifest, "asked_at"))


class Saves:
    """One watch of triggers and one of PodSnapshots for all servers, begun with the first save."""

    def __init__(self, cluster: Cluster, settings: Settings, hub: str, hub_key: bytes, clock: Clock, log: logging.Logger) -> None:
        self._cluster = cluster
        self._settings = settings
        self._namespace = settings.namespace
        self._hub = hub
        self._key = hub_key
        self._clock = clock
        self._log = log
        self._known: dict[str, Save] = {}
        self._triggers = Watch(cluster, TRIGGER, settings.namespace, log, labels=f"{facts.HUB}={hub}")
        self._snapshots = Watch(cluster, SNAPSHOT, settings.namespace, log, labels=facts.LINEAGE)

    async def ask(self, server: Server, manifest: SnapshotManifest, pod_name: str) -> None:
        """Write the manifest, then ask GKE for the save; harmless when repeated."""
        self._triggers.start()
        self._snapshots.start()
        save = Save(manifest, asked_at=self._clock.time())
        try:
            await self._cluster.create(SECRET, self._namespace, objects.snapshot_secret(manifest, self._hub, self._key))
        except AlreadyExists:
            save = await self.known(manifest.pause_id) or save
        with contextlib.suppress(AlreadyExists):
            await self._cluster.create(TRIGGER, self._namespace, objects.trigger(server, self._hub, manifest.pause_id, pod_name))
        save.asked_at = save.asked_at or self._clock.time()
        self._known[manifest.pause_id] = save

    async def known(self, pause_id: str) -> Save | None:
        """The save of that pause, also one that an earlier life of the Hub asked for."""
        save = self._known.get(pause_id)
        if save is None:
            secret = await self._secret(f"s-{pause_id}")
            if secret is None:
                return None
            save = self._known[pause_id] = Save(objects.manifest_of(secret, self._key))
            if "podsnapshot" in save.manifest.launch:
                save.saved = _as_saved(save.manifest)
        return save

    async def look(self, save: Save) -> Saved | bool:
        """What has become of it: durable, or whether GKE knows of it at all. Raises :class:`Unsaved`."""
        if save.saved is not None:
            return save.saved
        await asyncio.wait_for(asyncio.gather(self._triggers.loaded(), self._snapshots.loaded()), FIRST_PICTURE)
        trigger = self._triggers.get(self._namespace, objects.trigger_name(save.pause_id))
        if trigger is None:
            return await self._unseen(save)
        state, message = reading.state(trigger, TRIGGER.name)
        if state == reading.FAILED:
            raise Unsaved(message)
        name = reading.snapshot_created(trigger)
        snapshot = self._snapshots.get(self._namespace, name) if name else self._made_by(trigger)
        if snapshot is None and name and state == reading.DONE:
            snapshot = await self._not_in_the_picture(save, name)
        if snapshot is None:
            return True
        if not objects.is_of(snapshot, save.manifest.owner.lineage):
            raise Unsaved(f"PodSnapshot {snapshot['metadata']['name']} is of another server")
        of_it, message = reading.state(snapshot, SNAPSHOT.name)
        if of_it in (reading.FAILED, reading.DELETING):
            raise Unsaved(message)
        return await self._durable(save, snapshot) if (of_it, state) == (reading.DONE, reading.DONE) else True

    async def _unseen(self, save: Save) -> bool:
        """The watch shows no trigger: too early, or it is not there."""
        now = self._clock.time()
        if (save.asked_at is not None and now - save.asked_at < UNSEEN) or now - save.looked_at < UNSEEN:
            return True
        save.looked_at = now
        trigger = await self._cluster.get(TRIGGER, self._namespace, objects.trigger_name(save.pause_id))
        if trigger is not None or await self.podsnapshots_of(save.pause_id):
            return True
        if save.asked_at is None:
            return False  # the Hub was killed before it asked GKE
        raise Unsaved("the trigger is gone")

    async def _not_in_the_picture(self, save: Save, name: str) -> Object | None:
        """What the trigger says that it made and the watch does not show: it may be too new, without our label, or gone."""
        now = self._clock.time()
        if now - save.looked_at < UNSEEN:
            return None
        save.looked_at = now
        snapshot = await self._cluster.get(SNAPSHOT, self._namespace, name)
        if snapshot is None:
            raise Unsaved(f"PodSnapshot {name} is gone")
        return snapshot

    async def _durable(self, save: Save, snapshot: Object) -> Saved:
        """Both say that it is there: write the manifest for good."""
        durable_at = reading.since(snapshot, "Ready") or self._clock.time()
        launch = {**save.manifest.launch, "podsnapshot": snapshot["metadata"]["name"]}
        manifest = replace(save.manifest, created=durable_at, launch=launch)
        await self._cluster.replace(SECRET, self._namespace, objects.snapshot_secret(manifest, self._hub, self._key))
        save.manifest, save.saved = manifest, _as_saved(manifest)
        return save.saved

    async def manifest(self, snapshot_id: str) -> SnapshotManifest | None:
        """The verified manifest of a snapshot that can be restored; None when it, or the PodSnapshot, is gone.

        Raises ``TryLater('snapshot_not_ready')`` while GKE says neither that it is ready nor that it failed.
        """
        secret = await self._secret(snapshot_id)
        if secret is None:
            return None
        found = objects.manifest_of(secret, self._key)
        name = found.launch.get("podsnapshot")
        snapshot = await self._cluster.get(SNAPSHOT, self._namespace, str(name)) if name else None
        if snapshot is None:
            return None
        if not objects.is_of(snapshot, found.owner.lineage):
            raise Refused("snapshot_changed", f"PodSnapshot {name} is of another server")
        state, _message = reading.state(snapshot, SNAPSHOT.name)
        if state is None:
            raise TryLater("snapshot_not_ready", f"PodSnapshot {name} is not ready now")
        return found if state == reading.DONE else None

    async def delete(self, snapshot_id: str) -> None:
        """Snapshots first, seen gone (the finalizer needs the policy, and we need the names), then the trigger, the Secret last."""
        pause_id = snapshot_id.removeprefix("s-")
        secret = await self._secret(snapshot_id)
        names = await self.podsnapshots_of(pause_id)
        if secret is not None:
            with contextlib.suppress(LifecycleError):  # a Secret that was tampered with names nothing; the trigger's label does
                names.add(str(objects.manifest_of(secret, self._key).launch.get("podsnapshot") or ""))
        names.discard("")
        await self._delete_podsnapshots(names)
        with contextlib.suppress(NotFound):
            trigger = await self._cluster.get(TRIGGER, self._namespace, objects.trigger_name(pause_id))
            await self._cluster.delete(TRIGGER, self._namespace, objects.trigger_name(pause_id))
            if trigger is not None and not names and reading.state(trigger, TRIGGER.name)[0] is None:
                await self._delete_late(pause_id)
        await self._cluster.delete(SECRET, self._namespace, objects.snapshot_secret_name(snapshot_id))
        self._known.pop(pause_id, None)

    async def list(self) -> tuple[SnapshotManifest, ...]:
        """The manifests that this Hub wrote; others bear a signature that does not fit and are not taken into account."""
        labels = f"{facts.HUB}={self._hub},{facts.PART}={objects.SNAPSHOT_PART}"
        secrets, _version = await self._cluster.list(SECRET, self._namespace, labels)
        found = []
        for secret in secrets:
            try:
                found.append(objects.manifest_of(secret, self._key))
            except LifecycleError as error:
                self._log.warning("A snapshot's Secret is not taken into account: %s", error)
        return tuple(found)

    async def pauses(self) -> tuple[str, ...]:
        """Ids of the pauses of which anything is left in the cluster that is this Hub's: a manifest, a trigger, a PodSnapshot."""
        found = [each.pause_id for each in await self.list()]
        mine = f"{facts.HUB}={self._hub}"
        with contextlib.suppress(NotFound):  # the cluster has no Pod Snapshots (any more)
            triggers, _version = await self._cluster.list(TRIGGER, self._namespace, mine)
            found += [objects.pause_of_trigger(each["metadata"]["name"]) or "" for each in triggers]
        return tuple(dict.fromkeys(pause_id for pause_id in found if pause_id))

    async def podsnapshots_of(self, pause_id: str) -> set[str]:
        """Names of the PodSnapshots that a pause's trigger has made, as the API server has them now."""
        name = objects.trigger_name(pause_id)
        try:
            found, _version = await self._cluster.list(SNAPSHOT, self._namespace, f"{facts.TRIGGERED_BY}={name}")
            trigger = await self._cluster.get(TRIGGER, self._namespace, name)
        except NotFound:
            return set()
        names = {str(each["metadata"]["name"]) for each in found}
        created = reading.snapshot_created(trigger) if trigger is not None else None
        if trigger is not None and created and created not in names:
            snapshot = await self._cluster.get(SNAPSHOT, self._namespace, created)
            if snapshot is not None and objects.is_of(snapshot, lineage_of(trigger)):
                names.add(created)
        return names

    async def _secret(self, snapshot_id: str) -> Object | None:
        return await self._cluster.get(SECRET, self._namespace, objects.snapshot_secret_name(snapshot_id))

    def _made_by(self, trigger: Object) -> Object | None:
        name = trigger["metadata"]["name"]
        return next((each for each in self._snapshots.objects.values() if _triggered_by(each) == name), None)

    async def _delete_late(self, pause_id: str) -> None:
        """GKE may have taken up a trigger just before it was deleted, and make the PodSnapshot now, which nobody would know of."""
        end = self._clock.time() + UNSEEN
        while self._clock.time() < end:
            names = await self.podsnapshots_of(pause_id)
            if names:
                await self._delete_podsnapshots(names)
                return
            await self._clock.sleep(LOOK)

    async def _delete_podsnapshots(self, names: Collection[str]) -> None:
        end = self._clock.time() + self._settings.finalizer_seconds
        for name in names:
            asked = False
            while (snapshot := await self._cluster.get(SNAPSHOT, self._namespace, name)) is not None:
                if not asked and not snapshot["metadata"].get("deletionTimestamp"):
                    await self._cluster.delete(SNAPSHOT, self._namespace, name)  # once: it is rewritten many times while it goes
                asked = True
                if self._clock.time() > end:
                    self._log.error("PodSnapshot %s is deleted and does not go; its files may be left in the bucket", name)
                    raise TryLater("finalizer_stuck", f"PodSnapshot {name}")
                await self._clock.sleep(LOOK)


def _as_saved(made: SnapshotManifest) -> Saved:
    begun = float(objects.launch_of(made, "asked_at"))
    return Saved(made.bytes, begun, max(begun, made.created), made.created, objects.digest_of(made))


def _triggered_by(snapshot: Object) -> str:
    return str((snapshot["metadata"].get("labels") or {}).get(facts.TRIGGERED_BY) or "")
