"""A server that ends by itself: paused again with the snapshot that proved itself last, and never with another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gke_workspaces_spawner.lifecycle.model import Pause, SnapshotState
from gke_workspaces_spawner.lifecycle.phases import Phase
from gke_workspaces_spawner.lifecycle.resuming import begin_cold, fall_back
from tests.fakes import World


async def test_a_server_that_ended_by_itself_falls_back_to_the_snapshot_that_proved_itself_last() -> None:
    world = World()
    identity = (await world.start()).identity
    await world.pause()
    await world.resume()
    world.clock.advance(3600)
    assert world.workspace.pause
    move = fall_back(world.workspace, world.clock.time(), "It took too much memory.")
    assert move
    world.store.commit(world.workspace, move)
    pause = world.workspace.pause
    assert (world.workspace.phase, pause.reason, pause.detail) == (Phase.PAUSED, "ended_by_itself", "It took too much memory.")
    assert (pause.receipt, pause.clocks.freed) == (None, world.clock.time())
    await world.engine.remove(world.server)
    world.clock.advance(60)
    await world.resume()
    assert world.workspace.phase is Phase.RUNNING
    assert world.process
    assert world.process.identity == identity
    assert world.workspace.pause.receipt
    assert world.workspace.pause.receipt["seconds"]["paused"] == pytest.approx(60)


async def test_a_later_pause_that_failed_does_not_hide_the_snapshot() -> None:
    world = World()
    await world.start()
    await world.pause()
    await world.resume()
    kept = world.workspace.shelf[0]
    later = replace(world.workspace, pause=Pause("p9", reason="disk_full", snapshot_id="s-p9"))
    move = fall_back(later, world.clock.time())
    assert move
    assert move.pause
    assert (move.pause.id, move.pause.snapshot_id, move.pause.reason) == (kept.pause_id, kept.id, "ended_by_itself")


@pytest.mark.parametrize("state", [SnapshotState.SUPERSEDED, SnapshotState.UNPROVEN])
async def test_what_is_not_the_servers_own_state_is_nothing_to_fall_back_to(state: SnapshotState) -> None:
    world = World()
    await world.start()
    await world.pause()
    await world.resume()
    shelf = tuple(replace(snapshot, state=state) for snapshot in world.workspace.shelf)
    assert fall_back(replace(world.workspace, shelf=shelf), world.clock.time()) is None
    assert fall_back(replace(world.workspace, shelf=()), world.clock.time()) is None


async def test_a_server_that_is_stopped_or_started_anew_leaves_its_last_pause_behind() -> None:
    world = World()
    assert begin_cold(world.workspace) is None
    await world.start()
    await world.pause()
    assert begin_cold(world.workspace) is None
    await world.resume()
    move = begin_cold(world.workspace)
    assert move
    world.store.commit(world.workspace, move)
    assert [snapshot.state for snapshot in world.workspace.shelf] == [SnapshotState.CURRENT], "retention goes by its state as before"
    assert world.workspace.pause is None
