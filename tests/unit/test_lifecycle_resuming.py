"""A resume says so only after the proof; whatever else happens, the snapshot is there afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gke_workspaces_spawner.lifecycle.drive import drive
from gke_workspaces_spawner.lifecycle.model import Identity, Intent, Key, Move, SnapshotState, Want, Workspace
from gke_workspaces_spawner.lifecycle.phases import Phase
from gke_workspaces_spawner.lifecycle.ports import Absent, Limits, Restored, Signal
from gke_workspaces_spawner.lifecycle.reasons import Refused, TryLater, reason
from gke_workspaces_spawner.lifecycle.resuming import PROVED, accept, begin_discard, interrupted, retry
from gke_workspaces_spawner.lifecycle.words import sentence
from tests.fakes import World


async def paused(limits: Limits | None = None) -> tuple[World, Identity]:
    world = World(limits)
    identity = (await world.start()).identity
    assert (await world.pause()).phase is Phase.PAUSED
    return world, identity


def still_paused(world: World, code: str) -> None:
    """Nothing runs, nothing is lost, the reason is kept."""
    workspace = world.workspace
    assert workspace.phase is Phase.PAUSED
    assert workspace.intent is Intent.NONE
    assert workspace.pause
    assert workspace.pause.reason == code
    assert world.process is None
    assert list(world.engine.snapshots) == ["s-p1"] == [s.id for s in workspace.shelf]
    assert not world.engine.deleted
    assert world.key in world.hub.suspended


async def test_a_resume_brings_the_process_back_and_says_so_only_after_the_proof() -> None:
    world, identity = await paused()
    seen: list[Workspace] = []
    world.store.observe(lambda _before, after: seen.append(after))
    await world.resume()
    assert world.process
    assert world.process.identity == identity
    assert [w.phase.value for w in seen] == ["waiting", "restoring", "restoring", "running"]
    attempt = seen[2].pause and seen[2].pause.attempt
    assert attempt
    assert attempt.proof == PROVED, "the proof is persisted before clients are let in"
    workspace = world.workspace
    assert world.key in world.hub.routes
    assert [s.state for s in workspace.shelf] == [SnapshotState.CURRENT]
    assert workspace.pause
    assert workspace.pause.reason is None
    assert workspace.pause.attempt is None
    clocks = workspace.pause.clocks
    assert clocks.resume_asked
    assert clocks.capacity_found
    assert clocks.process_back


async def test_the_receipt_tells_what_came_back_and_holds_nothing_else() -> None:
    world, identity = await paused()
    world.engine.aids_given = {"placeholders": ["data/gone.csv"], "kept_files": [], "something_else": 1}
    world.clock.advance(600)
    await world.resume()
    receipt = world.workspace.pause and world.workspace.pause.receipt
    assert receipt
    assert receipt["resumed"] is True
    assert [k["id"] for k in receipt["kernels"]] == [k.kernel_id for k in identity.kernels]
    assert receipt["kernels_missing"] == []
    assert receipt["bytes"] > 0
    assert receipt["seconds"]["paused"] == pytest.approx(600, abs=1)
    assert receipt["seconds"]["pause"] > 0
    assert receipt["seconds"]["resume"] >= 0
    assert receipt["repaired"] == {"openssl": {"server": True}}
    assert receipt["aids"] == {"placeholders": ["data/gone.csv"]}
    assert receipt["before"] == {"not_returning": ["Open network connections end."]}
    assert set(receipt) == {
        "resumed", "reasons", "notes", "sentences", "bytes", "kernels", "kernels_missing", "aids", "repaired", "before", "seconds",
    }  # fmt: skip
    assert "not for the receipt" not in json.dumps(receipt)


@pytest.mark.parametrize(
    ("gives", "says", "code"),
    [
        (Signal.FRESH, "", "silent_cold_start"),
        (Signal.UNKNOWN, "", "engine_silent"),
        (Signal.RESTORED, "resume", "silent_cold_start"),
        (Signal.RESTORED, "error", "identity_differs"),
    ],
)
async def test_a_server_that_is_not_the_paused_one_is_unproven_and_the_snapshot_stays(gives: str, says: str, code: str) -> None:
    world, _ = await paused()
    world.engine.restore_gives, world.guest.says = gives, says
    workspace = await world.resume()
    assert workspace.phase is Phase.UNPROVEN
    assert workspace.pause
    assert workspace.pause.reason == code
    assert workspace.pause.receipt
    assert workspace.pause.receipt["resumed"] is False
    assert workspace.pause.receipt["sentences"][0] == reason(code).sentence
    assert [s.state for s in workspace.shelf] == [SnapshotState.UNPROVEN]
    assert world.engine.snapshots
    assert not world.engine.deleted
    assert world.process is not None
    assert (await world.drive()).phase is Phase.UNPROVEN, "only a person chooses"


async def test_replaying_the_recorded_identity_after_a_cold_start_proves_nothing() -> None:
    world, identity = await paused()
    world.engine.restore_gives, world.guest.replays, world.guest.says = Signal.FRESH, identity, "restore"
    workspace = await world.resume()
    assert workspace.phase is Phase.UNPROVEN
    assert world.engine.snapshots
    assert not world.engine.deleted


async def test_retry_ends_the_fresh_server_and_restores_again() -> None:
    world, identity = await paused()
    world.engine.restore_gives = Signal.FRESH
    await world.resume()
    world.engine.restore_gives = Signal.RESTORED
    world.store.commit(world.workspace, retry(world.workspace))
    workspace = await world.drive()
    assert workspace.phase is Phase.RUNNING
    assert world.process
    assert world.process.identity == identity
    assert [s.state for s in workspace.shelf] == [SnapshotState.CURRENT]
    assert workspace.intent is Intent.NONE


async def test_a_retry_survives_a_restart_of_the_hub() -> None:
    world, identity = await paused()
    world.engine.restore_gives = Signal.FRESH
    await world.resume()
    world.engine.restore_gives = Signal.RESTORED
    world.store.commit(world.workspace, retry(world.workspace))
    await world.restart()
    assert world.phase() is Phase.RUNNING
    assert world.process
    assert world.process.identity == identity


async def test_accept_keeps_the_server_and_the_snapshot() -> None:
    world, _ = await paused()
    world.engine.restore_gives = Signal.FRESH
    await world.resume()
    process, owner = world.process, world.workspace.owner
    world.store.commit(world.workspace, accept(world.workspace))
    workspace = await world.drive()
    assert workspace.phase is Phase.RUNNING
    assert workspace.pause is None
    assert world.process is process
    assert workspace.owner == owner, "what runs is named by it"
    assert [s.state for s in workspace.shelf] == [SnapshotState.UNPROVEN]
    assert world.engine.snapshots


async def test_an_unproven_server_that_goes_away_leaves_it_paused() -> None:
    world, identity = await paused()
    world.engine.restore_gives = Signal.FRESH
    await world.resume()
    world.engine.crash(world.server)
    await world.drive()
    still_paused(world, "resume_stopped")
    world.engine.restore_gives = Signal.RESTORED
    await world.resume()
    assert world.process
    assert world.process.identity == identity


async def test_start_fresh_keeps_the_snapshot_as_superseded() -> None:
    world, identity = await paused()
    world.store.ask(world.key, Intent.FRESH)
    workspace = await world.drive()
    assert workspace.phase is Phase.RUNNING
    assert workspace.pause is None
    assert workspace.intent is Intent.NONE
    assert world.process
    assert world.process.identity != identity
    assert [s.state for s in workspace.shelf] == [SnapshotState.SUPERSEDED]
    assert world.engine.snapshots


async def test_discard_deletes_the_bytes_and_ends_the_pause() -> None:
    world, _ = await paused()
    world.store.commit(world.workspace, begin_discard(world.workspace, world.clock.time()))
    workspace = await world.drive()
    assert workspace.phase is Phase.RUNNING
    assert workspace.pause is None
    assert not workspace.shelf
    assert not world.engine.snapshots
    assert world.process is None


async def test_a_discard_that_fails_is_driven_again() -> None:
    world, _ = await paused()
    world.store.commit(world.workspace, begin_discard(world.workspace, world.clock.time()))
    world.engine.errors["delete"] = TryLater("busy")
    with pytest.raises(TryLater):
        await world.drive()
    assert world.phase() is Phase.DELETING
    world.engine.errors.clear()
    await world.restart()
    assert world.phase() is Phase.RUNNING
    assert not world.engine.snapshots


async def test_a_resume_waits_for_room_and_says_so() -> None:
    world, identity = await paused()
    world.engine.room_from = world.clock.time() + 120
    seen = []
    note = world.store.note_progress

    def watched(key: Key, fraction: float | None, waits_for: Want | None = None) -> None:
        note(key, fraction, waits_for)
        seen.append(world.store.read(key))

    world.store.note_progress = watched  # type: ignore[method-assign]
    await world.resume()
    assert {workspace.waits_for for workspace in seen} == {Want("no_capacity", "2 of 3 are free")}
    assert "There was no room" in sentence(seen[0], world.clock.time())
    assert world.process
    assert world.process.identity == identity
    receipt = world.workspace.pause and world.workspace.pause.receipt
    assert receipt
    assert receipt["seconds"]["waiting"] == pytest.approx(120, abs=2)


# ---------------------------------------------------------------- a wait outside of the Hub's start


async def until(true: Callable[[], bool]) -> None:
    for _ in range(50_000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to be")


def reserving(limits: Limits | None = None) -> World:
    """A world whose engine finds room by putting the server in line, as on a cluster."""
    world = World(limits)
    world.engine.abilities = replace(world.engine.abilities, reserves=True)
    return world


async def outside(world: World) -> tuple[Identity, asyncio.Future[Workspace]]:
    """A paused server whose resume found no room at once, so that the Hub's start of it has ended again; and the drive of it."""
    identity = (await world.start()).identity
    assert (await world.pause()).phase is Phase.PAUSED
    world.engine.room_from = world.clock.time() + 120
    world.begin_resume()
    driving = asyncio.ensure_future(world.drive())
    await until(lambda: world.workspace.waits_for is not None)
    world.hub.spawning.discard(world.key)
    return identity, driving


@pytest.mark.parametrize("make", [World, reserving])
async def test_the_hub_is_asked_for_its_start_only_when_there_is_room_and_the_restore_is_part_of_it(make: Callable[[], World]) -> None:
    world = make()
    identity, driving = await outside(world)
    begun_at: list[float] = []
    begin = world.hub.begin

    async def watched(key: Key) -> None:
        begun_at.append(world.clock.time())
        assert world.phase() is Phase.WAITING
        await begin(key)

    world.hub.begin = watched  # type: ignore[method-assign]
    room_from = world.engine.room_from
    assert (await driving).phase is Phase.RUNNING
    assert len(begun_at) == 1
    assert room_from <= begun_at[0] < room_from + 2
    assert world.process
    assert world.process.identity == identity
    assert world.engine.launches == 1
    assert world.workspace.pause
    assert world.workspace.pause.receipt
    assert world.workspace.pause.receipt["seconds"]["waiting"] == pytest.approx(120, abs=2)


async def test_room_that_is_gone_when_the_hub_has_begun_its_start_is_waited_for_again() -> None:
    world = World()
    _, driving = await outside(world)
    begin = world.hub.begin

    async def slow(key: Key) -> None:
        world.engine.room_from = world.clock.time() + 60
        await begin(key)
        world.hub.spawning.discard(key)  # the start looked for a while and stepped out again
        if world.hub.begun == 2:
            world.hub.begin = begin  # type: ignore[method-assign]

    world.hub.begin = slow  # type: ignore[method-assign]
    assert (await driving).phase is Phase.RUNNING
    assert world.hub.begun == 3
    assert world.engine.launches == 1


async def test_a_hub_with_too_many_starts_under_way_is_asked_again_later_and_the_page_says_so() -> None:
    world = reserving()
    _, driving = await outside(world)
    world.hub.start_refused = TryLater("too_many", "the Hub's limit")
    await until(lambda: world.workspace.waits_for == Want("too_many", "the Hub's limit"))
    assert world.process, "its place is kept"
    assert world.phase() is Phase.WAITING
    world.hub.start_refused = None
    assert (await driving).phase is Phase.RUNNING
    assert world.engine.launches == 1


async def test_too_many_starts_until_the_limit_end_in_paused_with_that_reason() -> None:
    world = reserving(Limits(waiting=300.0))
    _, driving = await outside(world)
    world.hub.start_refused = TryLater("too_many")
    before = world.clock.time()
    await driving
    still_paused(world, "too_many")
    assert 300.0 <= world.clock.time() - before < 302.0


async def test_a_start_that_the_hub_refuses_ends_in_paused_with_its_reason_and_nothing_left_in_line() -> None:
    world = reserving()
    _, driving = await outside(world)
    world.hub.start_refused = Refused("token_revoked")
    await driving
    still_paused(world, "token_revoked")


async def test_a_right_that_is_lost_during_the_wait_ends_it() -> None:
    world = reserving()
    _, driving = await outside(world)
    await until(lambda: world.process is not None)
    world.hub.allowed = False
    before = world.clock.time()
    await driving
    still_paused(world, "not_allowed")
    assert world.clock.time() - before < 5
    assert world.hub.begun == 0


async def test_what_an_outage_kept_from_being_put_in_line_is_rendered_in_a_start_of_its_own() -> None:
    world = reserving()
    await world.start()
    await world.pause()
    world.engine.errors["manifest"] = TryLater("cluster_unreachable")
    world.begin_resume()
    driving = asyncio.ensure_future(world.drive())
    await until(lambda: world.workspace.waits_for == Want("cluster_unreachable"))
    world.hub.spawning.discard(world.key)
    world.engine.errors.clear()
    assert (await driving).phase is Phase.RUNNING
    assert world.hub.begun == 1


@pytest.mark.parametrize("make", [World, reserving])
async def test_a_cancel_while_the_hub_begins_its_start_restores_nothing(make: Callable[[], World]) -> None:
    world = make()
    _, driving = await outside(world)
    begins, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(_key: Key) -> None:
        begins.set()
        await goes_on.wait()

    world.hub.begin = slow  # type: ignore[method-assign]
    await begins.wait()
    launches = world.engine.launches
    world.store.ask(world.key, Intent.CANCEL)
    await driving
    still_paused(world, "cancelled")
    assert world.engine.launches == launches


@pytest.mark.parametrize("make", [World, reserving])
async def test_a_hub_that_is_killed_during_the_wait_finds_it_paused_with_nothing_left_in_line(make: Callable[[], World]) -> None:
    world = make()
    identity, driving = await outside(world)
    await until(lambda: world.workspace.waits_for is not None)
    driving.cancel()
    await asyncio.wait([driving])
    await world.restart()
    still_paused(world, "hub_restarted")
    world.engine.room_from = 0.0
    await world.resume()
    assert world.process
    assert world.process.identity == identity


async def test_what_the_cluster_said_of_the_wait_is_told_and_kept_when_it_was_in_vain() -> None:
    world = World(Limits(waiting=30.0))
    _, driving = await outside(world)
    await until(lambda: world.workspace.waits_for == Want("no_capacity", "2 of 3 are free"))
    await driving
    still_paused(world, "no_capacity")
    assert world.workspace.pause
    assert world.workspace.pause.detail == "2 of 3 are free"


@pytest.mark.parametrize("code", ["no_capacity", "not_enough_memory"])
async def test_without_room_in_time_it_is_paused_with_the_reason(code: str) -> None:
    world, _ = await paused(Limits(waiting=30.0))
    world.engine.room_from, world.engine.no_room_code = 1e12, code
    before = world.clock.time()
    await world.resume()
    still_paused(world, code)
    assert 30.0 <= world.clock.time() - before < 32.0
    assert world.engine.launches == 0


async def test_a_crashed_restore_is_paused_again() -> None:
    world, identity = await paused()
    world.engine.restore_gives = Signal.GONE
    world.guest.absent = True
    await world.resume()
    assert world.workspace.pause
    assert world.workspace.pause.reason in ("restore_failed", "restore_timeout")
    still_paused(world, world.workspace.pause.reason or "")
    world.engine.restore_gives, world.guest.absent = Signal.RESTORED, False
    await world.resume()
    assert world.process
    assert world.process.identity == identity


async def test_a_restored_server_that_does_not_answer_is_paused_again() -> None:
    world, _ = await paused()
    world.guest.unreachable = {"restored"}
    await world.resume()
    still_paused(world, "restore_timeout")


async def test_a_server_that_the_hub_cannot_reach_is_paused_again() -> None:
    world, _ = await paused()
    world.hub.reachable = False
    await world.resume()
    still_paused(world, "not_routed")


async def test_a_snapshot_with_a_changed_byte_is_refused_and_kept() -> None:
    world, _ = await paused()
    world.engine.changed.add("s-p1")
    await world.resume()
    still_paused(world, "snapshot_changed")
    assert world.engine.launches == 0


async def test_a_snapshot_of_another_lineage_is_never_restored() -> None:
    world, _ = await paused()
    manifest, identity = world.engine.snapshots["s-p1"]
    world.engine.snapshots["s-p1"] = (replace(manifest, owner=replace(manifest.owner, user_id=2)), identity)
    await world.resume()
    still_paused(world, "snapshot_changed")
    assert world.engine.launches == 0


async def test_a_snapshot_that_is_gone_is_said_to_be() -> None:
    world, _ = await paused()
    world.engine.snapshots.clear()
    await world.resume()
    assert world.phase() is Phase.PAUSED
    assert world.workspace.pause
    assert world.workspace.pause.reason == "snapshot_gone"


@pytest.mark.parametrize(("fault", "code"), [("allowed", "not_allowed"), ("policy", "policy_changed")])
async def test_a_resume_is_todays_right(fault: str, code: str) -> None:
    world, _ = await paused()
    if fault == "allowed":
        world.begin_resume()
        world.hub.allowed = False  # taken away after the resume was asked for
        await world.drive()
    else:
        world.engine.policy_changed = True
        await world.resume()
    still_paused(world, code)
    assert world.engine.launches == 0


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.RESTORING])
async def test_a_cancelled_resume_is_paused_again(phase: Phase) -> None:
    world, _ = await paused()
    world.ask_in(phase, Intent.CANCEL)
    await world.resume()
    still_paused(world, "cancelled")


async def restore_that_hangs() -> tuple[World, asyncio.Future[Any]]:
    """A restored server that never answers, and the drive that waits for it."""
    world, _ = await paused()
    hangs = asyncio.Event()

    async def restored(*_: object) -> None:
        hangs.set()
        await asyncio.Event().wait()

    world.guest.restored = restored  # type: ignore[method-assign, assignment]
    world.begin_resume()
    driving = asyncio.ensure_future(drive(world.ports, world.key))
    await hangs.wait()
    return world, driving


async def test_a_cancel_ends_a_restore_that_hangs() -> None:
    world, driving = await restore_that_hangs()
    world.store.ask(world.key, Intent.CANCEL)
    await driving
    still_paused(world, "cancelled")


@pytest.mark.parametrize("where", ["launch", "restored"])
async def test_a_stop_while_a_restore_is_under_way_leaves_nothing_behind(where: str) -> None:
    """The Hub cancels its spawn and calls the spawner's stop: that commits, and the step finds out."""
    world, identity = await paused()
    port = world.hub if where == "launch" else world.guest
    original = getattr(port, where)

    async def stopped(*args: object) -> object:
        world.store.commit(world.workspace, interrupted(world.workspace))
        await world.engine.remove(world.server)
        return await original(*args)

    setattr(port, where, stopped)
    await world.resume()
    still_paused(world, "resume_stopped")
    setattr(port, where, original)
    await world.resume()
    assert world.process
    assert world.process.identity == identity


async def test_a_drive_that_is_cancelled_can_be_ended_by_the_spawners_stop() -> None:
    world, driving = await restore_that_hangs()
    driving.cancel()
    await asyncio.wait([driving])
    assert driving.cancelled()
    assert world.phase() is Phase.RESTORING
    await world.hub.stop(world.key)
    still_paused(world, "resume_stopped")


async def test_what_is_left_of_a_broken_attempt_goes_before_the_next_one() -> None:
    """A second sandbox of one lineage would fail in the fake engine."""
    world, identity = await paused()
    world.begin_resume()
    world.store.commit(world.workspace, Move(Phase.RESTORING))
    world.engine.start_launch(world.server, {"restore": "s-p1"})
    await world.drive()
    assert world.phase() is Phase.RUNNING
    assert world.process
    assert world.process.identity == identity


async def test_an_attempt_that_was_given_up_is_not_started_again_when_its_removal_fails() -> None:
    world, _ = await paused()
    world.hub.reachable = False
    world.engine.survives_remove = 2
    world.begin_resume()
    with pytest.raises(TryLater):
        await world.drive()
    assert world.phase() is Phase.RESTORING
    for _ in range(3):
        if world.phase() is Phase.PAUSED:
            break
        with pytest.raises(TryLater):
            await world.drive()
        world.engine.survives_remove = 0
        await world.drive()
    still_paused(world, "not_routed")
    assert world.engine.launches == 1


async def test_a_snapshot_can_be_resumed_from_again() -> None:
    world, identity = await paused()
    for _ in range(5):
        await world.resume()
        assert world.process
        assert world.process.identity == identity
        await world.pause()
    assert len(world.workspace.shelf) == 6
    assert len({s.id for s in world.workspace.shelf}) == 6


async def test_a_restored_server_survives_the_restart_of_the_hub_that_proved_it() -> None:
    world, identity = await paused()
    never = asyncio.Event()

    async def routed(*_: object) -> bool:
        await never.wait()
        return True

    original, world.hub.routed = world.hub.routed, routed  # type: ignore[method-assign, assignment]
    world.begin_resume()
    driving = asyncio.ensure_future(drive(world.ports, world.key))
    while not (world.workspace.pause and world.workspace.pause.attempt and world.workspace.pause.attempt.proof):
        await asyncio.sleep(0)
    driving.cancel()
    await asyncio.wait([driving])
    world.hub.routed = original  # type: ignore[method-assign]
    process = world.process
    await world.restart()
    assert world.phase() is Phase.RUNNING
    assert world.process is process
    assert world.process
    assert world.process.identity == identity
    assert world.engine.launches == 1


async def test_only_a_cancel_ends_a_restore() -> None:
    world, identity = await paused()
    world.ask_in(Phase.RESTORING, Intent.RESUME)
    original = world.guest.restored

    async def slow(key: Key, pause_id: str, deadline: float) -> Restored | Absent:
        await world.clock.sleep(5.0)
        return await original(key, pause_id, deadline)

    world.guest.restored = slow  # type: ignore[method-assign]
    await world.resume()
    assert world.phase() is Phase.RUNNING
    assert world.process
    assert world.process.identity == identity
