"""Google's controllers for Pod Snapshots: policies, triggers, the save itself, retention, the finalizer.

What each step follows, and how sure it is, is in ``behaviours.toml``; what goes wrong on demand is in ``faults.toml``.
"""

from __future__ import annotations

import asyncio
import datetime
import re
from pathlib import Path

from .agent import NodeAgent
from .api import Api, Informer, Keyed, Object, condition, key_of
from .faults import Faults
from .kubelet import PodWorker
from .matching import NodeFacts, group_of, policy_for
from .restores import Restores, split_path
from .saves import FINALIZER, GROUP, ORIGIN_POD, Plan, Save, SaveFailed, Tools, in_conditions
from .storage import ObjectStorage, StorageError

TARGET_NODE = f"{GROUP}/targetNode"
UNITS = {"y": 365 * 86400, "mo": 30 * 86400, "d": 86400, "h": 3600, "min": 60}
LOOK_SECONDS = 2.0
"""How often policies that are not ready and the age of snapshots are looked at."""
REWRITES = 8
"""How often a snapshot that is deleted is rewritten before its files are gone."""


def duration(text: str) -> int:
    """Seconds of a ``lastAccessTimeout``."""
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)(y|mo|d|h|min)", text))


class Snapshots:
    """All controllers; ``run`` is the periodic part."""

    def __init__(
        self,
        api: Api,
        agent: NodeAgent,
        restores: Restores,
        storage: ObjectStorage,
        faults: Faults,
        folder: Path,
        *,
        configs: Informer,
        policies: Informer,
        triggers: Informer,
        snapshots: Informer,
        nodes: Informer,
    ) -> None:
        self._api = api
        self._agent = agent
        self._restores = restores
        self._storage = storage
        self._faults = faults
        self._folder = folder
        self._configs = configs
        self._policies = policies
        self._triggers = triggers
        self._snapshots = snapshots
        self._nodes = nodes
        self._begun: set[str] = set()
        """UIDs of triggers that were picked up."""
        self._config_work = Keyed(self._check_config)
        self._policy_work = Keyed(self._check_policy)
        self._trigger_work = Keyed(self._fire)
        self._ending = Keyed(self._finalize)
        configs.listen(lambda _old, new: self._poke_configs())
        policies.listen(lambda _old, new: self._policy_work.poke(key_of(new)) if new else None)
        triggers.listen(lambda _old, new: self._trigger_work.poke(key_of(new)) if new else None)
        snapshots.listen(self._snapshot_changed)

    async def run(self) -> None:
        """Look again, for ever, at what changes without a watch event: buckets, age, faults."""
        while True:
            self._poke_configs()
            for key, trigger in self._triggers.items.items():
                if trigger["metadata"]["uid"] not in self._begun:
                    self._trigger_work.poke(key)
            for snapshot in list(self._snapshots.items.values()):
                await self._expire(snapshot)
            waiter = asyncio.ensure_future(self._faults.next_change())
            await asyncio.wait([waiter], timeout=LOOK_SECONDS)
            waiter.cancel()

    async def close(self) -> None:
        """Stop at once."""
        for work in (self._config_work, self._policy_work, self._trigger_work, self._ending):
            await work.close()

    # ------------------------------------------------------------ storage configs and policies

    def _poke_configs(self) -> None:
        for key in self._configs.items:
            self._config_work.poke(key)
        for key, policy in self._policies.items.items():
            if condition(policy, "Ready").get("status") != "True":
                self._policy_work.poke(key)

    async def _check_config(self, key: tuple[str, str]) -> None:
        config = self._configs.items.get(key)
        if config is None:
            return
        bucket = config["spec"]["snapshotStorageConfig"]["gcs"]["bucket"]
        there = await self._storage.has_bucket(bucket)
        status, reason = ("True", "Ready") if there else ("False", "BucketNotFound")
        await self._set(config, "Ready", status, reason, "" if there else f"bucket {bucket} does not exist")

    async def _check_policy(self, key: tuple[str, str]) -> None:
        policy = self._policies.items.get(key)
        if policy is None:
            return
        config = self._configs.items.get(("", policy["spec"]["storageConfigName"]))
        try:
            if config is None:
                raise LookupError(f"storage config {policy['spec']['storageConfigName']} does not exist")
            bucket, prefix = _place(config)
            await self._storage.write(bucket, f"{prefix}_perm_check", b"")
        except (LookupError, StorageError) as error:
            await self._set(policy, "Ready", "False", "TriggerFailed", str(error))
        else:
            await self._set(policy, "Ready", "True", "Ready")

    async def _set(self, item: Object, kind: str, status: str, reason: str, message: str = "") -> None:
        old = condition(item, kind)
        if (old.get("status"), old.get("reason"), old.get("message", "")) != (status, reason, message):
            namespace, name = key_of(item)
            body = in_conditions(item, kind, status, reason, message)
            await self._agent.insist(lambda: self._api.patch(item["kind"], namespace, name, body, subresource="status"))

    # ------------------------------------------------------------ triggers

    async def _fire(self, key: tuple[str, str]) -> None:
        trigger = self._triggers.items.get(key)
        if trigger is None or trigger["metadata"]["uid"] in self._begun or condition(trigger, "Triggered"):
            return
        target = trigger["spec"]["targetPod"]
        worker = self._agent.worker_of(key[0], target)
        node = worker.node if worker else ""
        if self._faults.look("trigger-ignored", target, node) or (node and self._faults.look("agent-not-up", target, node)):
            return
        self._begun.add(trigger["metadata"]["uid"])
        # Beside this task: a trigger that is deleted, or the next one, cancels nothing and waits for nothing.
        self._agent.background(self._save(trigger, worker))

    async def _save(self, trigger: Object, worker: PodWorker | None) -> None:
        namespace, name = key_of(trigger)
        try:
            plan = self._plan(trigger, worker)
        except SaveFailed as error:
            await self._tell_trigger(trigger, "False", error.reason, str(error))
            return
        worker = plan.worker
        worker.saving = True
        try:
            label = {"metadata": {"labels": {TARGET_NODE: worker.node}}}
            await self._agent.insist(lambda: self._api.patch("PodSnapshotManualTrigger", namespace, name, label))
            tools = Tools(self._api, self._agent, self._faults, self._storage, self._restores.made, self._folder)
            await Save(tools, plan, self._tell_trigger, self._keep_newest).run()
        finally:
            worker.saving = False

    def _plan(self, trigger: Object, worker: PodWorker | None) -> Plan:
        """What is saved, under which policy, and where it goes. Raises SaveFailed with what is missing."""
        namespace, target = trigger["metadata"]["namespace"], trigger["spec"]["targetPod"]
        if worker is None or not worker.running:
            raise SaveFailed("Failed", f"pod {namespace}/{target} is not running")
        node = self._nodes.items.get(("", worker.node))
        if worker.pod["spec"].get("runtimeClassName") != "gvisor" or node is None or not NodeFacts.of(node).gvisor:
            raise SaveFailed("Failed", f"pod {namespace}/{target} does not run in GKE Sandbox")
        policies = [one for one in self._policies.items.values() if one["metadata"]["namespace"] == namespace]
        policy = policy_for(policies, worker.pod)
        if policy is None or policy["spec"]["triggerConfig"]["type"] != "manual":
            raise SaveFailed("Failed", f"no PodSnapshotPolicy with a manual trigger selects pod {namespace}/{target}")
        if condition(policy, "Ready").get("status") != "True":
            raise SaveFailed("Failed", f"PodSnapshotPolicy {policy['metadata']['name']} is not ready")
        config = self._configs.items.get(("", policy["spec"]["storageConfigName"]))
        if config is None:
            raise SaveFailed("Failed", f"storage config {policy['spec']['storageConfigName']} does not exist")
        group = group_of(policy, worker.pod)
        if group is None:
            raise SaveFailed("Failed", f"pod {namespace}/{target} lacks a grouping label of its policy")
        if NodeFacts.of(node).series == "e2" and policy["spec"].get("snapshotScope") != "rootfs-only":
            raise SaveFailed("Failed", "machine series e2 does not support whole-pod snapshots")
        if worker.saving:
            raise SaveFailed("Failed", f"pod {namespace}/{target} is being checkpointed already")
        return Plan(trigger, worker, policy, group, NodeFacts.of(node), *_place(config))

    async def _tell_trigger(self, trigger: Object, status: str, reason: str, message: str, snapshot: str | None = None) -> None:
        namespace, name = key_of(trigger)
        body = in_conditions(trigger, "Triggered", status, reason, message)
        if snapshot is not None:
            as_text = self._faults.look("snapshot-created-is-text", trigger["spec"]["targetPod"]) is not None
            body["status"]["snapshotCreated"] = snapshot if as_text else {"name": snapshot}
        await self._agent.insist(lambda: self._api.patch("PodSnapshotManualTrigger", namespace, name, body, subresource="status"))

    # ------------------------------------------------------------ retention and deletion

    async def _keep_newest(self, namespace: str, policy: Object, group: dict[str, str], new: Object) -> None:
        """Delete the oldest Ready snapshots of the group beyond the policy's number; ``new`` has just become one."""
        rules = ((policy["spec"].get("snapshotGroupingRules") or {}).get("groupByLabelValue") or {}).get("groupRetentionPolicy") or {}
        number = rules.get("maxSnapshotCountPerGroup", 0)
        if not number:
            return
        found = []
        for name, made in self._restores.made.items():
            item = new if name == new["metadata"]["name"] else self._snapshots.items.get((namespace, name))
            ours = item is not None and item["spec"]["policyName"] == policy["metadata"]["name"] and made.group == group
            if ours and condition(item, "Ready").get("status") == "True":
                found.append((made.at, name))
        for _at, name in sorted(found, reverse=True)[number:]:
            await self._delete(namespace, name)

    async def _expire(self, snapshot: Object) -> None:
        policy = self._policies.items.get((snapshot["metadata"]["namespace"], snapshot["spec"]["policyName"]))
        limit = ((policy or {}).get("spec", {}).get("retentionConfig") or {}).get("lastAccessTimeout")
        if not limit or snapshot["metadata"].get("deletionTimestamp"):
            return
        ahead = self._faults.look("clock-ahead")
        text = (snapshot.get("status") or {}).get("lastAccessTime") or snapshot["metadata"]["creationTimestamp"]
        since = datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
        at = datetime.datetime.now(datetime.timezone.utc).timestamp() + (ahead.seconds() if ahead else 0.0)
        if at > since + duration(limit):
            await self._delete(*key_of(snapshot))

    async def _delete(self, namespace: str, name: str) -> None:
        await self._agent.insist(lambda: self._api.delete("PodSnapshot", namespace, name))

    def _snapshot_changed(self, old: Object | None, new: Object | None) -> None:
        if new is None:
            if old is not None:
                self._restores.made.pop(old["metadata"]["name"], None)
        elif new["metadata"].get("deletionTimestamp") and (old is None or not old["metadata"].get("deletionTimestamp")):
            self._ending.poke(key_of(new))

    async def _finalize(self, key: tuple[str, str]) -> None:
        """Delete the files, then let the object go. The object is rewritten meanwhile, as GKE does."""
        snapshot = self._snapshots.items.get(key)
        if snapshot is None or FINALIZER not in (snapshot["metadata"].get("finalizers") or ()):
            return
        namespace, name = key
        for number in range(REWRITES):
            await self._write(key, in_conditions(snapshot, "Ready", "False", "Deleting", f"deleting, look {number}"))
        await self._faults.while_on("finalizer-stuck", (snapshot["metadata"].get("annotations") or {}).get(ORIGIN_POD, ""))
        policy = self._policies.items.get((namespace, snapshot["spec"]["policyName"]))
        config = self._configs.items.get(("", policy["spec"]["storageConfigName"])) if policy else None
        path = (((snapshot.get("status") or {}).get("storageStatus") or {}).get("gcs") or {}).get("observedGCSPath")
        if config is not None and path:
            bucket, prefix = split_path(path)
            while True:
                try:
                    await self._storage.remove(bucket, f"{prefix}/")
                    break
                except StorageError:
                    await asyncio.sleep(LOOK_SECONDS)
        current = await self._agent.insist(lambda: self._api.find("PodSnapshot", namespace, name))
        if current is not None:
            left = [one for one in current["metadata"].get("finalizers") or () if one != FINALIZER]
            await self._agent.insist(lambda: self._api.patch("PodSnapshot", namespace, name, {"metadata": {"finalizers": left}}))

    async def _write(self, key: tuple[str, str], body: Object) -> None:
        await self._agent.insist(lambda: self._api.patch("PodSnapshot", *key, body, subresource="status"))


def _place(config: Object) -> tuple[str, str]:
    """Bucket, and the path inside with its slash."""
    gcs = config["spec"]["snapshotStorageConfig"]["gcs"]
    path = (gcs.get("path") or "").strip("/")
    return gcs["bucket"], f"{path}/" if path else ""
