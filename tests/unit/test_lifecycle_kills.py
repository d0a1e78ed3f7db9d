"""A Hub that is killed at any instant finds its way to running or paused, and nothing is lost.

The kill is at every call of every port, before and after its effect; the world (processes, snapshots, database, the Hub's rows)
stays as it was, the next Hub knows nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gke_workspaces_spawner.lifecycle.drive import STEPS, drive
from gke_workspaces_spawner.lifecycle.model import Identity, Intent, Key, Want, Workspace
from gke_workspaces_spawner.lifecycle.phases import MOVES, Phase
from gke_workspaces_spawner.lifecycle.ports import Failed, Limits, Signal
from gke_workspaces_spawner.lifecycle.resuming import begin_discard
from tests.fakes import Killed, World

DOWN = {"at once": 0.5, "longer than the freeze lasts": 4000.0}


def nothing_is_lost(world: World, identity: Identity) -> None:
    """The process goes on and clients reach it, or it is paused with a snapshot of it and nothing else of it is left."""
    workspace, process = world.workspace, world.process
    assert workspace.intent is Intent.NONE
    if workspace.phase is Phase.RUNNING:
        assert process is not None
        assert process.identity == identity
        assert process.frozen_for is None, "left frozen"
        assert world.key in world.hub.routes, "left without a route"
        assert world.key in world.rows
        assert world.key not in world.hub.suspended
    else:
        assert workspace.phase is Phase.PAUSED
        assert process is None, "an orphan runs"
        assert world.key not in world.hub.routes
        assert world.key not in world.rows
        assert workspace.pause is not None
        assert workspace.pause.snapshot_id is not None
        assert world.engine.snapshots[workspace.pause.snapshot_id][1] == identity
        assert workspace.snapshot(workspace.pause.snapshot_id) is not None
        assert world.key in world.hub.suspended
    assert {s.id for s in workspace.shelf} == set(world.engine.snapshots), "records and bytes disagree"


def never_while_unproved(world: World) -> None:
    """The fake engine refuses to delete a snapshot while it is the only thing left of a session."""
    delete = world.engine.delete

    async def guarded(snapshot_id: str) -> None:
        found = world.engine.snapshots.get(snapshot_id)
        if found:
            alive = [p for p in world.engine.processes.values() if p.alive and p.identity == found[1] and p.frozen_for is None]
            assert alive, "deleted what was left of a session"
        await delete(snapshot_id)

    world.engine.delete = guarded  # type: ignore[method-assign]


@pytest.mark.parametrize("down_for", DOWN.values(), ids=DOWN)
async def test_a_kill_at_any_call_of_a_pause_loses_nothing(down_for: float) -> None:
    kills, ends = 0, set()
    for at in range(1, 200):
        world = World()
        never_while_unproved(world)
        identity = (await world.start()).identity
        world.begin_pause()
        if not await world.killed_at(at, drive(world.ports, world.key)):
            break
        kills += 1
        await world.restart(down_for)
        nothing_is_lost(world, identity)
        ends.add(world.workspace.phase)
        if world.phase() is Phase.PAUSED:
            await world.resume()
            nothing_is_lost(world, identity)
            assert world.phase() is Phase.RUNNING
    assert kills > 20
    assert ends == {Phase.RUNNING, Phase.PAUSED}


def steps_out(world: World) -> None:
    """The Hub's start finds no room at once, and is begun anew when there is."""
    world.engine.room_from = world.clock.time() + 10

    def note(key: Key, fraction: float | None, waits_for: Want | None = None) -> None:
        noted(key, fraction, waits_for)
        if waits_for is not None:
            world.hub.spawning.discard(key)

    noted, world.store.note_progress = world.store.note_progress, note  # type: ignore[method-assign]


@pytest.mark.parametrize("reserves", [False, True], ids=["looks", "reserves"])
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait outside of the Hub's start"])
@pytest.mark.parametrize("down_for", DOWN.values(), ids=DOWN)
async def test_a_kill_at_any_call_of_a_resume_loses_nothing(down_for: float, waits: bool, reserves: bool) -> None:
    kills, ends = 0, set()
    for at in range(1, 200):
        world = World()
        world.engine.abilities = replace(world.engine.abilities, reserves=reserves)
        never_while_unproved(world)
        identity = (await world.start()).identity
        assert (await world.pause()).phase is Phase.PAUSED
        world.begin_resume()
        if waits:
            steps_out(world)
        if not await world.killed_at(at, drive(world.ports, world.key)):
            break
        kills += 1
        await world.restart(down_for)
        nothing_is_lost(world, identity)
        ends.add(world.workspace.phase)
        if world.phase() is Phase.PAUSED:
            assert world.workspace.pause
            assert world.workspace.pause.reason == "hub_restarted"
            assert world.process is None, "nothing is left in line"
            world.engine.room_from = 0.0
            await world.resume()
            nothing_is_lost(world, identity)
        assert world.phase() is Phase.RUNNING
        assert world.engine.launches <= 2
    assert kills > 15
    assert ends == {Phase.RUNNING, Phase.PAUSED}


FAULTS: dict[str, Callable[[World], object]] = {
    "save fails": lambda w: setattr(w.engine, "save_fails", Failed("disk_full", "", True)),
    "save hangs": lambda w: setattr(w.engine, "save_hangs", True),
    "freeze broken": lambda w: setattr(w.engine, "breaks_freeze", True),
    "refused": lambda w: setattr(w.engine, "refusal", "disk_full"),
    "guest refuses": lambda w: setattr(w.guest, "blockers", ("busy",)),
    "cancelled": lambda w: w.store.ask(w.key, Intent.CANCEL),
    "resume asked": lambda w: w.store.ask(w.key, Intent.RESUME),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_kill_on_the_way_back_of_a_pause_loses_nothing(fault: Callable[[World], object]) -> None:
    for at in range(1, 200):
        world = World(Limits(pause=1.0))
        never_while_unproved(world)
        identity = (await world.start()).identity
        world.begin_pause()
        fault(world)
        if not await world.killed_at(at, world.drive()):
            break
        await world.restart()
        nothing_is_lost(world, identity)
    nothing_is_lost(world, identity)
    assert at > 5


RESUME_FAULTS: dict[str, Callable[[World], object]] = {
    "crash": lambda w: setattr(w.engine, "restore_gives", Signal.GONE),
    "no room": lambda w: setattr(w.engine, "room_from", 1e12),
    "files changed": lambda w: w.engine.changed.update(w.engine.snapshots),
    "not allowed": lambda w: setattr(w.hub, "allowed", False),
    "policy changed": lambda w: setattr(w.engine, "policy_changed", True),
    "unreachable": lambda w: w.guest.unreachable.add("restored"),
    "not routed": lambda w: setattr(w.hub, "reachable", False),
    "cancelled": lambda w: w.store.ask(w.key, Intent.CANCEL),
}


@pytest.mark.parametrize("fault", RESUME_FAULTS.values(), ids=RESUME_FAULTS)
async def test_a_kill_on_the_way_back_of_a_resume_loses_nothing(fault: Callable[[World], object]) -> None:
    for at in range(1, 200):
        world = World(Limits(waiting=3.0))
        never_while_unproved(world)
        identity = (await world.start()).identity
        await world.pause()
        world.begin_resume()
        fault(world)
        if not await world.killed_at(at, world.drive()):
            break
        await world.restart()
        nothing_is_lost(world, identity)
        assert world.phase() is Phase.PAUSED
    nothing_is_lost(world, identity)
    assert world.phase() is Phase.PAUSED
    assert at > 3


async def test_a_kill_during_a_silent_cold_start_keeps_the_snapshot() -> None:
    for at in range(1, 200):
        world = World()
        never_while_unproved(world)
        identity = (await world.start()).identity
        await world.pause()
        world.begin_resume()
        world.engine.restore_gives = Signal.FRESH
        dead = await world.killed_at(at, world.drive())
        if dead:
            await world.restart()
        assert world.workspace.phase in (Phase.PAUSED, Phase.UNPROVEN)
        assert identity in [found for _, found in world.engine.snapshots.values()]
        if not dead:
            break
    assert world.phase() is Phase.UNPROVEN


async def to(world: World, phase: Phase) -> Workspace:
    """Drive a world up to a phase and kill the Hub as soon as it is persisted."""
    await world.start()
    resuming = (Phase.WAITING, Phase.RESTORING, Phase.UNPROVEN, Phase.DELETING, Phase.PAUSED)

    def kill(_before: Workspace, after: Workspace) -> None:
        if after.phase is phase:
            raise Killed

    async def run() -> None:
        world.begin_pause()
        await world.drive()
        if phase is Phase.DELETING:
            world.store.commit(world.workspace, begin_discard(world.workspace, world.clock.time()))
        world.begin_resume()
        await world.drive()

    if phase is Phase.UNPROVEN:
        world.engine.restore_gives = Signal.FRESH
    world.store.observe(kill)
    with pytest.raises(Killed):
        await run()
    assert phase in resuming or world.workspace.phase is phase
    return world.workspace


@pytest.mark.parametrize("phase", STEPS)
async def test_every_step_may_run_twice(phase: Phase) -> None:
    world = World()
    workspace = await to(world, phase)
    again = World()
    await to(again, phase)
    step = STEPS[phase]
    once = await step(world.ports, workspace)
    await step(again.ports, again.workspace)
    twice = await step(again.ports, again.workspace)
    assert (once.to if once else None) == (twice.to if twice else None)
    assert set(again.engine.snapshots) == set(world.engine.snapshots)
    assert (again.process is None) == (world.process is None)
    assert again.engine.launches <= world.engine.launches + 1
    if once is not None:
        assert once.to is phase or once.to in MOVES[phase]


AFTER_RESTART = {
    Phase.PREPARING: (Phase.RUNNING, "hub_restarted"),
    Phase.CHECKPOINTING: (Phase.RUNNING, "hub_restarted"),
    Phase.SAVED: (Phase.PAUSED, None),
    Phase.STOPPING: (Phase.PAUSED, None),
    Phase.WAITING: (Phase.PAUSED, "hub_restarted"),
    Phase.RESTORING: (Phase.PAUSED, "hub_restarted"),
    Phase.UNPROVEN: (Phase.UNPROVEN, "silent_cold_start"),
    Phase.DELETING: (Phase.RUNNING, None),
}


@pytest.mark.parametrize("phase", STEPS)
async def test_every_phase_is_left_after_a_restart_for_where_it_belongs(phase: Phase) -> None:
    world = World()
    await to(world, phase)
    for _ in range(2):
        await world.restart()
        code = world.workspace.pause.reason if world.workspace.pause else None
        assert (world.phase(), code) == AFTER_RESTART[phase]


async def test_a_machine_that_goes_down_during_a_resume_leaves_it_paused() -> None:
    for at in range(1, 200):
        world = World()
        identity = (await world.start()).identity
        await world.pause()
        world.begin_resume()
        if not await world.killed_at(at, drive(world.ports, world.key)):
            break
        resumed = world.phase() is Phase.RUNNING
        world.engine.crash(world.server)
        await world.restart(60.0)
        assert [found for _, found in world.engine.snapshots.values()] == [identity]
        if not resumed:
            nothing_is_lost(world, identity)
            assert world.phase() is Phase.PAUSED
    assert at > 10


async def test_two_users_are_driven_side_by_side() -> None:
    world = World()
    await world.start()
    other = World(key=Key("bo", "lab"))
    await other.start()
    assert (await world.pause()).phase is Phase.PAUSED
    assert (await other.pause()).phase is Phase.PAUSED
