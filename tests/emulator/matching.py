"""Which snapshot fits which pod: selectors, grouping values, the distilled pod spec, and what the node must have in common.

The fields of the distilled spec are those of the reference's section 3.1; what the hash is made of beyond them is guessed and
marked so in ``behaviours.toml``.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

from .api import Object
from .nodes import CPU_PLATFORM, CPU_PLATFORMS, DRIVER, GVISOR

CONTAINER_FIELDS = (
    "name", "image", "command", "args", "workingDir", "terminationMessagePath", "terminationMessagePolicy", "securityContext", "stdin",
    "stdinOnce", "tty",
)  # fmt: skip
MOUNT_FIELDS = ("name", "readOnly", "recursiveReadOnly", "mountPath", "subPath", "mountPropagation", "subPathExpr")
INJECTED = "kube-api-access-"
"""Prefix of the volume that a service account's admission adds under a random name; taken for ignored."""


def distilled(pod: Object) -> Object:
    """The part of a pod that must be equal at save and restore. Environment, resources, labels and node are not in it."""
    spec, meta = pod["spec"], pod["metadata"]
    annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key.startswith("dev.gvisor.")}
    job = (meta.get("labels") or {}).get("batch.kubernetes.io/job-completion-index")
    return {
        "annotations": annotations,
        "job": job,
        "volumes": [one for one in spec.get("volumes") or () if not one["name"].startswith(INJECTED)],
        "containers": [_container(one) for one in spec["containers"]],
        "initContainers": [_container(one) for one in spec.get("initContainers") or ()],
        "securityContext": spec.get("securityContext") or {},
        "serviceAccountName": spec.get("serviceAccountName", "default"),
    }


def spec_hash(pod: Object) -> str:
    """Hash of the distilled spec."""
    return hashlib.sha256(json.dumps(distilled(pod), sort_keys=True).encode()).hexdigest()


def _container(container: Object) -> Object:
    lifecycle = container.get("lifecycle") or {}
    return {
        **{name: container.get(name) for name in CONTAINER_FIELDS},
        "ports": [[port.get(name) for name in ("name", "containerPort", "protocol")] for port in container.get("ports") or ()],
        "volumeMounts": [
            [mount.get(name) for name in MOUNT_FIELDS]
            for mount in container.get("volumeMounts") or ()
            if not mount["name"].startswith(INJECTED)
        ],
        "volumeDevices": [device.get("name") for device in container.get("volumeDevices") or ()],
        "lifecycle": {name: lifecycle.get(name) for name in ("postStart", "preStop")},
    }


def selects(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a label selector matches; an empty one matches everything."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for rule in selector.get("matchExpressions") or ():
        value, values = labels.get(rule["key"]), rule.get("values") or ()
        fits = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[rule["operator"]]
        if not fits:
            return False
    return True


def policy_for(policies: list[Object], pod: Object) -> Object | None:
    """The policy that governs a pod: the first by name."""
    labels = pod["metadata"].get("labels") or {}
    matching = [one for one in policies if selects(one["spec"]["selector"], labels) and not one["metadata"].get("deletionTimestamp")]
    return min(matching, key=lambda one: str(one["metadata"]["name"]), default=None)


def group_of(policy: Object, pod: Object) -> dict[str, str] | None:
    """The pod's values of the policy's grouping labels; ``None`` where it lacks one of them."""
    rules = policy["spec"].get("snapshotGroupingRules") or {}
    keys = (rules.get("groupByLabelValue") or {}).get("labels") or []
    labels = pod["metadata"].get("labels") or {}
    return {key: labels[key] for key in keys} if all(key in labels for key in keys) else None


class NodeFacts(NamedTuple):
    """What of a node must be the same at a restore."""

    series: str
    arch: str
    gvisor: str
    accelerator: str
    driver: str
    cpu_platform: str

    @classmethod
    def of(cls, node: Object) -> NodeFacts:
        labels, annotations = node["metadata"].get("labels") or {}, node["metadata"].get("annotations") or {}
        accelerator = labels.get("cloud.google.com/gke-accelerator", "")
        return cls(
            series=labels.get("cloud.google.com/machine-family", ""),
            arch=labels.get("kubernetes.io/arch", ""),
            gvisor=annotations.get(GVISOR, ""),
            accelerator=accelerator,
            driver=annotations.get(DRIVER, "") if accelerator else "",
            cpu_platform=annotations.get(CPU_PLATFORM, ""),
        )

    def why_not_on(self, here: NodeFacts, scope: str) -> str | None:
        """Why a snapshot made there cannot be restored here, or ``None``."""
        names = (
            ("arch", "gvisor", "accelerator", "driver") if scope == "rootfs-only" else ("series", "arch", "gvisor", "accelerator", "driver")
        )
        for name in names:
            if getattr(self, name) != getattr(here, name):
                return f"{name} of the checkpoint was {getattr(self, name)!r}, the node's is {getattr(here, name)!r}"
        if scope != "rootfs-only" and _older(here.cpu_platform, self.cpu_platform):
            return f"the node's CPU lacks features of the checkpoint's ({here.cpu_platform}, {self.cpu_platform})"
        return None


def _older(one: str, other: str) -> bool:
    """Whether a CPU platform has fewer features than another; unknown ones have the same only as themselves."""
    if one in CPU_PLATFORMS and other in CPU_PLATFORMS:
        return CPU_PLATFORMS.index(one) < CPU_PLATFORMS.index(other)
    return one != other


class Made(NamedTuple):
    """What was written beside a snapshot's files about how it was made (its ``metadata``)."""

    spec_hash: str
    facts: NodeFacts
    group: dict[str, str]
    scope: str
    at: float
    """Wall clock."""

    def to_json(self) -> Any:
        return {**self._asdict(), "facts": self.facts._asdict()}

    @classmethod
    def from_json(cls, value: Any) -> Made:
        return cls(value["spec_hash"], NodeFacts(**value["facts"]), value["group"], value["scope"], value["at"])
