"""The cluster autoscaler's words, and what it does: pods that do not fit grow a pool of the table, or are told why none can grow."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from .api import OUTAGES, Api, Informer, Object, condition
from .events import Events
from .faults import Faults
from .matching import selects
from .nodes import Machine, Nodes
from .resolve import quantity

LOOK_SECONDS = 1.0
COMPONENT = "cluster-autoscaler"
REASONS = {
    "quota": "GCE quota exceeded",
    "stockout": "GCE out of resources",
    "ip-space": "IP space exhausted",
}


@dataclass(frozen=True, slots=True)
class Pool:
    """A node pool that may grow; its name is the machine's ``pool``."""

    machine: Machine
    most: int
    seconds: float = 2.0
    """How long a machine takes to come."""


class Autoscaler:
    """Looks at pods that the scheduler could not place."""

    def __init__(
        self,
        api: Api,
        nodes_api: Nodes,
        events: Events,
        faults: Faults,
        pods: Informer,
        nodes: Informer,
        pools: list[Pool],
        background: Callable[[Coroutine[Any, Any, Any]], object],
    ) -> None:
        self._api = api
        self._nodes_api = nodes_api
        self._events = events
        self._faults = faults
        self._pods = pods
        self._nodes = nodes
        self._background = background
        self.pools = {pool.machine.pool: pool for pool in pools}
        self._coming: dict[str, str] = {}
        """Machines under way: name -> pool."""
        self._told: dict[str, str] = {}
        """What a pod was told last, by UID."""
        self._number = 100

    async def run(self) -> None:
        """Look, for ever."""
        while True:
            waiting = [pod for pod in self._pods.items.values() if _unschedulable(pod)]
            self._told = {pod["metadata"]["uid"]: self._told.get(pod["metadata"]["uid"], "") for pod in waiting}
            for pod in waiting:
                self._look(pod)
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self, pod: Object) -> None:
        fitting = [pool for pool in self.pools.values() if fits(pool.machine, pod)]
        if not fitting:
            self._tell(
                pod,
                "NotTriggerScaleUp",
                f"pod didn't trigger scale-up: {len(self.pools)} node(s) didn't match Pod's node affinity/selector",
            )
            return
        if any(pool.machine.pool in self._coming.values() for pool in fitting):
            return
        room = next((pool for pool in fitting if self._size(pool) < pool.most), None)
        if room is None:
            self._tell(pod, "NotTriggerScaleUp", f"pod didn't trigger scale-up: {len(fitting)} max node group size reached")
            return
        fails = self._faults.look("scale-up-fails", pod["metadata"]["name"])
        if fails is not None:
            reason = REASONS.get(fails.get("reason", "stockout"), fails.get("reason"))
            text = f"Node scale up in zones {room.machine.zone} associated with this pod failed: {reason}."
            self._tell(pod, "FailedScaleUp", text, "Warning")
            return
        size = self._size(room)
        group = f"https://www.googleapis.com/compute/v1/projects/emulator/zones/{room.machine.zone}/instanceGroups/{room.machine.pool}"
        self._tell(pod, "TriggeredScaleUp", f"pod triggered scale-up: [{{{group} {size}->{size + 1} (max: {room.most})}}]")
        self._number += 1
        name = f"gke-{room.machine.pool}-{self._number}"
        self._coming[name] = room.machine.pool
        self._background(self._bring(name, room))

    async def _bring(self, name: str, pool: Pool) -> None:
        try:
            await asyncio.sleep(pool.seconds)
            await self._nodes_api.add(replace(pool.machine, name=name))
            while ("", name) not in self._nodes.items:
                await asyncio.sleep(LOOK_SECONDS / 10)
        except OUTAGES:
            return  # the next look tries again
        finally:
            self._coming.pop(name, None)

    def _size(self, pool: Pool) -> int:
        label = "cloud.google.com/gke-nodepool"
        return sum(node["metadata"]["labels"].get(label) == pool.machine.pool for node in self._nodes.items.values())

    def _tell(self, pod: Object, reason: str, message: str, kind: str = "Normal") -> None:
        if self._told.get(pod["metadata"]["uid"]) != message:
            self._told[pod["metadata"]["uid"]] = message
            self._events.tell(pod, reason, message, kind, component=COMPONENT)


def _unschedulable(pod: Object) -> bool:
    scheduled = condition(pod, "PodScheduled")
    return (
        scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable" and not pod["metadata"].get("deletionTimestamp")
    )


def fits(machine: Machine, pod: Object) -> bool:
    """Whether an empty machine of that kind would take the pod: selector, required affinity, taints, resources."""
    spec, node = pod["spec"], machine.manifest()
    labels = node["metadata"]["labels"]
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items() if key != "kubernetes.io/hostname"):
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required and not any(selects({"matchExpressions": term.get("matchExpressions")}, labels) for term in required["nodeSelectorTerms"]):
        return False
    tolerated = spec.get("tolerations") or ()
    if not all(any(_tolerates(one, taint) for one in tolerated) for taint in node["spec"]["taints"]):
        return False
    asked: dict[str, int] = {}
    for container in spec["containers"]:
        for name, text in ((container.get("resources") or {}).get("requests") or {}).items():
            asked[name] = asked.get(name, 0) + _milli(text)
    has = machine.resources()
    return all(amount <= _milli(has.get(name, "0")) for name, amount in asked.items())


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]) or toleration.get("key") not in (None, "", taint["key"]):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _milli(text: str) -> int:
    match = re.fullmatch(r"([0-9.]+)m", text)
    return int(float(match[1])) if match else quantity(text) * 1000
