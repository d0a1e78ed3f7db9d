"""The ten validations of one choice: what structure and arithmetic forbid is refused, what may have changed at Google Cloud is told.

Each is a generator over the same four values; their order is that of :data:`.findings.CHECKS`. What only a cluster knows (zones of volumes,
who holds a claim) is not here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from .catalogue import Catalogue, TpuType
from .entries import Choice
from .findings import Finding, State, listed, nearest, nearest_number, shown
from .rules import (
    GB,
    Context,
    chips,
    dimensions,
    gpu_type,
    memory_limit,
    product,
    sandboxed,
    tpu_type,
    wants_pausing,
    why_not_pausable,
)
from .schema import Settings
from .validation_home import home
from .validation_pod import host_access, pod

Say = Callable[..., Finding]
"""Makes a finding of that choice."""
ZONE = re.compile(r"[a-z]+(-[a-z]+)+\d+-[a-z]")
JOBS = "Servers have one machine; several are for jobs."


def validate(choice: Choice, settings: Settings, catalogue: Catalogue, context: Context) -> Iterator[Finding]:
    """All that is wrong with a choice whose ``gke`` could be read."""
    say = partial(Finding, choice.name)
    yield from _type(say, settings, catalogue)
    yield from _count(say, settings, catalogue)
    yield from _topology(say, settings, catalogue)
    yield from _capacity(say, settings, catalogue)
    yield from _family(say, settings, catalogue)
    yield from _sandbox(say, choice, settings, catalogue, context)
    yield from home(say, choice, settings, catalogue, context)
    yield from pod(say, choice, settings, catalogue, context)
    yield from _reporting(say, choice, settings)


def _type(say: Say, settings: Settings, catalogue: Catalogue) -> Iterator[Finding]:
    if settings.gpu and settings.tpu:
        yield say("gke.tpu", "There is a GPU as well, and a machine has one or the other.", "Leave one of them out.", "type")
    gpu, tpu = gpu_type(settings, catalogue), tpu_type(settings, catalogue)
    if settings.gpu and gpu is None:
        mend = nearest(settings.gpu.type, catalogue.gpus.names)
        yield say("gke.gpu.type", f"{shown(settings.gpu.type)} is no GPU type of GKE.", mend, "type")
    if gpu is not None and gpu.retired:
        yield say("gke.gpu.type", f"{gpu.name} is retired: Google Cloud makes no such machine any more.", "A T4 is the nearest.", "type")
    if settings.tpu and tpu is None:
        mend = nearest(settings.tpu.type, catalogue.tpus.names)
        yield say("gke.tpu.type", f"{shown(settings.tpu.type)} is no TPU type of GKE.", mend, "type")
    for kind, key in ((gpu, "gke.gpu.type"), (tpu, "gke.tpu.type")):
        if kind is not None and kind.preview:
            yield say(key, f"{kind.words} is a Preview, or not public: the project may not have it.", "", "type", State.WARNING)


def _count(say: Say, settings: Settings, catalogue: Catalogue) -> Iterator[Finding]:
    gpu, kind = settings.gpu, gpu_type(settings, catalogue)
    if gpu is None or kind is None or kind.retired:
        return
    if gpu.node is not None and gpu.node not in kind.counts:
        mend = nearest_number(gpu.node, kind.counts)
        yield say("gke.gpu.node", f"There is no machine with {gpu.node} {kind.words}.", mend, "count")
    elif gpu.node is not None and gpu.count > gpu.node:
        yield say("gke.gpu.count", f"{gpu.count} GPUs do not fit on a machine with {gpu.node}.", f"Write at most {gpu.node}.", "count")
    elif gpu.node is None and gpu.count not in kind.counts:
        mend = nearest_number(gpu.count, kind.counts)
        if gpu.count < max(kind.counts):
            mend += f" To share a machine with others, add node: {min(each for each in kind.counts if each > gpu.count)}."
        yield say("gke.gpu.count", f"There is no machine with {gpu.count} {kind.words}.", mend, "count")
    sharing = gpu.sharing
    if sharing is None:
        return
    if gpu.count != 1:
        yield say("gke.gpu.count", f"A server on a shared GPU gets 1, not {gpu.count}.", "Write 1.", "count")
    if sharing.strategy == "mig" and sharing.size is not None and sharing.size not in kind.mig:
        mend = nearest(sharing.size, kind.mig) if kind.mig else "Use time-sharing, or another type."
        yield say("gke.gpu.sharing.size", f"{kind.words} has no parts of {shown(sharing.size)}.", mend, "count")


def _topology(say: Say, settings: Settings, catalogue: Catalogue) -> Iterator[Finding]:
    """The third and the fourth: the topology is one of the type, and one machine holds it."""
    tpu, kind = settings.tpu, tpu_type(settings, catalogue)
    if tpu is None or kind is None:
        return
    key, size = "gke.tpu.topology", dimensions(tpu.topology)
    if len(size) != kind.dimensions:
        example = kind.topologies[0]
        what = f"{shown(tpu.topology)} is no topology of {kind.words}, which has {kind.dimensions} dimensions, such as {example}."
        yield say(key, what, nearest(tpu.topology, kind.topologies), "topology")
        return
    if tpu.topology not in kind.topologies and not _larger(size, kind):
        yield say(key, f"{kind.words} has no topology {tpu.topology}.", nearest(tpu.topology, kind.topologies), "topology")
        return
    whole = product(size)
    if tpu.chips is not None and tpu.chips not in kind.chips:
        mend = nearest_number(tpu.chips, kind.chips)
        yield say("gke.tpu.chips", f"There is no machine with {tpu.chips} chips of {kind.words}.", mend, "topology")
        return
    of_one = chips(settings, catalogue)
    if not of_one or whole % of_one:
        what = f"{tpu.topology} is {whole} chips, which machines with {of_one} do not make up."
        yield say("gke.tpu.chips", what, nearest_number(of_one, [each for each in kind.chips if whole % each == 0]), "topology")
    elif whole != of_one:
        single = [each for each in kind.topologies if product(dimensions(each)) in kind.chips]
        mend = f"Leave chips out: one machine has all {whole}." if whole in kind.chips else f"On one machine: {listed(single) or 'none'}."
        what = f"{tpu.topology} is {whole} chips, which is {whole // of_one} machines with {of_one} each. {JOBS}"
        yield say(key, what, mend, "hosts")


def _larger(size: tuple[int, ...], kind: TpuType) -> bool:
    """Whether three dimensions make a large slice: each a multiple of 4, not decreasing."""
    return (
        kind.dimensions == 3 and all(each % 4 == 0 for each in size) and list(size) == sorted(size) and product(size) <= kind.largest_slice
    )


def _capacity(say: Say, settings: Settings, catalogue: Catalogue) -> Iterator[Finding]:
    capacity, tpu = settings.capacity, tpu_type(settings, catalogue)
    key = f"gke.capacity.{capacity.kind}"
    kind = catalogue.capacities.get(capacity.kind)
    if capacity.kind == "reservation":
        if capacity.affinity == "any" and capacity.name is not None:
            yield say(f"{key}.affinity", "Any reservation is asked for, and one by name.", "Leave affinity out, or the name.", "capacity")
        elif capacity.affinity == "any":
            what = "Autopilot takes no server that asks for any reservation; Standard does."
            yield say(f"{key}.affinity", what, "", "capacity", State.WARNING)
        elif capacity.name is None:
            yield say(f"{key}.name", "It is missing: the reservation's name.", "", "capacity")
        if capacity.project is not None and capacity.name is None:
            yield say(f"{key}.project", "A project is named, and no reservation of it.", "Write the reservation's name too.", "capacity")
    if capacity.kind in ("compute-class", "queue") and capacity.name is None:
        what = "the ComputeClass's name" if capacity.kind == "compute-class" else "the LocalQueue's name"
        yield say(f"{key}.name", f"It is missing: {what}.", "", "capacity")
    if capacity.kind == "compute-class" and (settings.machine.family or settings.machine.cpu_platform):
        what = "The compute class chooses the machine: a family or CPU platform beside it makes a pod that is never placed."
        yield say("gke.machine", what, "Leave machine out, or the compute class.", "capacity")
    if capacity.kind == "flex-start":
        if kind and capacity.max_run is not None and not kind.shortest <= capacity.max_run <= kind.longest:
            best = kind.shortest if capacity.max_run < kind.shortest else kind.longest
            what = f"{capacity.max_run} s; a flex-start machine runs from {kind.shortest} s to {kind.longest} s."
            yield say(f"{key}.max_run", what, f"Write {best}.", "capacity")
        if tpu is not None and not tpu.flex_start:
            yield say(key, f"{tpu.words} cannot be had with flex-start.", "Use on-demand, spot or a reservation.", "capacity")
        if settings.gpu is None and settings.tpu is None:
            what = "Flex-start is for GPUs and TPUs; what a machine without them gets of it is not documented."
            yield say(key, what, "", "capacity", State.WARNING)
    for zone in settings.zones:
        if not ZONE.fullmatch(zone):
            mend = (
                f"A region has several zones, such as {zone}-a." if re.fullmatch(r"[a-z]+(-[a-z]+)+\d+", zone) else "Such as us-central1-a."
            )
            yield say("gke.zones", f"{shown(zone)} does not look like a zone.", mend, "capacity", State.WARNING)


def _family(say: Say, settings: Settings, catalogue: Catalogue) -> Iterator[Finding]:
    family = settings.machine.family
    if family is None:
        return
    kind = gpu_type(settings, catalogue) or tpu_type(settings, catalogue)
    if kind is not None and family not in kind.series:
        what = f"{shown(family)} machines have no {kind.words}."
        yield say("gke.machine.family", what, f"Leave it out, or write {listed(kind.series)}.", "family")
    elif catalogue.machines.get(family) is None:
        what = f"{shown(family)} is no machine family that is known here; a new one can be added to the catalogue."
        yield say("gke.machine.family", what, nearest(family, catalogue.machines.names), "family", State.WARNING)


def _sandbox(say: Say, choice: Choice, settings: Settings, catalogue: Catalogue, context: Context) -> Iterator[Finding]:
    kind = gpu_type(settings, catalogue) or tpu_type(settings, catalogue)
    key = "gke.gpu.type" if settings.gpu else "gke.tpu.type"
    sharing = settings.gpu.sharing if settings.gpu else None
    forced, why = sandboxed(choice), why_not_pausable(settings, catalogue)
    pausing = wants_pausing(settings, choice, context)
    if forced:
        if kind is not None and kind.sandbox == "no":
            yield say(key, f"GKE Sandbox does not take {kind.words}.", "Leave the runtime class out.", "sandbox")
        if sharing is not None and sharing.strategy in ("mig", "mps"):
            what = f"GKE Sandbox does not take a GPU shared with {sharing.strategy.upper()}."
            yield say("gke.gpu.sharing", what, "Leave the runtime class out.", "sandbox")
    if pausing and why is not None:
        if settings.pausable or choice.override.get("pausable"):
            yield say("gke.pausable", f"It will not be pausable: {why}.", "Write pausable: no.", "sandbox", State.WARNING)
        pausing = False
    if (forced or pausing) and kind is not None and kind.sandbox in ("preview", "unlisted"):
        words = "a Preview" if kind.sandbox == "preview" else "not listed by Google"
        yield say(key, f"{kind.words} in GKE Sandbox is {words}.", "", "sandbox", State.WARNING)
    gpu = gpu_type(settings, catalogue)
    if pausing and gpu is not None and gpu.snapshot == "unsure":
        yield say(key, f"Whether the state of {gpu.words} can be saved is not documented.", "", "sandbox", State.WARNING)
    limit = memory_limit(choice, context)
    if pausing and settings.gpu and gpu is not None and gpu.memory_gb and limit is not None:
        needed = gpu.memory_gb * settings.gpu.count
        if limit < needed * GB:
            what = f"A pause writes {needed} GB of GPU memory into the server's, of which it may take {limit / GB:.3g} GB."
            yield say("kubespawner_override.mem_limit", what, f"Allow more than {needed}G.", "sandbox", State.WARNING)
    if forced or pausing:
        for where, what in host_access(choice):
            state = State.REFUSED if forced else State.WARNING
            tail = "which GKE Sandbox refuses" if forced else "so it will not be pausable"
            yield say(f"kubespawner_override.{where}", f"{what}, {tail}.", "", "sandbox", state)
    if sharing is not None and sharing.strategy in ("time-sharing", "mps"):
        what = f"Users who share a GPU with {sharing.strategy} are not kept from each other's GPU memory."
        yield say("gke.gpu.sharing", what, "Use mig where they do not trust each other.", "sandbox", State.WARNING)


def _reporting(say: Say, choice: Choice, settings: Settings) -> Iterator[Finding]:
    """What a preemption leaves no time for. What pods wait for is told while they wait."""
    hooks = choice.override.get("lifecycle_hooks")
    if settings.capacity.kind == "spot" and isinstance(hooks, dict) and ("preStop" in hooks or "pre_stop" in hooks):
        what = "When Spot takes the machine back, what runs at the stop has 15 s, whatever its grace period says."
        yield say("kubespawner_override.lifecycle_hooks", what, "", "reporting", State.WARNING)
