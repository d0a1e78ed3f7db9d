"""The steps of a resume: wait for room, restore, take the proof, let clients in; and what else ends a pause.

No step here deletes a snapshot on the way to ``running`` and none says so before the proof. Whatever goes wrong leads back to
``paused`` with the reason, or to ``unproven`` when a server is up that is not the paused process.
"""

from __future__ import annotations

from dataclasses import replace

from . import proof, receipt
from .model import Attempt, Clocks, Move, Pause, SnapshotManifest, SnapshotState, Want, Workspace
from .phases import Call, Intent, Phase
from .ports import Absent, Ports, Restored, Signal
from .reasons import Conflict, Lost, Refused, TryLater
from .steps import (
    cancelled,
    check,
    explained,
    marked,
    must_do,
    of_another_life,
    pause_of,
    server_of,
    unless_cancelled,
    without,
)

PROVED = "proved"

ASK_HUB_AGAIN = 5.0
"""Seconds between two times that the Hub is asked to begin the start of a resume that has found room."""


# ---------------------------------------------------------------- what a call commits


def begin_resume(workspace: Workspace, now: float, hub_boot: str) -> Move:
    """The move that begins a resume; it consumes the intent that asked for it."""
    must_do(workspace, Call.START, Phase.PAUSED)
    pause = pause_of(workspace)
    clocks = replace(pause.clocks, resume_asked=now, capacity_found=None, process_back=None, first_cell=None)
    pause = replace(explained(pause, None), clocks=clocks, attempt=Attempt(hub_boot, now), receipt=None)
    return Move(Phase.WAITING, pause=pause, intent=Intent.NONE)


def begin_fresh(workspace: Workspace, now: float) -> Move:
    """The move with which a cold start ends a pause: the snapshot stays, superseded, until discarded or expired."""
    must_do(workspace, Call.FRESH, Phase.PAUSED)
    shelf = marked(workspace.shelf, pause_of(workspace).snapshot_id, SnapshotState.SUPERSEDED)
    return Move(Phase.RUNNING, shelf=shelf, intent=Intent.NONE, ends_pause=True)


def begin_cold(workspace: Workspace) -> Move | None:
    """The move of a server that its user stops, or starts anew: its last pause is not its own any more. ``None`` without one."""
    if workspace.phase is not Phase.RUNNING or workspace.pause is None:
        return None
    return Move(Phase.RUNNING, intent=Intent.NONE, ends_pause=True)


def fall_back(workspace: Workspace, now: float, detail: str = "") -> Move | None:
    """The move of a server that ended by itself: paused again, with the snapshot that proved itself last; ``None`` without one.

    Sound as any resume is, if the snapshot is of this very server (its manifest names the owner and lineage, which the caller compares)
    and its tokens are there: no other process of that lineage lives, and the proof is the same as when it was resumed before. What
    it cannot bring back is the time since then, which the reason says.
    """
    kept = max((s for s in workspace.shelf if s.state is SnapshotState.CURRENT), key=lambda s: s.created, default=None)
    if workspace.phase is not Phase.RUNNING or kept is None:
        return None
    last = workspace.pause if workspace.pause is not None and workspace.pause.snapshot_id == kept.id else None
    pause = replace(last or Pause(kept.pause_id, snapshot_id=kept.id), clocks=Clocks(durable=kept.created, freed=now))
    return back_to_paused(replace(workspace, pause=pause), "ended_by_itself", detail)


def begin_discard(workspace: Workspace, now: float, code: str = "discarded") -> Move:
    """The move that begins the deletion of the paused state; ``code`` says who wants it (``discarded``, ``expired``)."""
    must_do(workspace, Call.DISCARD, Phase.PAUSED)
    return Move(Phase.DELETING, pause=explained(pause_of(workspace), code), intent=Intent.NONE)


def accept(workspace: Workspace) -> Move:
    """The move that keeps the fresh server; the snapshot stays, unproven, until discarded or expired."""
    must_do(workspace, Call.ACCEPT, Phase.UNPROVEN)
    return Move(Phase.RUNNING, intent=Intent.NONE, ends_pause=True)


def retry(workspace: Workspace) -> Move:
    """Remember a retry: the drive ends the unproven server, and the snapshot is restored again once it is paused."""
    must_do(workspace, Call.RETRY, Phase.UNPROVEN)
    return Move(Phase.UNPROVEN, intent=Intent.RETRY)


def interrupted(workspace: Workspace, code: str = "resume_stopped") -> Move:
    """What the spawner's ``stop`` commits when it ends a resume or an unproven server: back to paused, the snapshot stays.

    Whoever commits it has removed the server and suspended its tokens. A retry that was asked for stays asked for.
    """
    check(workspace, Call.STOP)
    if workspace.phase not in (Phase.WAITING, Phase.RESTORING, Phase.UNPROVEN):
        raise Conflict("phase_conflict", f"stop in {workspace.phase.value}")
    before = pause_of(workspace)
    if workspace.phase is Phase.RESTORING and before.reason:
        code = before.reason
    elif workspace.intent is Intent.CANCEL:
        code = "cancelled"
    move = back_to_paused(workspace, code, before.detail if code == before.reason else "")
    return replace(move, intent=Intent.RETRY) if workspace.phase is Phase.UNPROVEN and workspace.intent is Intent.RETRY else move


def back_to_paused(workspace: Workspace, code: str, detail: str = "") -> Move:
    """The snapshot stays; the reason says why it is paused (again)."""
    pause = replace(explained(pause_of(workspace), code, detail), attempt=None, receipt=None)
    return Move(Phase.PAUSED, pause=pause, intent=Intent.NONE)


# ---------------------------------------------------------------- steps


async def waiting(ports: Ports, workspace: Workspace) -> Move | None:
    """Wait until a restore fits, and until the Hub has a start under way that it is part of.

    A wait may last for hours, so it is no part of a start of the Hub, of which there may be few at a time: the Hub's start steps out
    when there is no room at once, and is begun anew from here when there is.
    """
    pause, server, key = pause_of(workspace), server_of(workspace), workspace.key
    if of_another_life(ports, pause):
        return await give_up(ports, workspace, "hub_restarted")
    manifest, launch = None, None
    until = workspace.phase_since + ports.limits.waiting
    hub_not_before, hub_said = 0.0, Want("busy")
    while True:
        if cancelled(ports, workspace):
            return await give_up(ports, workspace, "cancelled")
        want, can_ask = None, True
        try:
            ports.hub.check_rights(key)
            if manifest is None:
                manifest = await _manifest(ports, workspace)
            if launch is None and ports.engine.abilities.reserves:
                can_ask = ports.hub.starting(key)  # what to put in line is rendered inside of a start alone: an outage may have passed it
                if can_ask:
                    ports.store.note_progress(key, None, None)
                    launch = ports.engine.launch(manifest, await ports.hub.plain_launch(key))
            if can_ask:
                want = await ports.engine.capacity(server, manifest, launch)
        except TryLater as error:  # an outage is waited out like any other want of room
            want = Want(error.code, error.detail)
        if want is None and can_ask and ports.hub.starting(key):  # no await from here to the commit: the start may step out at any other
            clocks = replace(pause.clocks, capacity_found=ports.clock.time())
            return Move(Phase.RESTORING, pause=replace(pause, clocks=clocks))
        if want is None and ports.clock.time() >= hub_not_before:
            hub_not_before = ports.clock.time() + ASK_HUB_AGAIN
            try:
                await unless_cancelled(ports, workspace, ports.hub.begin(key))
                continue  # that may have taken a while: look again whether the room is still there
            except TryLater as error:
                hub_said = Want(error.code, error.detail)
        want = want or hub_said
        if ports.clock.time() >= until:
            return await give_up(ports, workspace, want.code, want.detail)
        ports.store.note_progress(key, None, want)
        await ports.clock.sleep(ports.limits.capacity_poll)


async def restoring(ports: Ports, workspace: Workspace) -> Move | None:
    """Start the restore and take the proof; once that is persisted, wait until the Hub lets clients in.

    Three entries, told apart by the record: a reason is set (it was given up: remove), the proof was given (finish), neither.
    """
    pause = pause_of(workspace)
    if pause.reason:
        await remove(ports, workspace)
        return await _paused_again(ports, workspace, pause.reason, pause.detail)
    proved = _proved(workspace)
    if of_another_life(ports, pause) and not (proved and await _still_the_restored(ports, workspace)):
        return await give_up(ports, workspace, "hub_restarted")
    if proved:
        return await _let_in(ports, workspace)
    return await _restore(ports, workspace)


async def unproven(ports: Ports, workspace: Workspace) -> Move | None:
    """Nothing, until somebody chooses, or the server is gone."""
    server = server_of(workspace)
    wants_retry = workspace.intent is Intent.RETRY
    if not wants_retry and await ports.engine.alive(server):
        return None
    await ports.hub.stop(workspace.key)
    await remove(ports, workspace)
    await ports.hub.suspend_tokens(workspace.key)
    now = ports.store.read(workspace.key)
    if now.phase is not Phase.UNPROVEN:
        raise Conflict("phase_conflict", "the Hub's stop moved it")
    return replace(interrupted(workspace), intent=Intent.RETRY if wants_retry else Intent.NONE)


async def deleting(ports: Ports, workspace: Workspace) -> Move | None:
    """Delete the bytes of the paused state; afterwards it is an ordinary stopped server."""
    snapshot_id = pause_of(workspace).snapshot_id
    if snapshot_id is not None:
        await ports.engine.delete(snapshot_id)
    return Move(Phase.RUNNING, shelf=without(workspace.shelf, snapshot_id), intent=Intent.NONE, ends_pause=True)


async def give_up(ports: Ports, workspace: Workspace, code: str, detail: str = "") -> Move | None:
    """Back to paused. What may have been started is first marked as given up, so that a kill cannot start it again.

    A server that has proved itself is not given up for an outage: its user may work in it already.
    """
    if workspace.phase is Phase.WAITING:
        if ports.engine.abilities.reserves:
            await remove(ports, workspace)
        return await _paused_again(ports, workspace, code, detail)
    if pause_of(workspace).reason or (code == "cluster_unreachable" and _proved(workspace)):
        return None
    return Move(Phase.RESTORING, pause=explained(pause_of(workspace), code, detail))


async def _paused_again(ports: Ports, workspace: Workspace, code: str, detail: str = "") -> Move:
    """Back to paused with tokens powerless again: the Hub made them work when it began the start."""
    await ports.hub.suspend_tokens(workspace.key)
    return back_to_paused(workspace, code, detail)


async def remove(ports: Ports, workspace: Workspace) -> None:
    """End whatever runs of that server and see it gone. Raises :class:`~.reasons.TryLater` when it is not."""
    await ports.engine.remove(server_of(workspace))
    if await ports.engine.alive(server_of(workspace)):
        raise TryLater("stop_unfinished")


# ---------------------------------------------------------------- halves of a restore


async def _restore(ports: Ports, workspace: Workspace) -> Move | None:
    """First half: from today's rights to the verdict."""
    key, pause, server = workspace.key, pause_of(workspace), server_of(workspace)
    if cancelled(ports, workspace):
        return await give_up(ports, workspace, "cancelled")
    manifest = await _manifest(ports, workspace)
    plain = await ports.hub.plain_launch(key)
    spec = ports.engine.launch(manifest, plain)
    if not ports.engine.abilities.reserves and await ports.engine.alive(server):  # of a broken-off attempt: never two of one lineage
        await remove(ports, workspace)
    await unless_cancelled(ports, workspace, ports.hub.launch(key, spec, manifest))
    _stands(ports, workspace)
    deadline = ports.clock.time() + ports.limits.restore
    answer = await unless_cancelled(ports, workspace, _ask_guest(ports, workspace, deadline))
    signal = await _signal(ports, workspace, manifest, answer, deadline)
    _stands(ports, workspace)
    if cancelled(ports, workspace):
        return await give_up(ports, workspace, "cancelled")
    if signal == Signal.GONE or (signal not in (Signal.RESTORED, Signal.LATE) and not await ports.engine.alive(server)):
        return await give_up(ports, workspace, "restore_failed", "it ended by itself")
    verdict = proof.judge(manifest.identity or pause.identity, answer, signal)
    pause = replace(pause, clocks=replace(pause.clocks, process_back=ports.clock.time()))
    told = receipt.make(workspace, pause, manifest, verdict, answer, await ports.engine.aids(server))
    if not verdict.proved:
        shelf = marked(workspace.shelf, pause.snapshot_id, SnapshotState.UNPROVEN)
        pause = replace(explained(pause, verdict.reasons[0], "; ".join(verdict.details)), receipt=told, attempt=None)
        return Move(Phase.UNPROVEN, pause=pause, shelf=shelf, intent=Intent.NONE)
    attempt = replace(pause.attempt or Attempt(ports.hub_boot, ports.clock.time()), proof=PROVED)
    return Move(Phase.RESTORING, pause=replace(pause, attempt=attempt, receipt=told))


async def _let_in(ports: Ports, workspace: Workspace) -> Move | None:
    """Second half: the proof is persisted; the Hub has to call the server ready."""
    pause = pause_of(workspace)
    if not await ports.hub.routed(workspace.key, ports.limits.routed):
        if cancelled(ports, workspace):
            return await give_up(ports, workspace, "cancelled")
        return await give_up(ports, workspace, "hub_restarted" if of_another_life(ports, pause) else "not_routed")
    shelf = marked(workspace.shelf, pause.snapshot_id, SnapshotState.CURRENT)
    return Move(Phase.RUNNING, pause=replace(explained(pause, None), attempt=None), shelf=shelf, intent=Intent.NONE)


async def _signal(ports: Ports, workspace: Workspace, manifest: SnapshotManifest, answer: Restored | Absent, deadline: float) -> str:
    """The engine's evidence. One that is late is waited for only where there is no other."""
    server = server_of(workspace)
    while True:
        signal = await ports.engine.signal(server, manifest)
        if signal != Signal.LATE or not isinstance(answer, Absent) or ports.clock.time() >= deadline:
            return signal
        if cancelled(ports, workspace):
            return signal
        await ports.clock.sleep(ports.limits.capacity_poll)


async def _ask_guest(ports: Ports, workspace: Workspace, deadline: float) -> Restored | Absent:
    try:
        return await ports.guest.restored(workspace.key, pause_of(workspace).id, deadline)
    except Refused as error:
        if error.code == "guest_unreachable":
            raise TryLater("restore_timeout", error.detail) from error
        raise


def _proved(workspace: Workspace) -> bool:
    attempt = pause_of(workspace).attempt
    return attempt is not None and attempt.proof == PROVED


async def _still_the_restored(ports: Ports, workspace: Workspace) -> bool:
    """After a restart of the Hub: whether what runs is the very restore that proved itself."""
    server = server_of(workspace)
    if not await ports.engine.alive(server):
        return False
    return await ports.engine.signal(server, await _manifest(ports, workspace)) in (Signal.RESTORED, Signal.LATE)


async def _manifest(ports: Ports, workspace: Workspace) -> SnapshotManifest:
    """The verified manifest of the open pause's snapshot, of this owner and this server and no other."""
    pause = pause_of(workspace)
    if pause.snapshot_id is None:
        raise Lost("snapshot_gone")
    manifest = await ports.engine.manifest(pause.snapshot_id)
    if manifest is None:
        raise Lost("snapshot_gone")
    if (manifest.snapshot_id, manifest.pause_id) != (pause.snapshot_id, pause.id) or manifest.owner != workspace.owner:
        raise Refused("snapshot_changed", "the snapshot belongs to another server or pause")
    return manifest


def _stands(ports: Ports, workspace: Workspace) -> None:
    """Raises :class:`~.reasons.Conflict` when somebody moved the phase while this step waited."""
    if ports.store.read(workspace.key).phase is not workspace.phase:
        raise Conflict("phase_conflict")
