"""Pod manifests: what a pod needs so that it can be paused, what speaks against it, and the manifest of a restore. Pure functions.

A manifest is a dict as in YAML. What comes in is never changed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import facts
from .client import Object

NOTEBOOK = "notebook"
"""KubeSpawner's name for the container that the server runs in."""
TOKEN_NAMES = ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN")
GUEST_NAME = "GKE_WORKSPACES_GUEST_SECRET"
RUNTIME_DIR = "JUPYTER_RUNTIME_DIR"
OUTSIDE_HOME = "/tmp/jupyter-runtime"
TOKEN_KEY, GUEST_KEY, POD_KEY = "token", "guest", "pod.json"
"""Entries of a server's Secret."""


@dataclass(frozen=True, slots=True)
class Pausable:
    """What makes one server's pod pausable."""

    lineage: str
    hub: str
    secret: str
    """Name of the Secret with the server's token and the secret that it shares with the Hub."""
    policy: str = facts.RESUME
    runtime_class: str = facts.name("runtime_class")

    @property
    def labels(self) -> dict[str, str]:
        return {facts.LINEAGE: self.lineage, facts.HUB: self.hub, facts.POLICY: self.policy}


@dataclass(frozen=True, slots=True)
class Blocker:
    """Why a pod cannot be paused; ``sentence`` is for the person who asks for the pause."""

    code: str
    sentence: str


# ---------------------------------------------------------------- a cold start


def pausable(pod: Object, settings: Pausable, token: str) -> Object:
    """KubeSpawner's pod with what a pause needs, for a cold start: GKE must not restore anything into it."""
    made = copy.deepcopy(pod)
    metadata, spec = made["metadata"], made["spec"]
    metadata["labels"] = {**(metadata.get("labels") or {}), **settings.labels}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), facts.PS_NAME: ""}
    spec["runtimeClassName"] = settings.runtime_class
    spec["restartPolicy"] = "Never"  # a restart in place would be restored from a snapshot of the past
    if spec.get("automountServiceAccountToken") is not True:
        spec["automountServiceAccountToken"] = False  # its volume has a random name, which GKE compares
    notebook = notebook_of(made)
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        for entry in container.get("env") or ():
            if token and entry.get("value") == token:
                entry.pop("value")
                entry["valueFrom"] = _reference(settings.secret, TOKEN_KEY)
    env: list[Object] = notebook.setdefault("env", [])
    there = {entry["name"]: entry for entry in env}
    env += [{"name": name, "valueFrom": _reference(settings.secret, TOKEN_KEY)} for name in TOKEN_NAMES if name not in there]
    env[:] = [entry for entry in env if entry["name"] != GUEST_NAME]
    env.append({"name": GUEST_NAME, "valueFrom": _reference(settings.secret, GUEST_KEY)})
    if RUNTIME_DIR not in there:
        env.append({"name": RUNTIME_DIR, "value": OUTSIDE_HOME})
    return made


def notebook_of(pod: Object) -> Object:
    """The container that the server runs in."""
    containers: list[Object] = pod["spec"]["containers"]
    return next((each for each in containers if each["name"] == NOTEBOOK), containers[0])


def _reference(secret: str, key: str) -> Object:
    return {"secretKeyRef": {"name": secret, "key": key}}


# ---------------------------------------------------------------- what speaks against it


def blockers(pod: Object, settings: Pausable) -> tuple[Blocker, ...]:
    """Why a server with this pod (KubeSpawner's own) cannot be paused; empty when it can."""
    return tuple(dict.fromkeys((*_of_devices(pod), *_of_containers(pod, settings), *_of_volumes(pod), *_of_the_pod(pod, settings))))


def _of_devices(pod: Object) -> Iterator[Blocker]:
    spec = pod["spec"]
    selector = _wanted_labels(spec)
    limits = [_limits(container) for container in _containers(spec)]
    if facts.name("tpu_selector") in selector or any(facts.name("tpu") in each for each in limits):
        yield Blocker("tpu", "It has a TPU, whose state cannot be saved.")
    if facts.name("partition") in selector or any(key.startswith("nvidia.com/mig-") for each in limits for key in each):
        yield Blocker("mig", "It has a part of a GPU (MIG), whose state cannot be saved.")
    gpus = sum(int(str(each.get(facts.name("gpu"), 0))) for each in limits)
    models = set(selector.get(facts.name("accelerator"), ()))
    if gpus > 1 and not (models and models <= set(facts.data("facts")["names"]["several_gpus"])):
        yield Blocker("several_gpus", "It has more than one GPU of a model of which only one can be saved.")
    if "e2" in selector.get(facts.name("family"), ()):
        yield Blocker("e2", "It asks for E2 machines, on which servers cannot be saved.")


def _of_containers(pod: Object, settings: Pausable) -> Iterator[Blocker]:
    spec = pod["spec"]
    notebook = notebook_of(pod)
    for container in _containers(spec):
        context = container.get("securityContext") or {}
        added = (context.get("capabilities") or {}).get("add") or ()
        name = container["name"]
        if context.get("privileged") or "NET_ADMIN" in added or "SYS_ADMIN" in added:
            yield Blocker("privileged", f"Its container {name} has rights over the machine, which a sandbox does not give.")
        if container.get("livenessProbe"):
            yield Blocker("liveness_probe", f"Its container {name} has a liveness probe, which would end it while it is being saved.")
        words = " ".join(str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ())))
        if "code-server" in words or "openvscode" in words:
            yield Blocker("vscode", "It runs VS Code, whose terminals do not come back.")
    beside = [each["name"] for each in spec["containers"] if each is not notebook]
    beside += [each["name"] for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    if beside and settings.policy == facts.RESUME:
        yield Blocker("side_car", f"The container {beside[0]} runs beside it and cannot be held still during a save.")


def _of_volumes(pod: Object) -> Iterator[Blocker]:
    spec, annotations = pod["spec"], pod["metadata"].get("annotations") or {}
    for volume in spec.get("volumes") or ():
        if "hostPath" in volume:
            yield Blocker("host_path", f"Its volume {volume['name']} is a folder of the machine, which another machine does not have.")
        if (volume.get("csi") or {}).get("driver") == facts.name("fuse_driver"):
            yield Blocker("gcs_fuse", "It mounts a bucket with GCS FUSE, with which a save hangs.")
    if str(annotations.get(facts.name("fuse_annotation"))).lower() == "true":
        yield Blocker("gcs_fuse", "It mounts a bucket with GCS FUSE, with which a save hangs.")


def _of_the_pod(pod: Object, settings: Pausable) -> Iterator[Blocker]:
    spec, metadata = pod["spec"], pod["metadata"]
    if any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        yield Blocker("host_namespace", "It shares the network or processes of the machine.")
    if spec.get("runtimeClassName") not in (None, "", settings.runtime_class):
        yield Blocker("runtime_class", f"It runs with the runtime class {spec['runtimeClassName']}.")
    if spec.get("automountServiceAccountToken") is True:
        yield Blocker("service_account_token", "A token of its service account is mounted, which changes with every start.")
    if (metadata.get("annotations") or {}).get(facts.PS_NAME):
        yield Blocker("ps_name", f"Its manifest sets {facts.PS_NAME}.")


def _containers(spec: Object) -> list[Object]:
    return [*(spec.get("initContainers") or ()), *spec["containers"]]


def _limits(container: Object) -> Mapping[str, Any]:
    resources = container.get("resources") or {}
    return {**(resources.get("requests") or {}), **(resources.get("limits") or {})}


def _wanted_labels(spec: Object) -> dict[str, set[str]]:
    """Node labels that the pod asks for, by selector or by required affinity."""
    found = {key: {str(value)} for key, value in (spec.get("nodeSelector") or {}).items()}
    for term in _required_terms(spec):
        for rule in term.get("matchExpressions") or ():
            if rule.get("operator") == "In":
                found.setdefault(rule["key"], set()).update(str(value) for value in rule.get("values") or ())
    return found


def _required_terms(spec: Object) -> list[Object]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return list(required.get("nodeSelectorTerms") or ())


# ---------------------------------------------------------------- a restore


def restored(pod: Object, snapshot: str, origin: Mapping[str, str]) -> Object:
    """The saved pod once more, to be restored from that PodSnapshot, on a node like the one that it was saved on."""
    made = copy.deepcopy(pod)
    for entry in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
        made["metadata"].pop(entry, None)
    made["metadata"]["annotations"] = {**(made["metadata"].get("annotations") or {}), facts.PS_NAME: snapshot}
    rules = [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(origin.items())]
    if not rules:
        return made
    affinity = made["spec"].setdefault("affinity", {})
    node = affinity.setdefault("nodeAffinity", {})
    required = node.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms") or [{}]  # terms are alternatives: each one has to ask for it
    required["nodeSelectorTerms"] = [{**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *rules]} for term in terms]
    return made


def labels_of(saved: Object, today: Object) -> dict[str, str]:
    """Labels of a restore: today's, since network policies grant by them; but whose memory it is, and under which policy it was saved,
    as it was."""
    ours = {key: value for key, value in (saved["metadata"].get("labels") or {}).items() if key.startswith(facts.PREFIX)}
    theirs = {key: value for key, value in (today["metadata"].get("labels") or {}).items() if not key.startswith(facts.PREFIX)}
    return {**theirs, **ours}


def origin_of(node: Object | None) -> dict[str, str]:
    """Labels of the origin node that a node has to have too; empty where nodes may not be read."""
    labels = ((node or {}).get("metadata") or {}).get("labels") or {}
    return {row["label"]: labels[row["label"]] for row in facts.data("facts")["node"] if row["label"] in labels}


def node_version(node: Object | None) -> str:
    """What of a node's software voids snapshots when it changes: GKE's version, which brings gVisor and the GPU driver with it."""
    info = ((node or {}).get("status") or {}).get("nodeInfo") or {}
    return str(info.get("kubeletVersion") or "")


def snapshot_of(pod: Object) -> str:
    """The snapshot that the pod is to be restored from; empty for a cold start."""
    return str((pod["metadata"].get("annotations") or {}).get(facts.PS_NAME) or "")


def not_granted(saved: Object, today: Object) -> str | None:
    """What the saved pod has that today's cold start of the same server would not be given; None when there is nothing.

    Names what differs, for the log and for who asks why. Less than today's is no reason; another image is: what a hub admin took
    away for a fault in it must not come back with a resume.
    """
    before, now = saved["spec"], today["spec"]
    if _account(before) != _account(now):
        return "service account"
    if _text(before.get("securityContext") or {}) != _text(now.get("securityContext") or {}):
        return "security context of the pod"
    for name in ("runtimeClassName", "priorityClassName", "hostNetwork", "hostPID", "hostIPC"):
        if before.get(name) and before.get(name) != now.get(name):
            return name
    volumes = {each["name"]: _text(each) for each in now.get("volumes") or ()}
    for volume in before.get("volumes") or ():
        if volumes.get(volume["name"]) != _text(volume):
            return f"volume {volume['name']}"
    there = {each["name"]: each for each in _containers(now)}
    for container in _containers(before):
        other = there.get(container["name"])
        if other is None:
            return f"container {container['name']}"
        what = _of_a_container(container, other)
        if what:
            return f"{what} of container {container['name']}"
    return _accelerator(before, now)


def _account(spec: Object) -> str:
    """The service account, under its name of today or the one of before, which API servers still take."""
    return str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "default")


def _of_a_container(before: Object, now: Object) -> str | None:
    if before.get("image") != now.get("image"):
        return "image"
    if _text(before.get("securityContext") or {}) != _text(now.get("securityContext") or {}):
        return "security context"
    mounts = {_text(each) for each in now.get("volumeMounts") or ()}
    for mount in before.get("volumeMounts") or ():
        if _text(mount) not in mounts:
            return f"mount {mount.get('mountPath')}"
    limits, allowed = _limits(before), _limits(now)
    for key, value in limits.items():
        if "/" in key and quantity(value) > quantity(allowed.get(key, 0)):
            return f"resource {key}"
    memory, today = limits.get("memory"), allowed.get("memory")
    if today is not None and (memory is None or quantity(today) < quantity(memory)):
        return "memory"
    return None


def _accelerator(before: Object, now: Object) -> str | None:
    key = facts.name("accelerator")
    wanted, today = _wanted_labels(before).get(key, set()), _wanted_labels(now).get(key, set())
    return None if wanted <= today else "accelerator"


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}


def quantity(value: Any) -> float:
    """A Kubernetes quantity as a number (bytes, cores, devices). Raises ValueError for what is none."""
    text = str(value).strip()
    if text[-2:] in _BINARY:
        return float(text[:-2]) * _BINARY[text[-2:]]
    if text and text[-1] in _UNITS and text[-1].isalpha():
        return float(text[:-1]) * _UNITS[text[-1]]
    return float(text)


def memory_limit(pod: Object) -> int | None:
    """Bytes that the server's container may take; None without a limit."""
    limits = (notebook_of(pod).get("resources") or {}).get("limits") or {}
    return int(quantity(limits["memory"])) if "memory" in limits else None
