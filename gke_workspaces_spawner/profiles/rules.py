"""Whether a server of a choice can be paused, how large what it asks for is: what validation, mapping and words agree on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .catalogue import Catalogue, GpuType, Series, TpuType
from .entries import Choice
from .quantities import memory
from .schema import Settings

GB = 2**30


@dataclass(frozen=True, slots=True)
class Context:
    """What the hub says for every server, as far as it is known."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of KubeSpawner and ours, by name."""
    known: frozenset[str] | None = None
    """Every setting that there is; None where that cannot be told."""

    def value(self, choice: Choice, name: str) -> Any:
        """A setting for that choice; None also for one that only running the hub can tell."""
        value = choice.override[name] if name in choice.override else self.settings.get(name)
        return None if callable(value) else value


def gpu_type(settings: Settings, catalogue: Catalogue) -> GpuType | None:
    return catalogue.gpus.get(settings.gpu.type) if settings.gpu else None


def tpu_type(settings: Settings, catalogue: Catalogue) -> TpuType | None:
    return catalogue.tpus.get(settings.tpu.type) if settings.tpu else None


def series(settings: Settings, catalogue: Catalogue) -> Series | None:
    """The machine family that is asked for or that the accelerator brings; None where both leave it open."""
    kind = gpu_type(settings, catalogue) or tpu_type(settings, catalogue)
    family = settings.machine.family or (kind.series[0] if kind and len(kind.series) == 1 else None)
    return catalogue.machines.get(family) if family else None


def disks(settings: Settings, catalogue: Catalogue) -> str:
    """Which disks the machine takes: the accelerator's word before the family's, since families hold several machines."""
    kind = gpu_type(settings, catalogue) or tpu_type(settings, catalogue)
    if kind is not None:
        return kind.disks
    machine = series(settings, catalogue)
    return machine.disks if machine else "unsure"


def dimensions(topology: str) -> tuple[int, ...]:
    """``2x4`` as (2, 4); nothing for what is no topology."""
    parts = topology.split("x")
    return tuple(map(int, parts)) if all(part.isascii() and part.isdecimal() and int(part) > 0 for part in parts) else ()


def product(numbers: tuple[int, ...]) -> int:
    found = 1
    for number in numbers:
        found *= number
    return found


def chips(settings: Settings, catalogue: Catalogue) -> int:
    """TPU chips of one machine: what is asked for, else all of the topology in one machine, else the most that divide it; 0 for none."""
    kind = tpu_type(settings, catalogue)
    if kind is None or settings.tpu is None:
        return 0
    if settings.tpu.chips is not None:
        return settings.tpu.chips
    whole = product(dimensions(settings.tpu.topology)) if dimensions(settings.tpu.topology) else 0
    if whole in kind.chips:
        return whole
    several = [each for each in kind.chips if whole % each == 0 and each <= 4]  # machines of 8 chips are for themselves
    return max(several, default=0)


def memory_limit(choice: Choice, context: Context) -> int | None:
    """Bytes that the server may take; None where that is not known."""
    return memory(context.value(choice, "mem_limit"))


def sandboxed(choice: Choice) -> bool:
    """Whether the admin puts this choice in GKE Sandbox, whatever becomes of pausing."""
    config = choice.override.get("extra_pod_config")
    return isinstance(config, Mapping) and "gvisor" in (config.get("runtimeClassName"), config.get("runtime_class_name"))


def wants_pausing(settings: Settings, choice: Choice, context: Context) -> bool:
    if isinstance(choice.override.get("pausable"), bool):
        return bool(choice.override["pausable"])
    return bool(context.settings.get("pausable")) if settings.pausable is None else settings.pausable


def why_not_pausable(settings: Settings, catalogue: Catalogue) -> str | None:
    """Why a server with this hardware cannot be paused, for people; None where nothing speaks against it."""
    gpu, machine = settings.gpu, series(settings, catalogue)
    kind = gpu_type(settings, catalogue)
    if settings.tpu is not None:
        return "the state of a TPU cannot be saved"
    if settings.ide == "vscode":
        return "VS Code's terminals do not come back: only files stay"
    if machine is not None and not machine.pausable:
        return f"servers on {machine.name.upper()} machines cannot be saved"
    if (machine is not None and machine.arch != "amd64") or (kind is not None and kind.arch != "amd64"):
        return "servers on Arm machines cannot be saved"
    if gpu is None or kind is None:
        return None
    if gpu.sharing is not None and gpu.sharing.strategy == "mig":
        return "the state of a part of a GPU (MIG) cannot be saved"
    if gpu.sharing is not None and gpu.sharing.strategy == "mps":
        return "a GPU shared with MPS needs the machine's own processes, which a sandbox does not give"
    if kind.sandbox == "no" or kind.snapshot == "none":
        return f"the state of {kind.words} cannot be saved"
    if gpu.count > 1 and kind.snapshot != "all":
        return f"the state of one {kind.words} can be saved, of several not"
    return None
