"""What is known of GKE's hardware, disks and ways to get machines: the data files beside this one, and what an admin adds to them.

Minimum versions and Preview states move: they are told, never a reason to refuse.
"""

from __future__ import annotations

import dataclasses
import datetime
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from .findings import Finding, nearest, shown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN = "c.GKEWorkspaceSpawner.catalogue"
"""How the admin's own rows are called in findings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What every row has."""

    name: str
    source: tuple[str, ...] = ("admin",)
    """Keys of ``sources.toml``."""
    date: datetime.date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator(Row):
    """What GPU and TPU types have in common."""

    words: str
    series: tuple[str, ...]
    disks: str = "unsure"
    also: tuple[str, ...] = ()
    memory_gb: int | None = None
    arch: str = "amd64"
    shapes: tuple[tuple[int, ...], ...] = ()
    sandbox: str = "unlisted"
    needs: str | None = None
    preview: bool = False

    def largest(self, devices: int) -> tuple[int, int]:
        """(vCPU, GB of memory) of the largest machine with so many devices; 0 where it is not known."""
        return next(((shape[1], shape[2]) for shape in self.shapes if shape[0] == devices), (0, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType(Accelerator):
    counts: tuple[int, ...]
    snapshot: str = "unsure"
    mig: Mapping[str, int] = field(default_factory=dict)
    retired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TpuType(Accelerator):
    label: str
    dimensions: int
    chips: tuple[int, ...]
    topologies: tuple[str, ...]
    largest_slice: int = 0
    """Chips of the largest slice of three dimensions."""
    flex_start: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Series(Row):
    disks: str = "unsure"
    arch: str = "amd64"
    pausable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClass(Row):
    disk: str
    words: str = ""
    binding: str = "consumer"
    smallest: str | None = None
    own_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityKind(Row):
    words: str
    wait: int = 0
    shortest: int = 0
    longest: int = 0


R = TypeVar("R", bound=Row)


@dataclass(frozen=True, slots=True)
class Table(Generic[R]):
    """Rows by name, found by any name that they have."""

    rows: Mapping[str, R]

    def get(self, name: str) -> R | None:
        """The row of that name, or with that other name or label; exactly."""
        found = self.rows.get(name)
        return found or next((row for row in self.rows.values() if name in getattr(row, "also", ())), None)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that is right, also short ones."""
        return tuple(name for row in self.rows.values() for name in (row.name, *getattr(row, "also", ())))


TABLES: Mapping[str, type[Row]] = {
    "gpus": GpuType,
    "tpus": TpuType,
    "machines": Series,
    "disks": StorageClass,
    "capacities": CapacityKind,
}
"""The data files, and what a row of each is. An admin's mapping has the same keys."""
WORDS: Mapping[str, tuple[str, ...]] = {
    "disks": ("pd", "hyperdisk", "both", "unsure"),
    "disk": ("pd", "hyperdisk", "filestore", "other"),
    "binding": ("consumer", "at_once"),
    "sandbox": ("yes", "preview", "unlisted", "no"),
    "snapshot": ("all", "one", "none", "unsure"),
    "arch": ("amd64", "arm64"),
}
"""Fields that have one of a few words."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All tables."""

    gpus: Table[GpuType]
    tpus: Table[TpuType]
    machines: Table[Series]
    disks: Table[StorageClass]
    capacities: Table[CapacityKind]


@cache
def data(name: str) -> dict[str, Any]:
    """A file of data beside this one, parsed."""
    parsed = tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))
    return {str(key): value for key, value in parsed.items()}


@cache
def built_in() -> Catalogue:
    """The data files as they are."""
    catalogue, findings = catalogue_with({})
    assert not findings, findings
    return catalogue


def catalogue_with(extension: Any) -> tuple[Catalogue, tuple[Finding, ...]]:
    """The data files with an admin's rows: a row of a known name changes the fields that it gives, another name is a new row.

    What is wrong with a row is found, and the row left as it was.
    """
    findings: list[Finding] = []
    if not isinstance(extension, Mapping):
        findings.append(_wrong("", f"It is {shown(extension)}, and has to be a mapping of tables."))
        extension = {}
    findings += [_wrong(str(name), "There is no such table.", nearest(name, TABLES)) for name in extension if name not in TABLES]
    tables = {name: _table(name, kind, extension.get(name) or {}, findings) for name, kind in TABLES.items()}
    return Catalogue(**tables), tuple(findings)


def _table(name: str, kind: type[Row], own: Any, findings: list[Finding]) -> Any:
    rows = {key: dict(row) for key, row in data(name).items()}
    made = {key: _row(kind, key, row) for key, row in rows.items()}
    if not isinstance(own, Mapping):
        findings.append(_wrong(name, f"It is {shown(own)}, and has to be a mapping of rows."))
        return Table(made)
    for key, given in own.items():
        where = f"{name}.{key}"
        against = list(_against(kind, where, given))
        if not against:
            whole = {**rows.get(key, {}), **given}
            missing = [each.name for each in _fields(kind) if _needed(each) and each.name not in whole]
            against = [_wrong(where, f"A new row needs {each!r}.") for each in missing]
            if not missing:
                made[str(key)] = _row(kind, str(key), whole)
        findings += against
    return Table(made)


def _against(kind: type[Row], where: str, given: Any) -> Iterator[Finding]:
    if not isinstance(given, Mapping):
        yield _wrong(where, f"It is {shown(given)}, and has to be a mapping of fields.")
        return
    hints = get_type_hints(kind)
    names = [each.name for each in _fields(kind)]
    for key, value in given.items():
        if key not in names:
            yield _wrong(f"{where}.{key}", "There is no such field.", nearest(key, names))
        elif not _fits(value, hints[key]):
            yield _wrong(f"{where}.{key}", f"It is {shown(value)}, which is of the wrong type.")
        elif key in WORDS and value not in WORDS[key]:
            yield _wrong(f"{where}.{key}", f"It is {shown(value)}.", nearest(value, WORDS[key]))
        elif key == "shapes" and any(len(shape) != 3 for shape in value):
            yield _wrong(f"{where}.{key}", "Each of them has three numbers: devices, vCPU, GB of memory.")


def _row(kind: type[Row], name: str, given: Mapping[str, Any]) -> Row:
    return kind(name=name, **{key: _frozen(value) for key, value in given.items()})


def _fields(kind: type[Row]) -> list[dataclasses.Field[Any]]:
    return [each for each in dataclasses.fields(kind) if each.name != "name"]


def _needed(one: dataclasses.Field[Any]) -> bool:
    return one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, (list, tuple)) else value


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value from TOML or Python is of that type, lists being taken for tuples."""
    origin = get_origin(hint)
    if origin is types.UnionType:
        return any(_fits(value, each) for each in get_args(hint))
    if origin is tuple:
        return isinstance(value, (list, tuple)) and all(_fits(each, get_args(hint)[0]) for each in value)
    if hint is not bool and isinstance(value, bool):
        return False
    if origin is not None:
        return isinstance(value, Mapping) and all(_fits(each, get_args(hint)[1]) for each in value.values())
    return isinstance(value, hint)


def _wrong(key: str, what: str, mend: str = "") -> Finding:
    return Finding(OWN, key or "the mapping", what, mend)
