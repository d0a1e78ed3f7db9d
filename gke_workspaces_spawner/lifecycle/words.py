"""What pages say and offer, derived from the record and the table of calls: no page computes a rule of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .model import Json, Workspace
from .phases import Answer, Call, Intent, Outcome, Phase
from .reasons import reason
from .steps import answered, check

ONLY_FRESH = frozenset({"snapshot_gone", "snapshot_changed", "token_revoked"})
"""Reasons after which a resume cannot work any more."""

_OFFERS: tuple[tuple[str, Call], ...] = (
    ("resume", Call.START),
    ("pause", Call.PAUSE),
    ("cancel", Call.CANCEL),
    ("retry", Call.RETRY),
    ("accept", Call.ACCEPT),
    ("fresh", Call.FRESH),
    ("discard", Call.DISCARD),
    ("stop", Call.STOP),
)
"""What a page may offer, in the order of its buttons."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence about a workspace: whole, and as values for a page that renders times and sizes itself."""

    text: str
    code: str
    """Names the sentence: ``phase_PHASE``, or ``failed`` where the reason of the last outcome is what counts."""
    values: Mapping[str, Json] = field(default_factory=dict)


def call_answer(call: Call | str, workspace: Workspace) -> Answer:
    """The table's answer to a call. Raises :class:`~.reasons.Conflict` with the reason where it refuses."""
    return check(workspace, Call(call))


def actions(workspace: Workspace) -> tuple[str, ...]:
    """What a person can do now. In ``running`` the Hub knows whether the server is up; this speaks of one that is."""
    offered = []
    for name, call in _OFFERS:
        answer = answered(workspace, call)
        if answer.outcome not in (Outcome.DO, Outcome.REMEMBER):
            continue
        if name == "resume" and not _may_resume(workspace):
            continue
        if answer.outcome is Outcome.REMEMBER and workspace.intent in (answer.intent, Intent.CANCEL):
            continue
        if name == "discard" and workspace.phase is Phase.RUNNING:
            continue  # kept snapshots are discarded one by one, each by its own id
        offered.append(name)
    return tuple(offered)


def _may_resume(workspace: Workspace) -> bool:
    if workspace.phase is Phase.RUNNING:
        return False
    return not (workspace.phase is Phase.PAUSED and workspace.pause is not None and workspace.pause.reason in ONLY_FRESH)


def sentence(workspace: Workspace, now: float) -> str:
    """One sentence (or two) for a person; ``now`` is the wall clock, for ages."""
    return describe(workspace, now).text


def describe(workspace: Workspace, now: float) -> Sentence:
    """The same with the values in it: ``since`` (seconds since the epoch), ``age`` (seconds), ``bytes``, ``kernels``, ``progress``."""
    snapshot = workspace.snapshot(workspace.pause.snapshot_id) if workspace.pause else None
    facts = (workspace.pause.facts if workspace.pause else None) or {}
    kernels = facts.get("kernels")
    count = len(kernels) if isinstance(kernels, (list, tuple)) else _kernels_of_identity(workspace)
    code = workspace.pause.reason if workspace.pause else None
    values: dict[str, Json] = {
        "since": workspace.phase_since,
        "age": max(0.0, now - workspace.phase_since),
        "bytes": snapshot.bytes if snapshot else None,
        "kernels": count,
        "progress": workspace.progress,
        "reason": code,
    }
    text = reason(f"phase_{workspace.phase.value}").sentence
    if workspace.phase is Phase.PAUSED:
        text = f"Paused for {age(values['age'])}{f' ({size(snapshot.bytes)})' if snapshot else ''}."
        if code in ONLY_FRESH:
            text += f" {reason(code).sentence}"
        else:
            text += f" Resume brings {_kernels(count)} back." if count else ""
            text += f" {reason(code).sentence}" if code else ""
    elif workspace.phase is Phase.RUNNING and code:
        return Sentence(f"Running. The last pause did not succeed: {reason(code).sentence}", "failed", values)
    elif workspace.phase is Phase.UNPROVEN and code:
        text = reason(code).sentence
    elif workspace.phase in (Phase.CHECKPOINTING, Phase.RESTORING) and workspace.progress is not None and not code:
        text = f"{text[:-1]} ({round(100 * workspace.progress)} %)."
    elif workspace.phase is Phase.WAITING and workspace.waits_for:
        text += f" {reason(workspace.waits_for.code).sentence}"
    elif workspace.phase is Phase.RESTORING and code:
        text = f"Going back to paused: {reason(code).sentence}"
    if workspace.intent is Intent.CANCEL:
        text += " It is being cancelled."
    elif workspace.intent is Intent.RESUME:
        text += " It resumes as soon as it is paused."
    return Sentence(text, f"phase_{workspace.phase.value}", values)


def _kernels_of_identity(workspace: Workspace) -> int:
    return len(workspace.pause.identity.kernels) if workspace.pause and workspace.pause.identity else 0


def _kernels(count: int) -> str:
    return "1 kernel" if count == 1 else f"{count} kernels"


def size(count: int) -> str:
    """Bytes for people, in decimal units as disks are sold."""
    number = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit in ("B", "kB") else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def age(seconds: float) -> str:
    """A time span for people, in its two largest units at most."""
    minutes = int(seconds // 60)
    if minutes < 1:
        return "less than a minute"
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min"
