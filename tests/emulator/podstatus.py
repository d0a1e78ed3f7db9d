"""What a kubelet writes into a pod's status."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from .api import Object, condition
from .nodes import now


def waiting(reason: str, message: str = "") -> Object:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def terminated(code: int, reason: str, started: str | None, message: str = "") -> Object:
    state = {"exitCode": code, "reason": reason, "finishedAt": now(), **({"startedAt": started} if started else {})}
    return {"terminated": {**state, **({"message": message} if message else {})}}


def running(started: str) -> Object:
    return {"running": {"startedAt": started}}


def image_id(image: str) -> str:
    """The digest that an image's name stands for: its own where it names one."""
    if "@" in image:
        return image
    return f"{image.rpartition(':')[0] or image}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"


class PodStatus:
    """The status of one pod, kept so that each patch says all that the node knows."""

    def __init__(self, pod: Object) -> None:
        self.pod = pod
        self.phase = "Pending"
        self.reason = ""
        self.message = ""
        self.ip = ""
        self.state: Object = waiting("ContainerCreating")
        self.last: Object = {}
        self.restarts = 0
        self.initialized = False
        self.start_time: str = (pod.get("status") or {}).get("startTime") or now()
        self._since: dict[str, tuple[str, str]] = {}

    def patch(self, extra_conditions: Mapping[str, Object] | None = None) -> Object:
        """The body of a strategic merge patch of the status subresource."""
        container_ready = "running" in self.state and self.phase == "Running"
        gates = [gate["conditionType"] for gate in self.pod["spec"].get("readinessGates") or ()]
        ready = container_ready and all(condition(self.pod, gate).get("status") == "True" for gate in gates)
        why = "PodCompleted" if self.phase == "Succeeded" else "ContainersNotReady"
        conditions = [
            self._condition("PodReadyToStartContainers", bool(self.ip)),
            self._condition("Initialized", self.initialized, "ContainersNotInitialized"),
            self._condition("ContainersReady", container_ready, why),
            self._condition("Ready", ready, why if not container_ready else "ReadinessGatesNotReady"),
            *(extra_conditions or {}).values(),
        ]
        status: Object = {
            "observedGeneration": self.pod["metadata"].get("generation"),
            "phase": self.phase,
            "conditions": conditions,
            "hostIP": "127.0.0.1",
            "hostIPs": [{"ip": "127.0.0.1"}],
            "startTime": self.start_time,
            "qosClass": (self.pod.get("status") or {}).get("qosClass", "Burstable"),
            "containerStatuses": [self._container(one) for one in self.pod["spec"]["containers"]],
        }
        if self.pod["spec"].get("initContainers"):
            status["initContainerStatuses"] = [self._init(one) for one in self.pod["spec"]["initContainers"]]
        if self.ip:
            status |= {"podIP": self.ip, "podIPs": [{"$patch": "replace"}, {"ip": self.ip}]}
        if self.reason:
            status |= {"reason": self.reason, "message": self.message}
        return {"metadata": {"uid": self.pod["metadata"]["uid"]}, "status": status}

    def _condition(self, kind: str, true: bool, reason: str = "") -> Object:
        value = "True" if true else "False"
        if self._since.get(kind, ("", ""))[0] != value:
            self._since[kind] = (value, now())
        found = {"type": kind, "status": value, "lastTransitionTime": self._since[kind][1], "lastProbeTime": None}
        return {**found, "reason": reason} if not true and reason else found

    def _container(self, container: Object) -> Object:
        on = "running" in self.state
        return {
            "name": container["name"],
            "image": container["image"],
            "imageID": image_id(container["image"]) if self.initialized else "",
            "containerID": f"containerd://{self.pod['metadata']['uid']}-{container['name']}-{self.restarts}" if on else "",
            "ready": on and self.phase == "Running",
            "started": on,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last,
        }

    def _init(self, container: Object) -> Object:
        state = terminated(0, "Completed", self.start_time) if self.initialized else waiting("PodInitializing")
        return {
            "name": container["name"],
            "image": container["image"],
            "imageID": image_id(container["image"]) if self.initialized else "",
            "ready": self.initialized,
            "restartCount": 0,
            "state": state,
            "lastState": {},
        }
