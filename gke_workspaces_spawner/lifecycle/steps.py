"""What the steps of a pause and of a resume share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from .model import Pause, SnapshotRef, SnapshotState, Workspace
from .phases import Answer, Call, Intent, Outcome, Phase, answer_of
from .ports import Ports, Server
from .reasons import Broken, Conflict, Refused

T = TypeVar("T")

DETAIL_LIMIT = 500
"""Characters of a detail that the record keeps."""


GUEST, SAVE = "guest", "save"
"""Values of ``Pause.frozen_by``."""


def answered(workspace: Workspace, call: Call) -> Answer:
    """The table's answer to a call, also where it says no."""
    return answer_of(call, workspace.phase, ended_by_save=workspace.pause is not None and workspace.pause.frozen_by == SAVE)


def check(workspace: Workspace, call: Call) -> Answer:
    """The table's answer to a call; raises :class:`Conflict` with the reason where it says no."""
    answer = answered(workspace, call)
    if answer.outcome is Outcome.REFUSE:
        raise Conflict(answer.reason, f"{call.value} in {workspace.phase.value}")
    return answer


def must_do(workspace: Workspace, call: Call, phase: Phase) -> None:
    """The call begins something in that phase and no other; raises :class:`Conflict`."""
    check(workspace, call)
    if workspace.phase is not phase:
        raise Conflict("phase_conflict", f"{call.value} in {workspace.phase.value}")


def remembered(workspace: Workspace, answer: Answer) -> Intent:
    """The intent to store for an answer: a cancel that is under way is not turned into anything else."""
    if answer.outcome is Outcome.REMEMBER and workspace.intent is Intent.CANCEL:
        return Intent.CANCEL
    return answer.intent


def names_pause(workspace: Workspace, pause_id: str) -> None:
    """A call that names a pause must not hit another one; raises ``Conflict('wrong_pause')``."""
    if workspace.pause is None or workspace.pause.id != pause_id:
        raise Conflict("wrong_pause")


def server_of(workspace: Workspace) -> Server:
    """The server as an engine knows it."""
    return Server(workspace.key, workspace.owner)


def pause_of(workspace: Workspace) -> Pause:
    """The open pause; a record without one in an open phase is broken."""
    if workspace.pause is None:
        raise Broken("record_unreadable", f"no pause in {workspace.phase.value}")
    return workspace.pause


def of_another_life(ports: Ports, pause: Pause) -> bool:
    """Whether the attempt was begun by a Hub that is gone: what it had in its hands is unknown."""
    return pause.attempt is None or pause.attempt.hub_boot != ports.hub_boot


def cancelled(ports: Ports, workspace: Workspace) -> bool:
    """Whether a cancel is recorded by now."""
    return ports.store.read(workspace.key).intent is Intent.CANCEL


def explained(pause: Pause, code: str | None, detail: str = "") -> Pause:
    """The pause with the reason for its last outcome."""
    return replace(pause, reason=code, detail=detail[:DETAIL_LIMIT])


def without(shelf: tuple[SnapshotRef, ...], snapshot_id: str | None) -> tuple[SnapshotRef, ...]:
    """The shelf without that snapshot."""
    return tuple(s for s in shelf if s.id != snapshot_id)


def marked(shelf: tuple[SnapshotRef, ...], snapshot_id: str | None, state: SnapshotState) -> tuple[SnapshotRef, ...]:
    """The shelf with that snapshot in that state; a pinned one stays pinned."""
    return tuple(replace(s, state=state) if s.id == snapshot_id and s.state is not SnapshotState.PINNED else s for s in shelf)


async def unless_cancelled(ports: Ports, workspace: Workspace, work: Coroutine[Any, Any, T]) -> T:
    """Await ``work``; a cancel that is recorded meanwhile ends it and raises ``Refused('cancelled')``."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(ports.store.asked(workspace.key))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and not cancelled(ports, workspace):
            await asyncio.wait({task})
        if task.done():
            return task.result()
        raise Refused("cancelled")
    finally:
        for each in (task, watch):
            each.cancel()
        await asyncio.wait({task, watch})
        if not task.cancelled():
            task.exception()  # seen: whoever cancelled does not want to know
