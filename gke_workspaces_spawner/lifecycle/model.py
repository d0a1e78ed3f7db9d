"""The records: what the Hub keeps per server, and what lies beside the bytes of a snapshot.

All of it is immutable, JSON in and out, versioned. Times are seconds since the epoch (UTC, float); sizes are bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from .codec import decode, encode, parse
from .phases import Intent as Intent
from .phases import Phase
from .reasons import Broken

Json = Any
"""A value that ``json.dumps`` takes."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Names a server of the Hub: the user's name and the server's name (``""`` is the default server)."""

    user: str
    server: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who a snapshot belongs to; names are reused, these are not."""

    user_id: int
    lineage: str
    """128 random bits, hex; new at every cold start, kept by a resume."""


class SnapshotState(str, Enum):
    CURRENT = "current"
    SUPERSEDED = "superseded"
    UNPROVEN = "unproven"
    PINNED = "pinned"


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of one pause and its resume, in the order in which they are set; ``None`` = not yet."""

    last_work: float | None = None
    pause_asked: float | None = None
    frozen: float | None = None
    durable: float | None = None
    freed: float | None = None
    node_free: float | None = None
    resume_asked: float | None = None
    capacity_found: float | None = None
    process_back: float | None = None
    first_cell: float | None = None


@dataclass(frozen=True, slots=True)
class KernelProcess:
    """A kernel as the server extension saw it in /proc inside the sandbox."""

    kernel_id: str
    pid: int
    started: float
    """Start time of the process, in seconds since the sandbox's boot (field 22 of /proc/PID/stat / ticks)."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """What only the paused process can have: a random boot id made in the server's memory, and its kernels."""

    boot_id: str
    server_pid: int
    kernels: tuple[KernelProcess, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """One snapshot on a workspace's shelf."""

    id: str
    pause_id: str
    state: SnapshotState
    bytes: int
    created: float
    expires: float | None
    parent: str | None = None
    digest: str = ""
    """sha256 of the manifest beside the bytes, hex."""


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """Beside the bytes, written with them (one rename, one Secret); holds no token."""

    snapshot_id: str
    pause_id: str
    key: Key
    owner: Owner
    engine: str
    created: float
    bytes: int
    launch: Mapping[str, Json]
    """Engine's own: what a restore needs (spec of the sandbox or the pod, the runsc digest)."""
    open_files: tuple[Mapping[str, Json], ...] = ()
    identity: Identity | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a pause or a resume by one life of the Hub."""

    hub_boot: str
    since: float
    proof: str | None = None
    """For a restore: ``proved`` once the proof was given (the Hub's own route may still be under way)."""


@dataclass(frozen=True, slots=True)
class Pause:
    """One pause, from the press of the button to the end of its resume."""

    id: str
    clocks: Clocks = field(default_factory=Clocks)
    identity: Identity | None = None
    attempt: Attempt | None = None
    reason: str | None = None
    """Code of :mod:`reasons` that explains the last outcome that was not wished for."""
    detail: str = ""
    snapshot_id: str | None = None
    receipt: Mapping[str, Json] | None = None
    facts: Mapping[str, Json] | None = None
    """What the extension said before the pause: names of notebooks, kernels, terminals, what will not come back."""
    frozen_by: str | None = None
    """What keeps the user's processes still, where the engine does not: ``guest``, the server extension, which has to say so again before
    a removal; ``save``, which ends them."""
    deadline: float | None = None
    """Wall clock by which the save has to be durable; ``None``: ``Limits.pause`` after the attempt began."""


@dataclass(frozen=True, slots=True)
class Want:
    """What is lacking for a restore to begin."""

    code: str
    """The reason code, whose sentence is for everybody."""
    detail: str = ""
    """What the machine or the cluster says of it, for who asks; empty when it says nothing more."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A server with its phase, its intent and its shelf of snapshots."""

    key: Key
    owner: Owner
    phase: Phase = Phase.RUNNING
    revision: int = 0
    intent: Intent = Intent.NONE
    pause: Pause | None = None
    shelf: tuple[SnapshotRef, ...] = ()
    phase_since: float = 0.0
    waits_for: Want | None = None
    """What a resume waits for at this moment; never persisted."""
    progress: float | None = None
    """0..1 within the phase, where known; never persisted on its own account."""

    def snapshot(self, snapshot_id: str | None) -> SnapshotRef | None:
        """The snapshot of that id on the shelf."""
        return next((s for s in self.shelf if s.id == snapshot_id), None)


@dataclass(frozen=True, slots=True)
class Move:
    """What a step returns: the next phase and what changes with it. Only the store writes it."""

    to: Phase
    pause: Pause | None = None
    """The pause as it is from now on; ``None`` keeps it."""
    shelf: tuple[SnapshotRef, ...] | None = None
    intent: Intent | None = None
    owner: Owner | None = None
    ends_pause: bool = False
    """True when nothing of the pause is left (discarded, accepted)."""


def apply(workspace: Workspace, move: Move, now: float) -> Workspace:
    """The workspace after a move; the revision grows by one."""
    return replace(
        workspace,
        phase=move.to,
        revision=workspace.revision + 1,
        intent=workspace.intent if move.intent is None else move.intent,
        pause=None if move.ends_pause else (move.pause or workspace.pause),
        shelf=workspace.shelf if move.shelf is None else move.shelf,
        owner=move.owner or workspace.owner,
        phase_since=workspace.phase_since if move.to is workspace.phase else now,
        progress=None if move.to is not workspace.phase else workspace.progress,
        waits_for=None if move.to is not workspace.phase else workspace.waits_for,
    )


# ---------------------------------------------------------------- JSON

VERSION = 1
"""Of both records. It grows only when an older program would misread what is written; new fields alone never need it."""

RECORD_LIMIT = 16 * 1024
"""Bytes of a workspace's JSON, as written by ``json.dumps``: the Hub's column holds 64 KiB on MySQL, and others share it."""

_BULKY = (("facts",), ("receipt", "repaired"), ("receipt", "before"), ("identity", "kernels"), ("receipt",))
"""What of a pause gives way, in this order, when a record would grow too big. Identity stays whole in the snapshot's manifest."""


def to_json(workspace: Workspace) -> dict[str, Json]:
    """The record as JSON, below :data:`RECORD_LIMIT`; what user code can blow up gives way first."""
    record = {"version": VERSION, **encode(replace(workspace, progress=None, waits_for=None))}
    for path in _BULKY:
        if len(json.dumps(record)) < RECORD_LIMIT:
            break
        parent = record.get("pause") or {}
        for name in path[:-1]:
            parent = parent.get(name) or {}
        parent.pop(path[-1], None)
    return record


def from_json(value: Json) -> Workspace:
    """The workspace of a record (parsed, or the text of one). Raises ``Broken('record_unreadable')``."""
    workspace: Workspace = decode(Workspace, upgrade(value))
    if workspace.phase is not Phase.RUNNING and workspace.pause is None:
        raise Broken("record_unreadable", f"no pause in {workspace.phase.value}")
    return workspace


def manifest_to_json(manifest: SnapshotManifest) -> dict[str, Json]:
    """The manifest as JSON."""
    return {"version": VERSION, **encode(manifest)}


def manifest_from_json(value: Json) -> SnapshotManifest:
    """The manifest of its JSON (parsed, or text). Raises ``Broken('record_unreadable')``."""
    manifest: SnapshotManifest = decode(SnapshotManifest, upgrade(value), "manifest")
    return manifest


def upgrade(value: Json) -> dict[str, Json]:
    """A record of any version up to this one, as this version writes it. Raises ``Broken`` for newer ones."""
    record = parse(value) if isinstance(value, (str, bytes)) else value
    if not isinstance(record, dict):
        raise Broken("record_unreadable", "no object")
    version = record.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise Broken("record_unreadable", "no version")
    if version > VERSION:
        raise Broken("record_unreadable", f"version {version} is newer than {VERSION}")
    return record
