"""The steps of a pause: prepare, checkpoint, make sure that it stands still, stop.

The order that loses nothing: freeze -> save with the server left alive -> durable -> remove. Until ``stopping`` is persisted every
failure leads back to a running server; a snapshot is thrown away only after the server that it was taken of was seen to go on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from .codec import decode, encode
from .model import Attempt, Clocks, Identity, Json, Move, Pause, SnapshotRef, SnapshotState, Workspace
from .phases import Call, Intent, Phase
from .ports import Absent, Estimate, Failed, Freeze, Nothing, Observation, Ports, Prepared, Saved, SaveRequest, Saving
from .reasons import Broken, Conflict, LifecycleError, Refused, TryLater, table
from .receipt import claims
from .steps import GUEST, SAVE, cancelled, explained, must_do, of_another_life, pause_of, server_of, without

log = logging.getLogger(__name__)


def snapshot_id_of(pause_id: str) -> str:
    """The id of the snapshot that a pause makes: every external name derives from the pause's id."""
    return f"s-{pause_id}"


def begin_pause(
    workspace: Workspace,
    now: float,
    pause_id: str,
    hub_boot: str,
    *,
    facts: Mapping[str, Json] | None = None,
    last_work: float | None = None,
) -> Move:
    """The move that begins a pause. ``pause_id``: letters, digits and ``-``; new and unguessable.

    Raises :class:`~.reasons.Conflict` where the table of calls does not begin a pause.
    """
    must_do(workspace, Call.PAUSE, Phase.RUNNING)
    pause = Pause(
        pause_id,
        clocks=Clocks(last_work=last_work, pause_asked=now),
        attempt=Attempt(hub_boot, now),
        snapshot_id=snapshot_id_of(pause_id),
        facts=claims(facts) if facts else None,
    )
    return Move(Phase.PREPARING, pause=pause, intent=Intent.NONE)


# ---------------------------------------------------------------- steps


async def preparing(ports: Ports, workspace: Workspace) -> Move | None:
    """Take the server off the route and let its extension flush and close; nothing is frozen for good yet."""
    pause, server = pause_of(workspace), server_of(workspace)
    if of_another_life(ports, pause):
        return await give_up(ports, workspace, "hub_restarted")
    if cancelled(ports, workspace):
        return await give_up(ports, workspace, "cancelled")
    estimate = await ports.engine.estimate(server, pause.facts or {})
    if estimate.refusal:
        return await give_up(ports, workspace, estimate.refusal, estimate.detail)
    facts = {**(pause.facts or {}), "not_returning": list(estimate.will_not_return)}
    if estimate.seconds_limit > ports.limits.pause:
        pause = replace(pause, deadline=_begun(workspace) + estimate.seconds_limit)
    await ports.hub.unroute(workspace.key)
    answer = await _prepare(ports, replace(workspace, pause=pause), estimate)
    pause = replace(pause, frozen_by=SAVE if not ports.engine.abilities.freezes and estimate.freeze == Freeze.NONE else None)
    if isinstance(answer, Absent):
        if not ports.engine.abilities.freezes and estimate.freeze == Freeze.NEEDED:
            return await give_up(ports, workspace, "guest_absent")
        return Move(Phase.CHECKPOINTING, pause=replace(pause, facts=claims(facts)))
    if answer.blockers:
        first = answer.blockers[0]
        return await give_up(ports, workspace, first if first in table() else "guest_refused", "; ".join(answer.blockers))
    try:
        identity: Identity = decode(Identity, encode(answer.identity), "identity")
    except Broken as error:
        return await give_up(ports, workspace, "guest_refused", error.detail)
    pause = replace(
        pause, identity=identity, frozen_by=GUEST if answer.frozen else pause.frozen_by, facts=claims({**answer.facts, **facts})
    )
    return Move(Phase.CHECKPOINTING, pause=pause)


async def _prepare(ports: Ports, workspace: Workspace, estimate: Estimate) -> Prepared | Absent:
    """Ask the server extension; where the engine does not freeze, it has to, for as long as the whole save may take.

    Raises ``Refused('freeze_unavailable')`` for an extension that answers and does not freeze.
    """
    key, pause, now = workspace.key, pause_of(workspace), ports.clock.time()
    if ports.engine.abilities.freezes:
        return await ports.guest.prepare(key, pause.id, now + ports.limits.prepare)
    end = _deadline(ports, workspace) + ports.limits.confirm_frozen
    if estimate.freeze != Freeze.NONE:
        try:
            answer = await ports.guest.prepare(key, pause.id, end, end - now)
            if isinstance(answer, Absent) or answer.blockers or answer.frozen:
                return answer
            raise Refused("freeze_unavailable", "the server extension is too old for it")
        except Refused as error:
            if estimate.freeze == Freeze.NEEDED or error.code not in ("freeze_unavailable", "freeze_incomplete"):
                raise
    return await ports.guest.prepare(key, pause.id, end)


async def checkpointing(ports: Ports, workspace: Workspace) -> Move | None:
    """Start the save or join it, and wait until it is durable."""
    pause, server = pause_of(workspace), server_of(workspace)
    deadline = _deadline(ports, workspace)
    observation = await ports.engine.observe(server, pause.id)
    if isinstance(observation, Nothing):
        if of_another_life(ports, pause):
            return await give_up(ports, workspace, "hub_restarted")
        if cancelled(ports, workspace):
            return await give_up(ports, workspace, "cancelled")
        launch = await ports.hub.plain_launch(workspace.key)
        await ports.engine.save(
            server,
            SaveRequest(pause.id, snapshot_id_of(pause.id), deadline, ports.limits.confirm_frozen, identity=pause.identity, launch=launch),
        )
    while True:
        if cancelled(ports, workspace):
            return await give_up(ports, workspace, "cancelled")
        observation = await _observe(ports, workspace, observation)
        if isinstance(observation, Saved):
            return _saved(ports, workspace, observation)
        if isinstance(observation, Failed):
            return await give_up(ports, workspace, observation.reason, observation.detail)
        if ports.clock.time() > deadline and not await _may_still_be_stored(ports, workspace, deadline):
            return await give_up(ports, workspace, "save_timeout")
        if isinstance(observation, Saving):
            ports.store.note_progress(workspace.key, observation.fraction)
        await ports.clock.sleep(ports.limits.poll)


async def _may_still_be_stored(ports: Ports, workspace: Workspace, deadline: float) -> bool:
    """A server that ended with its save is nothing to go back to: what is being stored of it gets as long again before it is lost."""
    ended = pause_of(workspace).frozen_by == SAVE and not await ports.engine.alive(server_of(workspace))
    return ended and ports.clock.time() <= deadline + (deadline - _begun(workspace))


async def saved(ports: Ports, workspace: Workspace) -> Move | None:
    """The last moment to go back: only a server that stood still since the save, and will until it is removed, may be removed."""
    if not cancelled(ports, workspace) and not await _stands_still(ports, workspace):
        return await give_up(ports, workspace, "freeze_broken")
    if cancelled(ports, workspace):
        return await give_up(ports, workspace, "cancelled")
    return Move(Phase.STOPPING)


async def stopping(ports: Ports, workspace: Workspace) -> Move | None:
    """The Hub's own stop; paused only when nothing of the server is left and its tokens are powerless."""
    pause, server = pause_of(workspace), server_of(workspace)
    if await ports.engine.alive(server) and not await _stands_still(ports, workspace):
        try:
            await ports.hub.route(workspace.key)
        except Conflict:
            pause = explained(pause, "ran_on")
        else:
            return await give_up(ports, workspace, "freeze_broken")
    await ports.hub.stop(workspace.key)
    if await ports.engine.alive(server):
        await ports.engine.remove(server)
        if await ports.engine.alive(server):
            raise TryLater("stop_unfinished")
    await ports.hub.suspend_tokens(workspace.key)
    pause = replace(pause, clocks=replace(pause.clocks, freed=ports.clock.time()), attempt=None)
    wanted = ports.store.read(workspace.key).intent
    return Move(Phase.PAUSED, pause=pause, intent=wanted if wanted is Intent.RESUME else Intent.NONE)


async def _stands_still(ports: Ports, workspace: Workspace) -> bool:
    """Whether nothing of the user's ran since the save, nor will until the server is removed: the engine's word, and that of the server
    extension where it is the one that holds a server which is still there."""
    pause, server, seconds = pause_of(workspace), server_of(workspace), ports.limits.confirm_frozen
    if not await ports.engine.confirm_frozen(server, pause.id, seconds):
        return False
    if pause.frozen_by != GUEST or not await ports.engine.alive(server):
        return True
    end = ports.clock.time() + ports.limits.prepare
    while True:
        try:
            return await ports.guest.frozen(workspace.key, pause.id, seconds)
        except Refused as error:
            if error.code != "guest_unreachable" or ports.clock.time() >= end:
                log.warning("The server extension of %s does not say that it holds the server: %s", workspace.key, error)
                return False
        await ports.clock.sleep(ports.limits.poll)
        if not await ports.engine.alive(server):  # it ended while it stood still
            return True


def _deadline(ports: Ports, workspace: Workspace) -> float:
    """Wall clock by which the save has to be durable."""
    return pause_of(workspace).deadline or _begun(workspace) + ports.limits.pause


def _begun(workspace: Workspace) -> float:
    attempt = pause_of(workspace).attempt
    return attempt.since if attempt is not None else workspace.phase_since


# ---------------------------------------------------------------- the way back


async def give_up(ports: Ports, workspace: Workspace, code: str, detail: str = "") -> Move | None:
    """The server goes on as if nothing had happened; where it is gone, what was saved of it is kept.

    The order matters: let it go on, see it alive, let clients in, and only then throw the snapshot away, which may take minutes.
    """
    pause, server = pause_of(workspace), server_of(workspace)
    await ports.engine.thaw(server, pause.id)
    if not await ports.engine.alive(server):
        return await _server_gone(ports, workspace, code, detail)
    try:
        await ports.guest.thaw(workspace.key, pause.id)
    except LifecycleError as error:  # what prepare closed and stopped is a lease that ends by itself
        log.warning("Could not tell the server extension of %s that its pause is off: %s", workspace.key, error)
    await _let_clients_in(ports, workspace)
    shelf = await _throw_away(ports, workspace)
    await _let_clients_in(ports, workspace)  # once more: the Hub itself takes away routes of what it calls pending
    return Move(Phase.RUNNING, pause=explained(replace(pause, attempt=None), code, detail), shelf=shelf, intent=Intent.NONE)


async def _let_clients_in(ports: Ports, workspace: Workspace) -> None:
    try:
        await ports.hub.route(workspace.key)
    except Conflict as error:  # whoever took the server's row from the Hub meanwhile decides what becomes of it
        log.error("The server of %s goes on, but the Hub does not know it any more: %s", workspace.key, error)


async def _server_gone(ports: Ports, workspace: Workspace, code: str, detail: str) -> Move:
    """A server that ended by itself: a complete snapshot of it is all that is left, and becomes a pause."""
    pause = pause_of(workspace)
    if workspace.phase is Phase.SAVED or workspace.phase is Phase.STOPPING:
        return Move(Phase.STOPPING, pause=explained(pause, "server_ended", code))
    if workspace.phase is Phase.CHECKPOINTING:
        observation = await ports.engine.observe(server_of(workspace), pause.id)
        if isinstance(observation, Saved):
            return _saved(ports, workspace, observation)
    return Move(
        Phase.RUNNING,
        pause=explained(replace(pause, attempt=None), "server_lost", f"{code}: {detail}" if detail else code),
        intent=Intent.NONE,
    )


async def _throw_away(ports: Ports, workspace: Workspace) -> tuple[SnapshotRef, ...]:
    """Delete the snapshot of the pause that is off; one that cannot be deleted now stays on the shelf, expired."""
    pause, now = pause_of(workspace), ports.clock.time()
    if workspace.phase is Phase.PREPARING:
        return workspace.shelf
    snapshot_id = snapshot_id_of(pause.id)
    kept = workspace.snapshot(snapshot_id)
    if workspace.phase is Phase.STOPPING and kept is not None:
        return (*without(workspace.shelf, snapshot_id), replace(kept, state=SnapshotState.SUPERSEDED))
    try:
        await ports.engine.delete(snapshot_id)
    except LifecycleError as error:
        log.warning("Could not delete the snapshot of the pause of %s that is off: %s", workspace.key, error)
        if kept is not None:
            return (*without(workspace.shelf, snapshot_id), replace(kept, state=SnapshotState.SUPERSEDED, expires=now))
    return without(workspace.shelf, snapshot_id)


async def _observe(ports: Ports, workspace: Workspace, before: Observation) -> Observation:
    """What the engine sees of the save; a moment in which it cannot say changes nothing."""
    try:
        return await ports.engine.observe(server_of(workspace), pause_of(workspace).id)
    except TryLater as error:
        log.info("No word of the save of %s yet: %s", workspace.key, error)
        return before


def _saved(ports: Ports, workspace: Workspace, save: Saved) -> Move:
    """The move to ``saved``, with the snapshot on the shelf."""
    pause = pause_of(workspace)
    parent = max(workspace.shelf, key=lambda s: s.created, default=None)
    expires = None if ports.limits.expires is None else save.durable_at + ports.limits.expires
    reference = SnapshotRef(
        snapshot_id_of(pause.id),
        pause.id,
        SnapshotState.CURRENT,
        save.bytes,
        created=save.durable_at,
        expires=expires,
        parent=parent.id if parent else None,
        digest=save.digest,
    )
    clocks = replace(pause.clocks, frozen=save.frozen_at, durable=save.durable_at)
    return Move(Phase.SAVED, pause=replace(pause, clocks=clocks), shelf=(*without(workspace.shelf, reference.id), reference))
