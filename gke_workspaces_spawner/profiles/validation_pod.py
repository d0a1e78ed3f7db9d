"""The ninth validation: the pod that comes out of the entry, the override beside it and the hub's settings is one that can run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from .catalogue import Catalogue
from .entries import Choice
from .findings import Finding, listed, nearest, shown
from .mapping import GPU, TPU, kubespawner_traits
from .quantities import cores, memory, quantity
from .rules import GB, Context, chips, gpu_type, memory_limit, tpu_type
from .schema import Settings

OVERRIDE = "kubespawner_override"


def pod(say: Callable[..., Finding], choice: Choice, settings: Settings, catalogue: Catalogue, context: Context) -> Iterator[Finding]:
    """What is wrong with the whole of one choice."""
    ours = kubespawner_traits(settings, catalogue, memory_limit(choice, context))
    yield from _names(say, choice, context)
    yield from _selectors(say, choice, ours.get("node_selector", {}))
    yield from _devices(say, choice, ours)
    yield from _shm(say, choice, settings, context)
    yield from _size(say, choice, settings, catalogue, context)
    yield from _image(say, choice, settings, context)


def _names(say: Callable[..., Finding], choice: Choice, context: Context) -> Iterator[Finding]:
    for name in choice.override:
        key = f"{OVERRIDE}.{name}"
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", str(name)).lower()
        if context.known is not None and name not in context.known:
            mend = f"Did you mean {snake!r}?" if snake in context.known else nearest(name, context.known)
            yield say(key, "KubeSpawner has no such setting, so it would do nothing.", mend, "pod")
        elif context.known is None and snake != name:
            yield say(key, "Settings of KubeSpawner are written in small letters, so it would do nothing.", f"Write {snake!r}.", "pod")


def _selectors(say: Callable[..., Finding], choice: Choice, ours: Mapping[str, str]) -> Iterator[Finding]:
    places: list[tuple[str, Any]] = [("node_selector", choice.override.get("node_selector"))]
    config = choice.override.get("extra_pod_config")
    if isinstance(config, Mapping):
        places += [(f"extra_pod_config.{name}", config.get(name)) for name in ("nodeSelector", "node_selector")]
    for where, theirs in places:
        for label, value in theirs.items() if isinstance(theirs, Mapping) else ():
            if label in ours and value != ours[label]:
                what = f"It asks for {label} = {shown(value)}, and gke for {ours[label]!r}: no machine has both."
                yield say(f"{OVERRIDE}.{where}", what, "Leave it out of the override.", "pod")


def _devices(say: Callable[..., Finding], choice: Choice, ours: Mapping[str, Any]) -> Iterator[Finding]:
    for name in ("extra_resource_limits", "extra_resource_guarantees"):
        theirs = choice.override.get(name)
        for device in (GPU, TPU):
            if not isinstance(theirs, Mapping) or device not in theirs:
                continue
            mine = ours.get(name, {}).get(device)
            if mine is not None and str(theirs[device]) != mine:
                what = f"It says {device} {shown(theirs[device])}, and gke {mine}: a pod's request and limit have to be the same."
                yield say(f"{OVERRIDE}.{name}", what, "Leave it out of the override.", "pod")


def _shm(say: Callable[..., Finding], choice: Choice, settings: Settings, context: Context) -> Iterator[Finding]:
    limit, size = memory_limit(choice, context), quantity(settings.shm) if settings.shm not in (None, "no") else None
    if limit is not None and size is not None and size >= limit:
        half = f"{max(1, limit // 2 // 2**20)}Mi"
        yield say(
            "gke.shm", f"{settings.shm} of shared memory do not fit into the {_gb(limit)} of memory.", f"Write {half!r} or less.", "pod"
        )


def _size(say: Callable[..., Finding], choice: Choice, settings: Settings, catalogue: Catalogue, context: Context) -> Iterator[Finding]:
    """What is asked for fits on the largest such machine; and on a shared one something is asked for."""
    gpu, tpu = gpu_type(settings, catalogue), tpu_type(settings, catalogue)
    kind = gpu or tpu
    if kind is None or (settings.gpu and settings.tpu):
        return
    devices = (settings.gpu.node or settings.gpu.count) if settings.gpu else chips(settings, catalogue)
    vcpu, gb = kind.largest(devices)
    # What is not guaranteed is what is limited: so Kubernetes fills requests in.
    asked = {
        "cpu": cores(_first(choice, context, "cpu_guarantee", "cpu_limit")),
        "mem": memory(_first(choice, context, "mem_guarantee", "mem_limit")),
    }
    where = f"a machine with {devices} {kind.words}" if settings.gpu else f"a machine with {devices} chips of {kind.words}"
    if asked["cpu"] is not None and vcpu and asked["cpu"] >= vcpu:
        what = f"{asked['cpu']:g} CPUs do not fit on {where}, which has {vcpu}, some of them for the system."
        yield say(f"{OVERRIDE}.cpu_guarantee", what, f"Ask for less than {vcpu}.", "pod")
    if asked["mem"] is not None and gb and asked["mem"] >= gb * GB:
        what = f"{_gb(int(asked['mem']))} of memory do not fit on {where}, which has {gb} GB, some of it for the system."
        yield say(f"{OVERRIDE}.mem_guarantee", what, f"Ask for less than {gb}G.", "pod")
    if settings.gpu and settings.gpu.node and settings.gpu.node > settings.gpu.count:
        for name, words in (("cpu", "CPUs"), ("mem", "memory")):
            if asked[name] is None and not _by_code(choice, f"{name}_guarantee", f"{name}_limit"):
                what = f"It shares a machine, and says no {words}: the first server would take everything."
                yield say(f"{OVERRIDE}.{name}_guarantee", what, f"Say what one server gets of the {words}.", "pod")


def _image(say: Callable[..., Finding], choice: Choice, settings: Settings, context: Context) -> Iterator[Finding]:
    image = image_of(choice, settings, context)
    if isinstance(image, str) and not approved(image, settings):
        key = "kubespawner_override.image" if choice.override.get("image") == image else "gke.image.approved"
        yield say(key, f"The image {shown(image)} is not approved.", f"Approved: {listed(settings.image.approved)}.", "pod")


def image_of(choice: Choice, settings: Settings, context: Context) -> Any:
    """The image of that choice; an override wins. None where that is not known."""
    return context.value(choice, "image") if "image" in choice.override else settings.image.name or context.value(choice, "image")


def approved(image: str, settings: Settings) -> bool:
    """Whether a server of this entry may have that image."""
    patterns = settings.image.approved
    return not patterns or any(fnmatchcase(image, pattern) for pattern in patterns)


def host_access(choice: Choice) -> Iterator[tuple[str, str]]:
    """(setting, what it does) of an override that needs the machine itself."""
    override = choice.override
    if override.get("privileged") is True:
        yield "privileged", "It gives the server rights over the machine"
    config = override.get("extra_pod_config")
    for name in ("hostIPC", "hostPID", "hostNetwork", "host_ipc", "host_pid", "host_network"):
        if isinstance(config, Mapping) and config.get(name):
            yield f"extra_pod_config.{name}", "It shares what belongs to the machine"
    volumes = override.get("volumes")
    for volume in _values(volumes):
        if isinstance(volume, Mapping) and ("hostPath" in volume or "host_path" in volume):
            yield "volumes", f"Its volume {shown(volume.get('name'))} is a folder of the machine"
    for name in ("init_containers", "extra_containers"):
        for container in _values(override.get(name)):
            context = container.get("securityContext") if isinstance(container, Mapping) else None
            if isinstance(context, Mapping) and context.get("privileged"):
                yield name, f"Its container {shown(container.get('name'))} has rights over the machine"


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, Mapping) else list(value) if isinstance(value, (list, tuple)) else []


def _first(choice: Choice, context: Context, *names: str) -> Any:
    found = [context.value(choice, name) for name in names]
    return next((each for each in found if each), None)


def _by_code(choice: Choice, *names: str) -> bool:
    return any(callable(choice.override.get(name)) for name in names)


def _gb(size: int) -> str:
    return f"{size / GB:.3g} GB"
