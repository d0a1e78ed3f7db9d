"""What nothing needs goes; what somebody may still want stays until it is discarded or expires."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gke_workspaces_spawner.lifecycle.drive import discard_kept, drive, purge, retain
from gke_workspaces_spawner.lifecycle.model import Key, Owner, Pause, SnapshotRef, SnapshotState, Workspace
from gke_workspaces_spawner.lifecycle.phases import Phase
from gke_workspaces_spawner.lifecycle.ports import Limits, Signal
from gke_workspaces_spawner.lifecycle.reasons import Conflict, TryLater
from gke_workspaces_spawner.lifecycle.resuming import accept
from gke_workspaces_spawner.lifecycle.retention import expired, may_go, paused_state_expired
from tests.fakes import World

DAY = 86400.0


def snapshot(number: int, state: SnapshotState = SnapshotState.CURRENT, expires: float | None = None) -> SnapshotRef:
    return SnapshotRef(f"s-p{number}", f"p{number}", state, 1, created=float(number), expires=expires)


def workspace(*shelf: SnapshotRef, phase: Phase = Phase.RUNNING) -> Workspace:
    return Workspace(Key("ann"), Owner(1, "aa"), phase, pause=Pause("p1", snapshot_id="s-p1"), shelf=shelf)


def test_the_last_proved_ones_are_kept() -> None:
    shelf = (snapshot(3), snapshot(1), snapshot(2))
    assert [s.id for s in may_go(workspace(*shelf), 10.0, keep_last=1)] == ["s-p1", "s-p2"]
    assert [s.id for s in may_go(workspace(*shelf), 10.0, keep_last=0)] == ["s-p1", "s-p2", "s-p3"]
    assert may_go(workspace(*shelf), 10.0, keep_last=5) == ()


@pytest.mark.parametrize("state", [SnapshotState.SUPERSEDED, SnapshotState.UNPROVEN, SnapshotState.PINNED])
def test_others_are_exempt_until_they_expire(state: SnapshotState) -> None:
    held = snapshot(1, state, expires=5.0)
    assert may_go(workspace(held, snapshot(2)), 4.9, keep_last=1) == ()
    assert may_go(workspace(held, snapshot(2)), 5.0, keep_last=1) == (() if state is SnapshotState.PINNED else (held,))


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.RUNNING}))
def test_nothing_goes_while_a_pause_or_resume_is_open(phase: Phase) -> None:
    assert may_go(workspace(snapshot(1, expires=1.0), snapshot(2, expires=1.0), phase=phase), 99.0, keep_last=0) == ()
    assert paused_state_expired(workspace(snapshot(1, expires=1.0), phase=phase), 99.0) is (phase is Phase.PAUSED)


states = st.sampled_from(SnapshotState)
shelves = st.lists(st.tuples(states, st.none() | st.floats(0, 100)), max_size=8).map(
    lambda rows: tuple(snapshot(i, state, expires) for i, (state, expires) in enumerate(rows))
)


@given(shelf=shelves, now=st.floats(0, 100), keep=st.integers(0, 4))
def test_retention_takes_only_what_it_may(shelf: tuple[SnapshotRef, ...], now: float, keep: int) -> None:
    gone = may_go(workspace(*shelf), now, keep)
    assert set(gone) <= set(shelf)
    assert len(set(gone)) == len(gone)
    for each in gone:
        assert each.state is not SnapshotState.PINNED
        assert each.state is SnapshotState.CURRENT or (each.expires is not None and each.expires <= now)
    left = [s for s in shelf if s not in gone]
    assert sum(s.state is SnapshotState.CURRENT for s in left) <= keep
    assert not expired(left, now)


async def test_cycles_leave_one_snapshot_behind() -> None:
    world = World()
    await world.start()
    for _ in range(4):
        await world.pause()
        await world.resume()
        await retain(world.ports, world.key)
        assert len(world.engine.snapshots) == len(world.workspace.shelf) == 1
    assert [s.parent for s in world.workspace.shelf] == ["s-p3"]
    assert world.engine.deleted == ["s-p1", "s-p2", "s-p3"]


async def test_a_snapshot_that_cannot_be_deleted_now_is_deleted_later() -> None:
    world = World(Limits(keep_last=0))
    await world.start()
    await world.pause()
    await world.resume()
    world.engine.errors["delete"] = TryLater("busy")
    with pytest.raises(TryLater):
        await retain(world.ports, world.key)
    assert len(world.workspace.shelf) == 1
    world.engine.errors.clear()
    assert await retain(world.ports, world.key) == ("s-p1",)
    assert not world.workspace.shelf
    assert not world.engine.snapshots


@pytest.mark.parametrize("how", ["retention", "discard"])
async def test_a_deletion_that_is_stuck_keeps_no_pause_from_being_made(how: str) -> None:
    world = World(Limits(keep_last=0))
    await world.start()
    await world.pause()
    await world.resume()
    real, stuck = world.engine.delete, asyncio.Event()

    async def delete(snapshot_id: str) -> None:
        await stuck.wait()
        await real(snapshot_id)

    world.engine.delete = delete  # type: ignore[method-assign]
    work = retain(world.ports, world.key) if how == "retention" else discard_kept(world.ports, world.key, "p1")
    deleting = asyncio.ensure_future(work)
    for _ in range(20):
        await asyncio.sleep(0)
    world.begin_pause()
    assert (await asyncio.wait_for(drive(world.ports, world.key), 5)).phase is Phase.PAUSED
    stuck.set()
    assert await deleting == ("s-p1",)
    assert [snapshot.id for snapshot in world.workspace.shelf] == ["s-p2"]
    assert (await world.resume()).phase is Phase.RUNNING


async def test_two_days_are_nothing_to_a_paused_server_and_fifteen_end_it() -> None:
    world = World()
    identity = (await world.start()).identity
    await world.pause()
    world.clock.advance(2 * DAY)
    assert await retain(world.ports, world.key) == ()
    await world.resume()
    assert world.process
    assert world.process.identity == identity
    receipt = world.workspace.pause and world.workspace.pause.receipt
    assert receipt
    assert receipt["seconds"]["paused"] == pytest.approx(2 * DAY)
    await world.pause()
    world.clock.advance(15 * DAY)
    assert await retain(world.ports, world.key) == ("s-p2",)
    assert world.phase() is Phase.RUNNING
    assert world.workspace.pause is None
    await retain(world.ports, world.key)
    assert not world.engine.snapshots
    assert not world.workspace.shelf


async def test_a_kept_snapshot_is_discarded_by_its_pause_and_no_other() -> None:
    world = World()
    await world.start()
    await world.pause()
    world.engine.restore_gives = Signal.FRESH
    await world.resume()
    with pytest.raises(Conflict, match="unproven"):
        await discard_kept(world.ports, world.key, "p1")
    world.store.commit(world.workspace, accept(world.workspace))
    assert len(world.engine.snapshots) == 1, "accepting deletes nothing"
    with pytest.raises(Conflict, match="wrong_pause"):
        await discard_kept(world.ports, world.key, "p2")
    assert await discard_kept(world.ports, world.key, "p1") == ("s-p1",)
    assert not world.engine.snapshots
    assert not world.workspace.shelf


@pytest.mark.parametrize("phase", ["running", "paused", "unproven"])
async def test_a_server_that_is_deleted_takes_its_snapshots_with_it(phase: str) -> None:
    world = World()
    await world.start()
    await world.pause()
    if phase == "unproven":
        world.engine.restore_gives = Signal.FRESH
    if phase != "paused":
        await world.resume()
    assert world.workspace.phase.value == phase
    await purge(world.ports, world.key)
    assert not world.engine.snapshots
    assert not world.workspace.shelf
    assert world.phase() is Phase.RUNNING


async def test_a_server_is_not_deleted_in_the_middle_of_its_pause() -> None:
    world = World()
    await world.start()
    world.begin_pause()
    with pytest.raises(Conflict, match="pause_under_way"):
        await purge(world.ports, world.key)
