"""What a node decides when a container starts: cold, or restored from which snapshot; and where its files are."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from .api import Api, Informer, Object, condition
from .faults import Faults
from .matching import Made, NodeFacts, group_of, policy_for, spec_hash
from .nodes import now
from .storage import ObjectStorage, StorageError

PS_NAME = "podsnapshot.gke.io/ps-name"
FALLBACK = "falling back to a cold start of pod"
MAKING = "metadata"
"""Name of the file beside a snapshot's that says how it was made."""


class Decision(NamedTuple):
    """How to start."""

    snapshot: str | None = None
    """Name of the PodSnapshot to restore from; ``None``: cold."""
    warning: str = ""
    path: str = ""
    """``gs://`` of its files."""
    scope: str = "whole-pod"


COLD = Decision()


def split_path(path: str) -> tuple[str, str]:
    """Bucket and prefix of a ``gs://`` path."""
    bucket, _, prefix = path.removeprefix("gs://").partition("/")
    return bucket, prefix


class Restores:
    """Decides by what the API and the bucket say."""

    def __init__(
        self,
        api: Api,
        snapshots: Informer,
        policies: Informer,
        nodes: Informer,
        storage: ObjectStorage,
        faults: Faults,
        folder: Path,
        insist: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]],
    ) -> None:
        self._api = api
        self._snapshots = snapshots
        self._policies = policies
        self._nodes = nodes
        self._storage = storage
        self._faults = faults
        self._folder = folder
        self._insist = insist
        self.made: dict[str, Made] = {}
        """By snapshot name; filled by whoever makes one, else read from the bucket."""

    async def decide(self, pod: Object, node: str) -> Decision:
        """What happens to a pod whose container starts now."""
        meta, spec = pod["metadata"], pod["spec"]
        if spec.get("runtimeClassName") != "gvisor":
            return COLD
        policies = [one for one in self._policies.items.values() if one["metadata"]["namespace"] == meta["namespace"]]
        policy = policy_for(policies, pod)
        wanted = (meta.get("annotations") or {}).get(PS_NAME)
        if wanted == "" and self._faults.take("empty-ps-name-ignored", meta["name"], node) is not None:
            wanted = None
        if policy is None or wanted == "":
            return COLD
        decision = await self._choose(pod, node, policy, wanted)
        if decision.snapshot is None:
            return decision
        if self._faults.look("agent-not-up", meta["name"], node) is not None:
            return Decision(warning=f"The snapshot agent is not ready on node {node}, {FALLBACK} {meta['namespace']}/{meta['name']}")
        skipped = self._faults.take("restore-skipped", meta["name"], node)
        if skipped is not None:
            text = f"Restore of PodSnapshot {decision.snapshot} was skipped, {FALLBACK} {meta['namespace']}/{meta['name']}"
            return Decision(warning="" if skipped.get("event") == "no" else text)
        return decision

    async def _choose(self, pod: Object, node: str, policy: Object, wanted: str | None) -> Decision:
        meta = pod["metadata"]
        about = f"{FALLBACK} {meta['namespace']}/{meta['name']}"
        here = NodeFacts.of(self._nodes.items[("", node)])
        group, hashed = group_of(policy, pod), spec_hash(pod)
        found: list[tuple[float, Object, Made]] = []
        for snapshot in self._snapshots.items.values():
            name = snapshot["metadata"]["name"]
            if wanted is not None and name != wanted:
                continue
            if await self._usable(snapshot, meta["namespace"], policy["metadata"]["name"]):
                made = await self._how_made(snapshot)
                if made is not None:
                    found.append((made.at, snapshot, made))
        if wanted is not None and not found:
            return Decision(warning=f"PodSnapshot {wanted} is not there or not ready, {about}")
        warning = ""
        for _at, snapshot, made in sorted(found, key=lambda one: one[0], reverse=True):
            if group is None or made.group != group or (made.scope != "rootfs-only" and made.spec_hash != hashed):
                continue  # without a word, as GKE does
            why = made.facts.why_not_on(here, made.scope)
            if why is None:
                path = snapshot["status"]["storageStatus"]["gcs"]["observedGCSPath"]
                return Decision(snapshot["metadata"]["name"], path=path, scope=made.scope)
            warning = warning or f"PodSnapshot {snapshot['metadata']['name']} cannot be restored on node {node}: {why}, {about}"
        return Decision(warning=warning)

    async def _usable(self, snapshot: Object, namespace: str, policy: str) -> bool:
        meta = snapshot["metadata"]
        fits = meta["namespace"] == namespace and snapshot["spec"]["policyName"] == policy and not meta.get("deletionTimestamp")
        return fits and condition(snapshot, "Ready").get("status") == "True"

    async def _how_made(self, snapshot: Object) -> Made | None:
        name = snapshot["metadata"]["name"]
        if name not in self.made:
            bucket, prefix = split_path(snapshot["status"]["storageStatus"]["gcs"]["observedGCSPath"])
            try:
                self.made[name] = Made.from_json(json.loads(await self._storage.read(bucket, f"{prefix}/{MAKING}")))
            except StorageError:
                return None
        return self.made[name]

    async def fetch(self, decision: Decision) -> Path:
        """Download the files of the snapshot into a new folder, which the caller removes."""
        assert decision.snapshot is not None
        folder = self._folder / decision.snapshot
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        await self._storage.download(*split_path(decision.path), folder)
        return folder

    async def accessed(self, namespace: str, snapshot: str) -> None:
        """It was restored from now."""
        body = {"status": {"lastAccessTime": now()}}
        await self._insist(lambda: self._api.patch("PodSnapshot", namespace, snapshot, body, subresource="status"))
