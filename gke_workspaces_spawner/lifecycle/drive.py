"""One driver, one step a phase; recovery is the same call.

A step runs only in a phase that is already persisted, observes before it acts, and is harmless when it runs twice. So whoever is
killed between any two lines here finds its way from the record and from what the engine reports, by calling :func:`drive` again.

A step that raises takes the phase's way back (:data:`WAYS_BACK`), which is persisted like any other move. Phases without one
(stopping, deleting) can only go forward: the error reaches the caller, who drives again later.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from . import pausing, resuming, retention
from .model import Intent, Key, Move, SnapshotRef, Workspace
from .phases import PAUSE_UNDER_WAY, Call, Phase
from .ports import Ports
from .reasons import Conflict, LifecycleError, Refused
from .steps import must_do, server_of, without

log = logging.getLogger(__name__)

Step = Callable[[Ports, Workspace], Awaitable[Move | None]]
"""Observe; act only if absent; return the move, or ``None`` when there is nothing to do before somebody asks. Never writes."""

WayBack = Callable[[Ports, Workspace, str, str], Awaitable[Move | None]]
"""Takes a reason code and a detail; ``None`` when this way was tried already."""

STEPS: dict[Phase, Step] = {
    Phase.PREPARING: pausing.preparing,
    Phase.CHECKPOINTING: pausing.checkpointing,
    Phase.SAVED: pausing.saved,
    Phase.STOPPING: pausing.stopping,
    Phase.WAITING: resuming.waiting,
    Phase.RESTORING: resuming.restoring,
    Phase.UNPROVEN: resuming.unproven,
    Phase.DELETING: resuming.deleting,
}

WAYS_BACK: dict[Phase, WayBack] = {
    Phase.PREPARING: pausing.give_up,
    Phase.CHECKPOINTING: pausing.give_up,
    Phase.SAVED: pausing.give_up,
    Phase.WAITING: resuming.give_up,
    Phase.RESTORING: resuming.give_up,
}


async def drive(ports: Ports, key: Key) -> Workspace:
    """Drive a workspace until it stands still; after every accepted call, from poll, at Hub start.

    Returns the workspace as it is then. Raises :class:`~.reasons.LifecycleError` (or what a port raised) when a phase could not be
    left and has no way back; nothing is lost by that, and the same call may work later.
    """
    async with ports.store.exclusive(key):
        workspace = ports.store.read(key)
        while step := STEPS.get(workspace.phase):
            move = await _take(step, ports, workspace)
            if move is None:
                break
            try:
                workspace = ports.store.commit(workspace, move)
            except Conflict:
                workspace = await _moved_on(ports, workspace)
        return workspace


async def follow_up(ports: Ports, key: Key) -> bool:
    """Carry out what was asked for "as soon as it is paused"; call it after :func:`drive`, outside of the lock.

    True when a start was handed to the Hub. A start that is refused leaves the workspace paused with the reason, and is not
    tried again; one that may work later keeps the intent.
    """
    workspace = ports.store.read(key)
    if workspace.phase is not Phase.PAUSED or workspace.intent not in (Intent.RESUME, Intent.RETRY, Intent.FRESH):
        return False
    try:
        await ports.hub.start(key, workspace.intent is Intent.FRESH)
    except (Refused, Conflict) as error:
        now = ports.store.read(key)
        if now.phase is Phase.PAUSED:
            ports.store.commit(now, resuming.back_to_paused(now, error.code, error.detail))
        return False
    return True


async def retain(ports: Ports, key: Key) -> tuple[str, ...]:
    """Let go what retention no longer holds; returns the ids whose bytes are gone. Harmless at any time.

    The bytes go first, then the record: a kill in between repeats a deletion, and never forgets one.
    """
    async with ports.store.exclusive(key):
        workspace = ports.store.read(key)
        if retention.paused_state_expired(workspace, ports.clock.time()):
            ports.store.commit(workspace, resuming.begin_discard(workspace, ports.clock.time(), "expired"))
            gone = None
        else:
            now, limits = ports.clock.time(), ports.limits
            gone = retention.may_go(workspace, now, limits.keep_last, limits.release_after)
            if gone and not await ports.engine.settled(server_of(workspace)):
                gone = retention.expired(gone, now)
    if gone is not None:
        return await _delete_kept(ports, key, gone)
    await drive(ports, key)
    left = {s.id for s in ports.store.read(key).shelf}
    return tuple(s.id for s in workspace.shelf if s.id not in left)


async def discard_kept(ports: Ports, key: Key, pause_id: str) -> tuple[str, ...]:
    """Delete the kept snapshots of a pause that is over (superseded, unproven and accepted, or proved).

    Raises :class:`~.reasons.Conflict` while a pause is open, and ``Conflict('wrong_pause')`` when none of that pause is kept.
    """
    async with ports.store.exclusive(key):
        workspace = ports.store.read(key)
        must_do(workspace, Call.DISCARD, Phase.RUNNING)
        kept = tuple(s for s in workspace.shelf if s.pause_id == pause_id)
        if not kept:
            raise Conflict("wrong_pause")
    return await _delete_kept(ports, key, kept)


async def purge(ports: Ports, key: Key) -> None:
    """Delete every snapshot of a server that is removed from the Hub and runs no more.

    Raises :class:`~.reasons.Conflict` in the middle of a pause: the Hub waits for its end before it removes anything.
    """
    async with ports.store.exclusive(key):
        workspace = ports.store.read(key)
        if workspace.phase in PAUSE_UNDER_WAY:
            raise Conflict("pause_under_way")
        for snapshot in workspace.shelf:
            await ports.engine.delete(snapshot.id)
        if workspace.phase in (Phase.WAITING, Phase.RESTORING, Phase.UNPROVEN):
            await resuming.remove(ports, workspace)
            workspace = ports.store.commit(workspace, resuming.interrupted(workspace))
        if workspace.phase is Phase.PAUSED:
            workspace = ports.store.commit(workspace, resuming.begin_discard(workspace, ports.clock.time()))
        ports.store.commit(workspace, Move(Phase.RUNNING, shelf=(), intent=Intent.NONE, ends_pause=True))


async def _delete_kept(ports: Ports, key: Key, snapshots: tuple[SnapshotRef, ...]) -> tuple[str, ...]:
    """Outside of the lock: a deletion may be stuck for minutes, and no pause is to wait for that of a snapshot that nobody needs."""
    for snapshot in snapshots:
        await ports.engine.delete(snapshot.id)
        async with ports.store.exclusive(key):
            now = ports.store.read(key)
            ports.store.commit(now, Move(now.phase, shelf=without(now.shelf, snapshot.id)))
    return tuple(s.id for s in snapshots)


async def _take(step: Step, ports: Ports, workspace: Workspace) -> Move | None:
    """The step's move, or its phase's way back."""
    try:
        return await step(ports, workspace)
    except Conflict as error:
        if ports.store.read(workspace.key).phase is not workspace.phase:
            return Move(workspace.phase)  # its commit is refused, which leads to _moved_on
        code, detail, failure = error.code, error.detail, error
    except LifecycleError as error:
        code, detail, failure = error.code, error.detail, error  # type: ignore[assignment]
        log.warning("%s of %s: %s", workspace.phase.value, workspace.key, error)
    except Exception as error:  # a port broke its contract: the user's session must still find its way back
        code, detail, failure = "internal", f"{type(error).__name__}", error  # type: ignore[assignment]
        log.exception("%s of %s failed", workspace.phase.value, workspace.key)
    way_back = WAYS_BACK.get(workspace.phase)
    move = await way_back(ports, workspace, code, detail) if way_back else None
    if move is None:
        raise failure
    return move


async def _moved_on(ports: Ports, before: Workspace) -> Workspace:
    """Somebody (a stop during a resume) moved the phase meanwhile: nothing that the step started may stay."""
    now = ports.store.read(before.key)
    if before.phase is Phase.RESTORING and now.phase in (Phase.PAUSED, Phase.WAITING):
        await resuming.remove(ports, now)
        await ports.hub.suspend_tokens(before.key)
    return now
