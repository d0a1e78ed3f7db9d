"""Where a server is, which way it may go, and how every call is answered there: data, no code that acts.

The table of moves, each persisted before the action that it announces::

    running -> preparing -> checkpointing -> saved -> stopping -> paused
    preparing | checkpointing | saved -> running      failure, timeout, cancel: the server goes on
    paused -> waiting -> restoring -> running         proof given
    waiting | restoring -> paused                     nothing lost, reason kept
    restoring -> unproven                             a server is up but is not the paused process
    running -> paused                                 the server ended by itself: back to the snapshot that proved itself last
    unproven -> running                               accept: keep the fresh server
    unproven -> paused                                retry, or the server went away: the snapshot is still there
    paused -> running                                 start fresh: the snapshot is superseded, not deleted
    paused -> deleting -> running                     discard, retention; "running" with nothing behind it = an ordinary
                                                      stopped server of the Hub without an open record
    stopping -> paused                                durable and removed
    stopping -> running                               as for "saved": found running on, after a Hub that was down for longer than
                                                      the freeze lasts

``saved -> running`` exists because a save that is durable but whose freeze was broken must never be followed by a removal
(the snapshot is thrown away and the server goes on).

:data:`CALLS` answers every call in every phase; handlers, the spawner, pages and the docs read the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class Phase(str, Enum):
    """The phase of a workspace; the value is what the record and REST say."""

    RUNNING = "running"
    PREPARING = "preparing"
    CHECKPOINTING = "checkpointing"
    SAVED = "saved"
    STOPPING = "stopping"
    PAUSED = "paused"
    WAITING = "waiting"
    RESTORING = "restoring"
    UNPROVEN = "unproven"
    DELETING = "deleting"


class Intent(str, Enum):
    """What is asked next; the drive takes it up in the first phase in which it fits."""

    NONE = "none"
    CANCEL = "cancel"
    RESUME = "resume"
    """Resume as soon as the pause that is under way has ended."""
    FRESH = "fresh"
    RETRY = "retry"
    ACCEPT = "accept"
    DISCARD = "discard"


MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.RUNNING: frozenset({Phase.PREPARING, Phase.PAUSED}),
    Phase.PREPARING: frozenset({Phase.CHECKPOINTING, Phase.RUNNING}),
    Phase.CHECKPOINTING: frozenset({Phase.SAVED, Phase.RUNNING}),
    Phase.SAVED: frozenset({Phase.STOPPING, Phase.RUNNING}),
    Phase.STOPPING: frozenset({Phase.PAUSED, Phase.RUNNING}),
    Phase.PAUSED: frozenset({Phase.WAITING, Phase.RUNNING, Phase.DELETING}),
    Phase.WAITING: frozenset({Phase.RESTORING, Phase.PAUSED}),
    Phase.RESTORING: frozenset({Phase.RUNNING, Phase.UNPROVEN, Phase.PAUSED}),
    Phase.UNPROVEN: frozenset({Phase.RUNNING, Phase.PAUSED}),
    Phase.DELETING: frozenset({Phase.RUNNING}),
}
"""From -> to. A move that keeps the phase (new clocks, a proof) is always allowed."""

PAUSE_UNDER_WAY = frozenset({Phase.PREPARING, Phase.CHECKPOINTING, Phase.SAVED, Phase.STOPPING})
RESUME_UNDER_WAY = frozenset({Phase.WAITING, Phase.RESTORING})
OPEN = frozenset(Phase) - {Phase.RUNNING}
"""Phases in which the record decides; in RUNNING the Hub's own state does."""


class Call(str, Enum):
    """What people, programs and the Hub ask for."""

    START = "start"
    STOP = "stop"
    PAUSE = "pause"
    CANCEL = "cancel"
    FRESH = "fresh"
    RETRY = "retry"
    ACCEPT = "accept"
    DISCARD = "discard"
    DELETE = "delete"
    """The server (or its user) is removed from the Hub."""
    RENAME = "rename"


class Outcome(str, Enum):
    """How a call is answered."""

    DO = "do"
    """The phase moves (or, in ``running``, the Hub acts as it always does)."""
    JOIN = "join"
    """What is asked for is under way or done: the same record is answered, nothing is done twice."""
    REMEMBER = "remember"
    """Kept as the workspace's intent; the drive takes it up. A removal is kept by the Hub itself, which waits for the pause's end."""
    REFUSE = "refuse"
    """Answered with a reason code and its status; nothing changes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One cell of :data:`CALLS`."""

    outcome: Outcome
    note: str = ""
    """What happens, for the docs."""
    intent: Intent = Intent.NONE
    """What the workspace remembers (for REMEMBER, and for a DO that the Hub's own start carries out)."""
    reason: str = ""
    """Code of :mod:`.reasons` (for REFUSE)."""


def _do(note: str, intent: Intent = Intent.NONE) -> Answer:
    return Answer(Outcome.DO, note, intent)


def _join(note: str) -> Answer:
    return Answer(Outcome.JOIN, note)


def _remember(intent: Intent, note: str) -> Answer:
    return Answer(Outcome.REMEMBER, note, intent)


def _no(reason: str) -> Answer:
    return Answer(Outcome.REFUSE, reason=reason)


def _row(
    *, running: Answer, saving: Answer, stopping: Answer, paused: Answer, resuming: Answer, unproven: Answer, deleting: Answer
) -> Mapping[Phase, Answer]:
    """A row of the table: preparing, checkpointing and saved answer alike, and so do waiting and restoring."""
    return MappingProxyType(
        {
            Phase.RUNNING: running,
            Phase.PREPARING: saving,
            Phase.CHECKPOINTING: saving,
            Phase.SAVED: saving,
            Phase.STOPPING: stopping,
            Phase.PAUSED: paused,
            Phase.WAITING: resuming,
            Phase.RESTORING: resuming,
            Phase.UNPROVEN: unproven,
            Phase.DELETING: deleting,
        }
    )


_PAUSING = _no("pause_under_way")
_RESUMING = _no("resume_under_way")
_DISCARDING = _no("discard_under_way")
_UNPROVEN = _no("unproven")
_REMOVED_LATER = "when it is paused, or its pause has come to nothing, the Hub removes it, and its snapshots are deleted with it"

CALLS: Mapping[Call, Mapping[Phase, Answer]] = MappingProxyType(
    {
        Call.START: _row(
            running=_do("the Hub's ordinary cold start"),
            saving=_remember(Intent.RESUME, "resumes as soon as it is paused"),
            stopping=_remember(Intent.RESUME, "resumes as soon as it is paused"),
            paused=_do("resume"),
            resuming=_join("the resume that is under way; while it waits for room it comes back by itself"),
            unproven=_UNPROVEN,
            deleting=_DISCARDING,
        ),
        Call.STOP: _row(
            running=_do("the Hub's ordinary stop"),
            saving=_PAUSING,
            stopping=_join("the pause's own stop"),
            paused=_join("there is nothing to stop; the snapshot stays"),
            resuming=_do("back to paused; the snapshot stays"),
            unproven=_do("the server goes; back to paused, the snapshot stays"),
            deleting=_join("there is nothing to stop"),
        ),
        Call.PAUSE: _row(
            running=_do("pause"),
            saving=_join("the pause that is under way"),
            stopping=_join("the pause that is under way"),
            paused=_join("it is paused"),
            resuming=_RESUMING,
            unproven=_UNPROVEN,
            deleting=_DISCARDING,
        ),
        Call.CANCEL: _row(
            running=_no("nothing_to_cancel"),
            saving=_remember(Intent.CANCEL, "the server goes on"),
            stopping=_no("too_late_to_cancel"),
            paused=_no("nothing_to_cancel"),
            resuming=_remember(Intent.CANCEL, "back to paused; the snapshot stays"),
            unproven=_UNPROVEN,
            deleting=_DISCARDING,
        ),
        Call.FRESH: _row(
            running=_no("not_paused"),
            saving=_PAUSING,
            stopping=_PAUSING,
            paused=_do("cold start; the snapshot is kept as superseded", Intent.FRESH),
            resuming=_RESUMING,
            unproven=_UNPROVEN,
            deleting=_DISCARDING,
        ),
        Call.RETRY: _row(
            running=_no("not_unproven"),
            saving=_PAUSING,
            stopping=_PAUSING,
            paused=_no("not_unproven"),
            resuming=_RESUMING,
            unproven=_do("the server goes and the snapshot is restored again", Intent.RETRY),
            deleting=_DISCARDING,
        ),
        Call.ACCEPT: _row(
            running=_no("not_unproven"),
            saving=_PAUSING,
            stopping=_PAUSING,
            paused=_no("not_unproven"),
            resuming=_RESUMING,
            unproven=_do("keeps the fresh server; the snapshot is kept until discarded or expired"),
            deleting=_DISCARDING,
        ),
        Call.DISCARD: _row(
            running=_do("deletes the kept snapshot of that pause"),
            saving=_PAUSING,
            stopping=_PAUSING,
            paused=_do("deletes the snapshot; the server is an ordinary stopped one"),
            resuming=_RESUMING,
            unproven=_UNPROVEN,
            deleting=_join("the discard that is under way"),
        ),
        Call.DELETE: _row(
            running=_do("its snapshots are deleted with it"),
            saving=_remember(Intent.NONE, _REMOVED_LATER),
            stopping=_remember(Intent.NONE, _REMOVED_LATER),
            paused=_do("its snapshots are deleted with it"),
            resuming=_do("stopped first; its snapshots are deleted with it"),
            unproven=_do("stopped first; its snapshots are deleted with it"),
            deleting=_do("its snapshots are deleted with it"),
        ),
        Call.RENAME: _row(
            running=_do("the Hub's own rename"),
            saving=_no("rename_paused"),
            stopping=_no("rename_paused"),
            paused=_no("rename_paused"),
            resuming=_no("rename_paused"),
            unproven=_no("rename_paused"),
            deleting=_no("rename_paused"),
        ),
    }
)
"""Call -> phase -> answer. No cell is missing."""

ENDED_BY_SAVE: Mapping[Call, Mapping[Phase, Answer]] = MappingProxyType(
    {Call.CANCEL: MappingProxyType(dict.fromkeys((Phase.CHECKPOINTING, Phase.SAVED), _no("too_late_to_cancel")))}
)
"""The cells that are other ones where the save itself ends the server: from its begin on there is no server to go back to."""


def answer_of(call: Call, phase: Phase, *, ended_by_save: bool = False) -> Answer:
    """How the call is answered in that phase."""
    return (ENDED_BY_SAVE.get(call, {}).get(phase) if ended_by_save else None) or CALLS[call][phase]


def calls_markdown() -> str:
    """The table for the docs: a row per phase, a column per call; and what is answered otherwise where the save ends the server."""
    lines = ["| phase | " + " | ".join(call.value for call in Call) + " |", "|---" * (len(Call) + 1) + "|"]
    for phase in Phase:
        cells = [_cell(CALLS[call][phase]) for call in Call]
        lines.append(f"| {phase.value} | " + " | ".join(cells) + " |")
    lines += ["", 'Where the save itself ends the server (`post_checkpoint = "stop"` on GKE), other answers are given to:', ""]
    lines += [f"- {call.value} in {phase.value}: {_cell(cell)}" for call, row in ENDED_BY_SAVE.items() for phase, cell in row.items()]
    return "\n".join(lines) + "\n"


def _cell(answer: Answer) -> str:
    return f"no: `{answer.reason}`" if answer.outcome is Outcome.REFUSE else f"**{answer.outcome.value}**: {answer.note}"
