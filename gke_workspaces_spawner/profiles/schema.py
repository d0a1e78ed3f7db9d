"""What an admin may write under ``gke``: read into frozen records. Every wrong type, key and word is a finding, all at once.

Whether a type of accelerator is known, and what fits together, is :mod:`.validation`'s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .findings import Finding, listed, nearest, shown
from .quantities import quantity

KEYS = (
    *("gpu", "tpu", "machine", "capacity", "home", "ide", "pausable", "post_checkpoint", "idle", "shm", "zones", "image"),
    *("groups", "priority_class"),
)
CAPACITIES = ("on-demand", "spot", "flex-start", "reservation", "compute-class", "queue")
CAPACITY_KEYS: Mapping[str, tuple[str, ...]] = {
    "flex-start": ("max_run",),
    "reservation": ("name", "project", "affinity"),
    "compute-class": ("name",),
    "queue": ("name",),
}
ACCESS = ("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany")
IDES = ("jupyterlab", "vscode")
SHARING = ("time-sharing", "mps", "mig")
CLIENTS = range(2, 49)
"""Pods that may share one GPU."""
KMS_KEY = re.compile(r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+")
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
"""What Kubernetes takes as the value of a label."""
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""What Kubernetes takes as the name of an object."""


@dataclass(frozen=True, slots=True)
class Sharing:
    strategy: str
    clients: int | None = None
    """Pods for one GPU (time-sharing, MPS)."""
    size: str | None = None
    """Part of a GPU (MIG)."""


@dataclass(frozen=True, slots=True)
class Gpu:
    type: str
    count: int = 1
    node: int | None = None
    """GPUs of the machine, where several pods are to share a larger one."""
    driver: str | None = None
    sharing: Sharing | None = None


@dataclass(frozen=True, slots=True)
class Tpu:
    type: str
    topology: str
    chips: int | None = None
    """Chips of one machine, where a topology can be had with machines of two sizes."""


@dataclass(frozen=True, slots=True)
class Machine:
    family: str | None = None
    cpu_platform: str | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    kind: str = "on-demand"
    name: str | None = None
    project: str | None = None
    affinity: str | None = None
    max_run: int | None = None
    """Seconds after which a flex-start machine is taken away."""


@dataclass(frozen=True, slots=True)
class Home:
    size: str | None = None
    storage_class: str | None = None
    kms_key: str | None = None
    access: str | None = None
    per: str | None = None


@dataclass(frozen=True, slots=True)
class Image:
    name: str | None = None
    approved: tuple[str, ...] = ()
    """Patterns as for file names; whatever image a server gets has to match one. Empty: any."""


@dataclass(frozen=True, slots=True)
class Idle:
    after: int
    """Seconds."""
    action: str = "pause"


@dataclass(frozen=True, slots=True)
class Settings:
    """One ``gke`` entry, as it was written; None where it does not say."""

    gpu: Gpu | None = None
    tpu: Tpu | None = None
    machine: Machine = field(default_factory=Machine)
    capacity: Capacity = field(default_factory=Capacity)
    home: Home | None = None
    ide: str | None = None
    pausable: bool | None = None
    post_checkpoint: str | None = None
    idle: Idle | None = None
    shm: str | None = None
    """A quantity, ``no``, or None for what fits."""
    zones: tuple[str, ...] = ()
    image: Image = field(default_factory=Image)
    groups: tuple[str, ...] | None = None
    priority_class: str | None = None


def parse(entry: str, raw: Any) -> tuple[Settings, tuple[Finding, ...]]:
    """Read one ``gke`` entry. What is wrong is found and left out; never raises."""
    reader = _Reader(entry)
    given = reader.mapping("gke", raw, KEYS)
    settings = Settings(
        gpu=reader.gpu(given.get("gpu")),
        tpu=reader.tpu(given.get("tpu")),
        machine=reader.machine(given.get("machine")),
        capacity=reader.capacity(given.get("capacity")),
        home=reader.home(given.get("home")),
        ide=reader.word("gke.ide", given.get("ide"), IDES),
        pausable=reader.pausable(given.get("pausable")),
        post_checkpoint=reader.word("gke.post_checkpoint", given.get("post_checkpoint"), ("resume", "stop")),
        idle=reader.idle(given.get("idle")),
        shm=reader.shm(given.get("shm")),
        zones=reader.texts("gke.zones", given.get("zones")) or (),
        image=reader.image(given.get("image")),
        groups=reader.texts("gke.groups", given.get("groups")),
        priority_class=reader.text("gke.priority_class", given.get("priority_class"), NAME),
    )
    return settings, tuple(reader.findings)


class _Reader:
    """Reads values, and collects what is wrong with them."""

    def __init__(self, entry: str) -> None:
        self.entry = entry
        self.findings: list[Finding] = []

    def wrong(self, key: str, what: str, mend: str = "", check: str = "schema") -> None:
        self.findings.append(Finding(self.entry, key, what, mend, check))

    # ------------------------------------------------------------ single values

    def mapping(self, key: str, value: Any, known: Sequence[str]) -> Mapping[str, Any]:
        """The mapping without what it should not have; None is an empty one."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.wrong(key, f"It is {shown(value)}, and has to be a mapping.", f"Its keys: {listed(known)}.")
            return {}
        for name in value:
            if name not in known:
                self.wrong(f"{key}.{name}", "There is no such key.", nearest(name, known))
        return {name: each for name, each in value.items() if name in known}

    def text(self, key: str, value: Any, form: re.Pattern[str] | None = None) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            self.wrong(key, f"It is {shown(value)}, and has to be a text.")
            return None
        if form is not None and not form.fullmatch(value):
            self.wrong(key, f"It is {shown(value)}, which Kubernetes or Google Cloud does not take as such a name.", _form(form))
            return None
        return value

    def needed(self, key: str, value: Any, form: re.Pattern[str] | None = None, mend: str = "") -> str | None:
        if value is None:
            self.wrong(key, "It is missing.", mend)
        return self.text(key, value, form)

    def number(self, key: str, value: Any, smallest: int = 1) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
            mend = f"Write {int(value)}." if isinstance(value, str) and value.isdecimal() and int(value) >= smallest else ""
            self.wrong(key, f"It is {shown(value)}, and has to be a whole number, at least {smallest}.", mend)
            return None
        return value

    def word(self, key: str, value: Any, known: Sequence[str]) -> str | None:
        if value is None:
            return None
        if value not in known or not isinstance(value, str):
            self.wrong(key, f"It is {shown(value)}.", nearest(value, known))
            return None
        return value

    def texts(self, key: str, value: Any) -> tuple[str, ...] | None:
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            mend = f"Write [{value!r}]." if isinstance(value, str) else ""
            self.wrong(key, f"It is {shown(value)}, and has to be a list of texts.", mend)
            return None
        found = [self.text(f"{key}[{number}]", each) for number, each in enumerate(value)]
        if not value:
            self.wrong(key, "It is an empty list.", "Leave it out, or name some.")
        return tuple(each for each in found if each is not None)

    def size(self, key: str, value: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or quantity(value) is None:
            self.wrong(key, f"It is {shown(value)}, and has to be a size with a unit.", "Write it like '100Gi'.")
            return None
        return value

    # ------------------------------------------------------------ the keys

    def gpu(self, value: Any) -> Gpu | None:
        if value is None:
            return None
        given = self.mapping("gke.gpu", value, ("type", "count", "node", "driver", "sharing"))
        kind = self.needed("gke.gpu.type", given.get("type"), mend="Write it like {'type': 'nvidia-l4', 'count': 1}.")
        count = self.number("gke.gpu.count", given.get("count"))
        node = self.number("gke.gpu.node", given.get("node"))
        driver = self.word("gke.gpu.driver", given.get("driver"), ("default", "latest"))
        sharing = self.sharing(given.get("sharing"))
        return None if kind is None else Gpu(kind, 1 if count is None else count, node, driver, sharing)

    def sharing(self, value: Any) -> Sharing | None:
        if value is None:
            return None
        key = "gke.gpu.sharing"
        given = self.mapping(key, value, ("strategy", "clients", "size"))
        strategy = self.word(f"{key}.strategy", given.get("strategy"), SHARING)
        if strategy is None:
            if given.get("strategy") is None:
                self.wrong(f"{key}.strategy", "It is missing.", f"Known: {listed(SHARING)}.")
            return None
        clients, size = self.number(f"{key}.clients", given.get("clients")), self.text(f"{key}.size", given.get("size"), LABEL)
        if clients is not None and clients not in CLIENTS:
            self.wrong(f"{key}.clients", f"It is {clients}.", f"From {CLIENTS[0]} to {CLIENTS[-1]} pods can share one GPU.", "count")
            clients = None
        if strategy == "mig":
            if given.get("size") is None:
                self.wrong(f"{key}.size", "It is missing: the part of a GPU that a server gets.")
            if clients is not None:
                self.wrong(f"{key}.clients", "A part of a GPU (MIG) is for one pod.", "Leave it out.")
        elif size is not None:
            self.wrong(f"{key}.size", f"There are no parts with {strategy}.", "Leave it out, or write strategy: mig.")
        return Sharing(strategy, clients, size)

    def tpu(self, value: Any) -> Tpu | None:
        if value is None:
            return None
        given = self.mapping("gke.tpu", value, ("type", "topology", "chips"))
        kind = self.needed("gke.tpu.type", given.get("type"), mend="Write it like {'type': 'v5e', 'topology': '2x2'}.")
        topology = self.needed("gke.tpu.topology", given.get("topology"), mend="Write it like '2x2'.")
        chips = self.number("gke.tpu.chips", given.get("chips"))
        return None if kind is None or topology is None else Tpu(kind, topology, chips)

    def machine(self, value: Any) -> Machine:
        given = self.mapping("gke.machine", value, ("family", "cpu_platform"))
        return Machine(
            self.text("gke.machine.family", given.get("family")), self.text("gke.machine.cpu_platform", given.get("cpu_platform"))
        )

    def capacity(self, value: Any) -> Capacity:
        """A word, or a mapping of one word to its settings."""
        key = "gke.capacity"
        if value is None:
            return Capacity()
        settings: Any = None
        if isinstance(value, Mapping):
            if len(value) != 1:
                self.wrong(key, f"It has {len(value)} choices ({listed(value)}), and has to have one.", check="capacity")
                return Capacity()
            ((value, settings),) = value.items()
        if value not in CAPACITIES or not isinstance(value, str):
            self.wrong(key, f"It is {shown(value)}.", nearest(value, CAPACITIES), "capacity")
            return Capacity()
        if isinstance(settings, str) and "name" in CAPACITY_KEYS.get(value, ()):
            settings = {"name": settings}
        where = f"{key}.{value}"
        given = self.mapping(where, settings, CAPACITY_KEYS.get(value, ()))
        return Capacity(
            value,
            name=self.text(f"{where}.name", given.get("name"), LABEL),
            project=self.text(f"{where}.project", given.get("project"), LABEL),
            affinity=self.word(f"{where}.affinity", given.get("affinity"), ("specific", "any")),
            max_run=self.number(f"{where}.max_run", given.get("max_run")),
        )

    def home(self, value: Any) -> Home | None:
        if value is None:
            return None
        given = self.mapping("gke.home", value, ("size", "storage_class", "kms_key", "access", "per"))
        return Home(
            self.size("gke.home.size", given.get("size")),
            self.text("gke.home.storage_class", given.get("storage_class"), NAME),
            self.text("gke.home.kms_key", given.get("kms_key"), KMS_KEY),
            self.word("gke.home.access", given.get("access"), ACCESS),
            self.word("gke.home.per", given.get("per"), ("server", "user")),
        )

    def pausable(self, value: Any) -> bool | None:
        """``auto`` or ``no``; YAML makes a boolean of the latter."""
        if value is None or isinstance(value, bool):
            return value
        found = self.word("gke.pausable", value, ("auto", "no"))
        return None if found is None else found == "auto"

    def idle(self, value: Any) -> Idle | None:
        if value is None:
            return None
        given = self.mapping("gke.idle", value, ("after", "action"))
        after = self.number("gke.idle.after", given.get("after"), 60)
        if given.get("after") is None:
            self.wrong("gke.idle.after", "It is missing: the seconds without work.", "Write it like {'after': 3600, 'action': 'pause'}.")
        action = self.word("gke.idle.action", given.get("action"), ("pause", "stop"))
        return None if after is None else Idle(after, action or "pause")

    def shm(self, value: Any) -> str | None:
        if value is False or value == "no":
            return "no"
        return None if value == "auto" else self.size("gke.shm", value)

    def image(self, value: Any) -> Image:
        if isinstance(value, str):
            return Image(self.text("gke.image", value))
        given = self.mapping("gke.image", value, ("name", "approved"))
        return Image(
            self.text("gke.image.name", given.get("name")),
            self.texts("gke.image.approved", given.get("approved")) or (),
        )


def _form(form: re.Pattern[str]) -> str:
    if form is KMS_KEY:
        return "Write the key's full name: projects/.../locations/.../keyRings/.../cryptoKeys/..."
    return "Letters, digits, '-', '_' and '.', at most 63." if form is LABEL else "Small letters, digits, '-' and '.'."
