"""What a choice becomes, in words: for the admin's table today, for the researcher's form later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .catalogue import Catalogue
from .entries import Choice
from .findings import listed
from .mapping import kubespawner_traits
from .rules import Context, chips, gpu_type, memory_limit, series, tpu_type, wants_pausing, why_not_pausable
from .schema import Settings
from .validation_home import class_of, makes_homes

WAITS = {"cpu": 600, "gpu": 1200, "tpu": 1800}
"""Seconds in which a machine on demand usually comes, with its driver and the image, or does not come at all."""


@dataclass(frozen=True, slots=True)
class Row:
    """One choice."""

    name: str
    machine: str
    accelerator: str
    capacity: str
    home: str
    pausable: str
    wait: int
    """Seconds after which a start is given up."""
    needs: str
    """GKE version; empty where none is known."""
    traits: Mapping[str, Any] = field(default_factory=dict)
    """Settings of KubeSpawner that it becomes."""

    @property
    def longest_wait(self) -> str:
        return f"{self.wait // 60} min"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "longest_wait": self.longest_wait}


def row(choice: Choice, settings: Settings, catalogue: Catalogue, context: Context) -> Row:
    """What a valid choice becomes."""
    kind = gpu_type(settings, catalogue) or tpu_type(settings, catalogue)
    return Row(
        choice.name,
        _machine(settings, catalogue),
        accelerator(settings, catalogue),
        capacity(settings, catalogue),
        _home(choice, settings, catalogue, context),
        pausing(choice, settings, catalogue, context),
        wait(choice, settings, catalogue, context),
        (kind.needs or "") if kind else "",
        kubespawner_traits(settings, catalogue, memory_limit(choice, context)),
    )


def accelerator(settings: Settings, catalogue: Catalogue) -> str:
    """Such as ``2 x L4 24 GB``."""
    gpu, kind = settings.gpu, gpu_type(settings, catalogue)
    if gpu is not None and kind is not None:
        memory = f" {kind.memory_gb} GB" if kind.memory_gb else ""
        whole = f"{kind.words}{memory}" if gpu.count == 1 else f"{gpu.count} x {kind.words}{memory}"
        if gpu.sharing is None:
            return whole
        if gpu.sharing.strategy == "mig":
            return f"a {gpu.sharing.size} part of {whole}"
        return f"{whole}, shared with {f'up to {gpu.sharing.clients - 1}' if gpu.sharing.clients else 'other'} others"
    row = tpu_type(settings, catalogue)
    if settings.tpu is None or row is None:
        return "none"
    count = chips(settings, catalogue)
    memory = f", {count * row.memory_gb} GB" if row.memory_gb else ""
    return f"{row.words} {settings.tpu.topology}: {count} chip{'' if count == 1 else 's'}{memory}"


def capacity(settings: Settings, catalogue: Catalogue) -> str:
    """How the machine is got, with the rule that comes with it."""
    wanted = settings.capacity
    kind = catalogue.capacities.get(wanted.kind)
    words = kind.words if kind else wanted.kind
    if wanted.name:
        words = f"{words} ({wanted.name})"
    if wanted.max_run:
        words += f", ends after {_time(wanted.max_run)}"
    return words + (f", in {listed(settings.zones)}" if settings.zones else "")


def pausing(choice: Choice, settings: Settings, catalogue: Catalogue, context: Context) -> str:
    """Whether it can be paused, and with what."""
    why = why_not_pausable(settings, catalogue)
    if not wants_pausing(settings, choice, context):
        return "no" if settings.pausable is False else "no: not switched on"
    if why is not None:
        return f"no: {why}"
    return "yes, with GPU memory" if settings.gpu else "yes"


def wait(choice: Choice, settings: Settings, catalogue: Catalogue, context: Context) -> int:
    """Seconds that a start of it may take: as an override says, else what such a machine may take, and not less than the hub's own."""
    own, configured = choice.override.get("start_timeout"), context.settings.get("start_timeout")
    if isinstance(own, int) and not isinstance(own, bool):
        return own
    kind = catalogue.capacities.get(settings.capacity.kind)
    machine = WAITS["tpu" if settings.tpu else "gpu" if settings.gpu else "cpu"] + (kind.wait if kind else 0)
    return max(machine, configured) if isinstance(configured, int) else machine


def _machine(settings: Settings, catalogue: Catalogue) -> str:
    if settings.capacity.kind == "compute-class":
        return "as the compute class says"
    kind, found = gpu_type(settings, catalogue) or tpu_type(settings, catalogue), series(settings, catalogue)
    words = found.name if found else settings.machine.family or (kind.series[0] if kind else "any")
    if settings.machine.cpu_platform:
        words += f", {settings.machine.cpu_platform} or newer"
    return words


def _home(choice: Choice, settings: Settings, catalogue: Catalogue, context: Context) -> str:
    if not makes_homes(choice, settings, context):
        return "as the hub says"
    name, known = class_of(choice, settings, catalogue, context)
    size = context.value(choice, "storage_capacity") or (settings.home.size if settings.home else None)
    words = [str(size)] if size else []
    words.append((known.words if known and known.words else name) or "the cluster's default class")
    if settings.home and settings.home.access == "ReadWriteMany":
        words.append("for several servers")
    return ", ".join(words)


def _time(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds < 2 * 3600 else f"{seconds / 3600:.3g} h"
