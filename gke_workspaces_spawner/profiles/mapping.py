"""From an entry to settings of KubeSpawner: selectors, tolerations, limits, volumes. Pure functions; the entry is a valid one.

Settings that are lists are added to what is there; for the others the entry's are set before ``kubespawner_override``, which so wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .catalogue import Catalogue
from .quantities import binary
from .rules import chips, gpu_type, tpu_type
from .schema import Capacity, Settings

GPU = "nvidia.com/gpu"
TPU = "google.com/tpu"
ACCELERATOR = "cloud.google.com/gke-accelerator"
ACCELERATOR_COUNT = "cloud.google.com/gke-accelerator-count"
DRIVER = "cloud.google.com/gke-gpu-driver-version"
SHARING = "cloud.google.com/gke-gpu-sharing-strategy"
CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
PARTITION = "cloud.google.com/gke-gpu-partition-size"
TPU_ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
TPU_TOPOLOGY = "cloud.google.com/gke-tpu-topology"
FAMILY = "cloud.google.com/machine-family"
CPU_PLATFORM = "cloud.google.com/requested-min-cpu-platform"
SPOT = "cloud.google.com/gke-spot"
FLEX_START = "cloud.google.com/gke-flex-start"
MAX_RUN = "cloud.google.com/gke-max-run-duration-seconds"
RESERVATION = "cloud.google.com/reservation-"
COMPUTE_CLASS = "cloud.google.com/compute-class"
ZONE = "topology.kubernetes.io/zone"
QUEUE = "kueue.x-k8s.io/queue-name"
SHM = "gke-workspaces-shm"
SHM_PATH = "/dev/shm"
SHM_SIZE = 2 * 2**30
"""Where the memory limit is not known; Kubernetes gives 64 MB, which breaks data loaders."""
VSCODE_URL = "/vscode"
"""Where VS Code answers in images with jupyter-vscode-proxy and code-server."""

ADDED = ("tolerations", "volumes", "volume_mounts", "node_affinity_required")
"""Settings that are added to, after ``kubespawner_override``."""


def kubespawner_traits(settings: Settings, catalogue: Catalogue, memory_limit: int | None = None) -> dict[str, Any]:
    """Settings of our spawner for an entry; only what the entry says. ``memory_limit`` in bytes is the server's, where it is known."""
    selector: dict[str, str] = {}
    tolerations: list[dict[str, str]] = []
    made: dict[str, Any] = {}
    _accelerator(settings, catalogue, selector, tolerations, made)
    if settings.machine.family:
        selector[FAMILY] = settings.machine.family
    if settings.machine.cpu_platform:
        selector[CPU_PLATFORM] = settings.machine.cpu_platform.replace(" ", "_")
    _capacity(settings.capacity, selector, tolerations, made)
    if len(settings.zones) == 1:
        selector[ZONE] = settings.zones[0]
    elif settings.zones:
        rule = {"key": ZONE, "operator": "In", "values": list(settings.zones)}
        made["node_affinity_required"] = [{"matchExpressions": [rule]}]
    shm = shm_size(settings, memory_limit)
    if shm is not None:
        made["volumes"] = [{"name": SHM, "emptyDir": {"medium": "Memory", "sizeLimit": shm}}]
        made["volume_mounts"] = [{"name": SHM, "mountPath": SHM_PATH}]
    _home(settings, made)
    if settings.image.name:
        made["image"] = settings.image.name
    if settings.priority_class:
        made["priority_class_name"] = settings.priority_class
    if settings.ide == "vscode":
        made["default_url"] = VSCODE_URL
    if settings.pausable is not None:
        made["pausable"] = settings.pausable
    if settings.post_checkpoint:
        made["post_checkpoint"] = settings.post_checkpoint
    if selector:
        made["node_selector"] = selector
    if tolerations:
        made["tolerations"] = tolerations
    return made


def _accelerator(
    settings: Settings, catalogue: Catalogue, selector: dict[str, str], tolerations: list[dict[str, str]], made: dict[str, Any]
) -> None:
    gpu, kind = settings.gpu, gpu_type(settings, catalogue)
    if gpu is not None and kind is not None:
        selector[ACCELERATOR] = kind.name
        for label, value in ((ACCELERATOR_COUNT, gpu.node), (DRIVER, gpu.driver)):
            if value is not None:
                selector[label] = str(value)
        sharing = gpu.sharing
        if sharing is not None and sharing.strategy == "mig" and sharing.size:
            selector[PARTITION] = sharing.size
        elif sharing is not None:
            selector[SHARING] = sharing.strategy
            if sharing.clients is not None:
                selector[CLIENTS] = str(sharing.clients)
        _device(GPU, gpu.count, tolerations, made)
    tpu, row = settings.tpu, tpu_type(settings, catalogue)
    if tpu is not None and row is not None:
        selector |= {TPU_ACCELERATOR: row.label, TPU_TOPOLOGY: tpu.topology}
        _device(TPU, chips(settings, catalogue), tolerations, made)


def _device(name: str, count: int, tolerations: list[dict[str, str]], made: dict[str, Any]) -> None:
    """The limit, the same request, and the toleration that Google Cloud adds too where its admission plugin acts."""
    made["extra_resource_limits"] = {name: str(count)}
    made["extra_resource_guarantees"] = {name: str(count)}
    tolerations.append({"key": name, "operator": "Exists", "effect": "NoSchedule"})


def _capacity(capacity: Capacity, selector: dict[str, str], tolerations: list[dict[str, str]], made: dict[str, Any]) -> None:
    if capacity.kind in ("spot", "flex-start"):
        label = SPOT if capacity.kind == "spot" else FLEX_START
        selector[label] = "true"
        tolerations.append({"key": label, "operator": "Equal", "value": "true", "effect": "NoSchedule"})
        if capacity.max_run is not None:
            selector[MAX_RUN] = str(capacity.max_run)
    elif capacity.kind == "reservation":
        labels = {"name": capacity.name, "project": capacity.project, "affinity": capacity.affinity or "specific"}
        selector |= {f"{RESERVATION}{label}": value for label, value in labels.items() if value is not None}
    elif capacity.kind == "compute-class" and capacity.name:
        selector[COMPUTE_CLASS] = capacity.name
        tolerations.append({"key": COMPUTE_CLASS, "operator": "Exists", "effect": "NoSchedule"})
    elif capacity.kind == "queue" and capacity.name:
        made["extra_labels"] = {QUEUE: capacity.name}


def _home(settings: Settings, made: dict[str, Any]) -> None:
    home = settings.home
    if home is None:
        return
    made["storage_pvc_ensure"] = True
    if home.size:
        made["storage_capacity"] = home.size
    if home.storage_class:
        made["storage_class"] = home.storage_class
    if home.access:
        made["storage_access_modes"] = [home.access]


def shm_size(settings: Settings, memory_limit: int | None) -> str | None:
    """The size of ``/dev/shm``; without a word on it, half of the memory for servers with an accelerator; None for Kubernetes' own."""
    if settings.shm is not None:
        return None if settings.shm == "no" else settings.shm
    if settings.gpu is None and settings.tpu is None:
        return None
    return binary(SHM_SIZE if memory_limit is None else max(2**20, memory_limit // 2 // 2**20 * 2**20))


# ---------------------------------------------------------------- into what is there


def additions(ours: Mapping[str, Any], there: Mapping[str, Any], tolerations: Any = ()) -> dict[str, Any]:
    """What the settings of :data:`ADDED` become: nothing that is ``there`` is lost, nothing is doubled.

    ``tolerations`` are the hub's own, which an override has replaced. Who mounts something at ``/dev/shm`` keeps it.
    """
    made: dict[str, Any] = {}
    every = [*_listed(tolerations), *_listed(there.get("tolerations")), *ours.get("tolerations", ())]
    made["tolerations"] = [each for number, each in enumerate(every) if each not in every[:number]]
    mounts = _listed(there.get("volume_mounts"))
    if not any(isinstance(each, Mapping) and SHM_PATH in (each.get("mountPath"), each.get("mount_path")) for each in mounts):
        for name in ("volumes", "volume_mounts"):
            if name in ours:
                before = there.get(name)
                made[name] = {**before, SHM: ours[name][0]} if isinstance(before, Mapping) else [*_listed(before), *ours[name]]
    if "node_affinity_required" in ours:
        made["node_affinity_required"] = _both(_listed(there.get("node_affinity_required")), ours["node_affinity_required"])
    return made


def _both(there: list[Any], ours: list[dict[str, Any]]) -> list[Any]:
    """Terms are alternatives: each one that is there has to ask for ours as well."""
    rules = [rule for term in ours for rule in term["matchExpressions"]]
    return [{**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *rules]} for term in there] or ours


def _listed(value: Any) -> list[Any]:
    """As KubeSpawner reads a mapping in place of a list."""
    if isinstance(value, Mapping):
        return [value[key] for key in sorted(value)]
    return list(value or ())
