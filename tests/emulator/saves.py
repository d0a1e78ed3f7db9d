"""One save, as GKE's controllers and its agent on the node do it together: from a trigger to a PodSnapshot that is Ready, or to a failure.

What each step follows, and how sure it is, is in ``behaviours.toml``; what goes wrong on demand is in ``faults.toml``.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import shutil
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from .agent import NodeAgent
from .api import Api, Object
from .faults import Faults
from .kubelet import PodWorker
from .matching import Made, NodeFacts, spec_hash
from .nodes import now
from .restores import MAKING
from .storage import ObjectStorage, StorageError

GROUP = "podsnapshot.gke.io"
FINALIZER = f"{GROUP}/podsnapshot-finalizer"
TRIGGERED_BY = "gke-pod-snapshot-triggered-by"
ORIGIN_POD = f"{GROUP}/origin-pod"
ORIGIN_NODE = f"{GROUP}/origin-node"
EVENT = "GKEPodSnapshotting"


class SaveFailed(Exception):
    """A checkpoint did not come to be; ``reason`` is the conditions'."""

    def __init__(self, reason: str, message: str, *, tell_trigger: bool = True) -> None:
        self.reason = reason
        self.tell_trigger = tell_trigger
        super().__init__(message)


def in_conditions(item: Object, kind: str, status: str, reason: str, message: str = "") -> Object:
    """A merge patch of the status that sets one condition and keeps the others."""
    others = [one for one in (item.get("status") or {}).get("conditions") or () if one["type"] != kind]
    new = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now()}
    return {"status": {"conditions": [*others, new], "observedGeneration": item["metadata"].get("generation", 1)}}


class Tools(NamedTuple):
    """What every save works with."""

    api: Api
    agent: NodeAgent
    faults: Faults
    storage: ObjectStorage
    made: dict[str, Made]
    """How each snapshot was made, by its name; what is deleted leaves it."""
    folder: Path


class Plan(NamedTuple):
    """What is saved, under which policy, and where it goes."""

    trigger: Object
    worker: PodWorker
    policy: Object
    group: dict[str, str]
    facts: NodeFacts
    bucket: str
    prefix: str


class Save:
    """One checkpoint from its trigger to a PodSnapshot that is Ready, or to a failure."""

    def __init__(
        self,
        tools: Tools,
        plan: Plan,
        tell_trigger: Callable[..., Awaitable[None]],
        keep_newest: Callable[[str, Object, dict[str, str], Object], Awaitable[None]],
    ) -> None:
        self._tools = tools
        self._plan = plan
        self._tell_trigger = tell_trigger
        self._keep_newest = keep_newest
        self._agent, self._api, self._faults = tools.agent, tools.api, tools.faults
        self._worker = plan.worker
        self._instance: Any = plan.worker.instance
        self._name = str(uuid.uuid4())
        self._prefix = f"{plan.prefix}{self._name}"
        self._item: Object = {}
        scope = plan.policy["spec"].get("snapshotScope", "whole-pod")
        at = datetime.datetime.now(datetime.timezone.utc).timestamp()
        self._made = Made(spec_hash(plan.worker.pod), plan.facts, plan.group, scope, at)

    async def run(self) -> None:
        """To its end, whatever becomes of the trigger and of the PodSnapshot meanwhile."""
        worker, trigger = self._worker, self._plan.trigger
        await self._create()
        folder = self._tools.folder / self._name
        folder.mkdir(mode=0o700, parents=True)
        try:
            try:
                await self._unless_it_ends(self._checkpoint(folder))
            except SaveFailed as error:
                await self._instance.go_on("error")
                worker.tell(EVENT, f"Failed to checkpoint the pod: {error}", "Warning")
                await self._condition("Checkpoint", "False", error.reason, str(error))
                await self._condition("Ready", "False", error.reason, str(error))
                if error.tell_trigger:
                    await self._tell_trigger(trigger, "False", error.reason, str(error))
                return
            await self._condition("Checkpoint", "True", "Succeeded")
            if self._plan.policy["spec"]["triggerConfig"].get("postCheckpoint", "resume") == "stop":
                self._agent.background(self._stop())
            else:
                await self._instance.go_on("resume")
            await self._tell_trigger(trigger, "True", "Complete", "checkpoint completed successfully", self._name)
            await self._store(folder)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _create(self) -> None:
        worker, meta = self._worker, self._plan.trigger["metadata"]
        manifest = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "PodSnapshot",
            "metadata": {
                "name": self._name,
                "namespace": meta["namespace"],
                "labels": {TRIGGERED_BY: meta["name"][:63], **self._plan.group},
                "annotations": {ORIGIN_POD: worker.name, ORIGIN_NODE: worker.node},
                "finalizers": [FINALIZER],
            },
            "spec": {"policyName": self._plan.policy["metadata"]["name"]},
        }
        self._item = await self._agent.insist(lambda: self._api.create(manifest)) or manifest
        self._tools.made[self._name] = self._made
        await self._condition("Ready", "False", "AwaitingCheckpoint")
        worker.tell(EVENT, f"Checkpointing the pod into PodSnapshot {meta['namespace']}/{self._name}")

    async def _checkpoint(self, folder: Path) -> None:
        """Freeze and write. Raises SaveFailed."""
        pod, node = self._worker.name, self._worker.node
        await self._instance.freeze()
        if self._faults.take("evict-while-saving", pod, node) is not None:
            await self._agent.insist(lambda: self._api.delete("Pod", self._worker.namespace, pod, uid=self._worker.uid))
        hang = self._faults.look("checkpoint-hangs", pod, node)
        if hang is not None:
            await self._faults.while_on("checkpoint-hangs", pod, node, hang.seconds(float("inf")))
        fails = self._faults.take("checkpoint-fails", pod, node)
        if fails is not None:
            message = fails.get("message", "checkpoint_failed:_exit_status_128").replace("_", " ")
            raise SaveFailed(fails.get("reason", "Failed"), message, tell_trigger=fails.get("trigger") != "no")
        try:
            await self._instance.checkpoint(folder)
        except OSError as error:
            raise SaveFailed("Failed", f"checkpoint failed: {error}") from error
        (folder / MAKING).write_text(json.dumps(self._made.to_json()), encoding="utf-8")

    async def _unless_it_ends(self, work: Any) -> None:
        """Do it, unless the pod ends meanwhile. Raises SaveFailed."""
        task, end = asyncio.ensure_future(work), asyncio.ensure_future(self._instance.ended())
        try:
            await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise SaveFailed("Failed", "the pod ended while it was checkpointed")
            task.result()
        finally:
            for one in (task, end):
                one.cancel()
            await asyncio.gather(task, end, return_exceptions=True)

    async def _stop(self) -> None:
        await self._faults.while_on("stop-never-finished", self._worker.name, self._worker.node)
        await self._worker.stop_after_checkpoint()

    async def _store(self, folder: Path) -> None:
        """Upload, then Ready; one transfer at a time."""
        pod, node = self._worker.name, self._worker.node
        slow = self._faults.look("upload-slow", pod, node)
        if slow is not None:
            await self._faults.while_on("upload-slow", pod, node, slow.seconds(5))
        fails = self._faults.take("upload-fails", pod, node)
        try:
            if fails is not None:
                raise SaveFailed(fails.get("reason", "Failed"), "upload to Cloud Storage failed: 403")
            await self._tools.storage.upload(self._plan.bucket, self._prefix, folder)
        except (SaveFailed, StorageError) as error:
            reason = error.reason if isinstance(error, SaveFailed) else "Failed"
            self._worker.tell(EVENT, f"Failed to store the checkpoint: {error}", "Warning")
            await self._condition("StorageReplicated", "False", reason, str(error))
            await self._condition("Ready", "False", reason, str(error))
            return
        path = {"status": {"storageStatus": {"gcs": {"observedGCSPath": f"gs://{self._plan.bucket}/{self._prefix}"}}}}
        namespace = self._worker.namespace
        if await self._agent.insist(lambda: self._api.patch("PodSnapshot", namespace, self._name, path, subresource="status")) is None:
            await self._tools.storage.remove(self._plan.bucket, f"{self._prefix}/")  # deleted meanwhile
            return
        await self._condition("StorageReplicated", "True", "Succeeded")
        await self._condition("Ready", "True", "AllSnapshotsAvailable")
        self._worker.tell(EVENT, f"Successfully created PodSnapshot {namespace}/{self._name}")
        await self._keep_newest(namespace, self._plan.policy, self._plan.group, self._item)

    async def _condition(self, kind: str, status: str, reason: str, message: str = "") -> None:
        body = in_conditions(self._item, kind, status, reason, message)
        namespace = self._worker.namespace
        found = await self._agent.insist(lambda: self._api.patch("PodSnapshot", namespace, self._name, body, subresource="status"))
        self._item = found or self._item
