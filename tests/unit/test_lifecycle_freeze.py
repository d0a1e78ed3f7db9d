"""Where the engine does not freeze, the server extension has to: before the save, and once more before anything is removed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gke_workspaces_spawner.lifecycle.drive import retain
from gke_workspaces_spawner.lifecycle.phases import Intent, Phase
from gke_workspaces_spawner.lifecycle.ports import Failed, Freeze, Limits, Observation, Saved, Saving, Server, Signal
from gke_workspaces_spawner.lifecycle.reasons import TryLater
from gke_workspaces_spawner.lifecycle.words import actions
from tests.fakes.world import Killed, World


@pytest.fixture
def world() -> World:
    """A world like a cluster: the engine freezes nothing, and finds room by starting."""
    return cluster()


def cluster(limits: Limits | None = None) -> World:
    made = World(limits)
    made.engine.abilities = replace(made.engine.abilities, freezes=False, reserves=True)
    return made


def reason(world: World) -> str | None:
    pause = world.workspace.pause
    return pause.reason if pause else None


async def test_a_server_that_its_extension_holds_is_paused_and_resumed(world: World):
    before = await world.start()
    assert (await world.pause()).phase is Phase.PAUSED
    assert (await world.resume()).phase is Phase.RUNNING
    assert world.process is not None
    assert world.process.identity == before.identity
    assert not world.guest.held
    assert world.engine.launches == 1


async def test_the_freeze_lasts_for_the_whole_save_and_the_margin():
    world = cluster(Limits(poll=5.0))
    await world.start()
    world.engine.seconds_limit = 4000.0
    world.engine.save_seconds = 3900.0
    assert (await world.pause()).phase is Phase.PAUSED


async def test_a_save_that_is_too_slow_for_its_size_is_given_up():
    world = cluster(Limits(poll=5.0))
    await world.start()
    world.engine.seconds_limit = 4000.0
    world.engine.save_hangs = True
    asked = world.clock.time()
    assert (await world.pause()).phase is Phase.RUNNING
    assert reason(world) == "save_timeout"
    assert 4000 <= world.clock.time() - asked < 4010


async def test_a_freeze_that_broke_since_the_save_never_ends_in_a_removal(world: World):
    process = await world.start()
    world.begin_pause()
    world.store.observe(lambda _before, after: world.guest.held.clear() if after.phase is Phase.SAVED else None)
    assert (await world.drive()).phase is Phase.RUNNING
    assert reason(world) == "freeze_broken"
    assert world.process is process
    assert not world.engine.snapshots


async def test_a_hub_that_was_away_for_longer_than_the_freeze_lets_the_server_go_on(world: World):
    process = await world.start()
    world.begin_pause()
    world.store.observe(lambda _before, after: world.clock.advance(7 * 3600) if after.phase is Phase.SAVED else None)
    assert (await world.drive()).phase is Phase.RUNNING
    assert reason(world) == "freeze_broken"
    assert world.process is process


@pytest.mark.parametrize("code", ["freeze_unavailable", "freeze_incomplete"])
async def test_what_cannot_be_held_still_is_not_saved(world: World, code: str):
    await world.start()
    world.guest.refuses_freeze = code
    assert (await world.pause()).phase is Phase.RUNNING
    assert reason(world) == code
    assert not world.engine.saves


async def test_an_extension_that_knows_nothing_of_freezing_is_not_believed(world: World):
    await world.start()
    world.guest.old = True
    assert (await world.pause()).phase is Phase.RUNNING
    assert reason(world) == "freeze_unavailable"


async def test_an_image_without_the_extension_is_refused(world: World):
    await world.start()
    world.guest.absent = True
    assert (await world.pause()).phase is Phase.RUNNING
    assert reason(world) == "guest_absent"


@pytest.mark.parametrize("image", ["absent", "old", "refuses"])
async def test_the_admin_may_allow_a_save_of_a_server_that_runs_on(world: World, image: str):
    await world.start()
    world.engine.freeze = Freeze.WANTED
    world.guest.absent = image == "absent"
    world.guest.old = image == "old"
    world.guest.refuses_freeze = "freeze_unavailable" if image == "refuses" else None
    assert (await world.pause()).phase is Phase.PAUSED


async def test_a_save_that_ends_the_server_needs_no_freeze(world: World):
    await world.start()
    world.engine.freeze, world.engine.stops = Freeze.NONE, True
    world.guest.absent = True
    assert (await world.pause()).phase is Phase.PAUSED
    assert reason(world) is None


@pytest.mark.parametrize("image", ["with the extension", "without it"])
async def test_a_save_that_ends_the_server_takes_a_cancel_until_it_begins_and_none_after(world: World, image: str):
    await world.start()
    world.engine.freeze, world.engine.stops = Freeze.NONE, True
    world.guest.absent = image == "without it"
    said: dict[Phase, bool] = {}
    world.store.observe(lambda _before, after: said.update({after.phase: "cancel" in actions(after)}))
    assert (await world.pause()).phase is Phase.PAUSED
    assert [said[phase] for phase in (Phase.PREPARING, Phase.CHECKPOINTING, Phase.SAVED)] == [True, False, False]


@pytest.mark.parametrize("freezes", [True, False], ids=["by the engine", "by the extension"])
async def test_a_save_that_the_server_survives_can_be_cancelled_until_it_is_removed(world: World, freezes: bool):
    await world.start()
    world.engine.abilities = replace(world.engine.abilities, freezes=freezes)
    said: dict[Phase, bool] = {}
    world.store.observe(lambda _before, after: said.update({after.phase: "cancel" in actions(after)}))
    assert (await world.pause()).phase is Phase.PAUSED
    assert [said[phase] for phase in (Phase.PREPARING, Phase.CHECKPOINTING, Phase.SAVED)] == [True, True, True]


async def test_a_server_that_ended_with_a_save_that_failed_is_lost_and_said_to_be(world: World):
    await world.start()
    world.engine.freeze, world.engine.stops = Freeze.NONE, True
    world.engine.save_fails = Failed("save_failed", "the upload failed", False)
    assert (await world.pause()).phase is Phase.RUNNING
    assert reason(world) == "server_lost"


@pytest.mark.parametrize(("takes", "phase"), [(1.5, Phase.PAUSED), (2.5, Phase.RUNNING)], ids=["as long again", "longer"])
async def test_what_is_stored_slowly_of_a_server_that_ended_with_its_save_is_waited_for(takes: float, phase: Phase):
    """There is nothing to go back to, so the time that a save may take ends nothing."""
    world = cluster(Limits(poll=5.0))
    await world.start()
    world.engine.freeze, world.engine.stops = Freeze.NONE, True
    begun, real, ended = world.clock.time(), world.engine.observe, False

    async def observe(server: Server, pause_id: str) -> Observation:
        nonlocal ended
        seen = await real(server, pause_id)
        ended = ended or isinstance(seen, Saved)
        return Saving() if ended and world.clock.time() < begun + takes * world.limits.pause else seen

    world.engine.observe = observe  # type: ignore[method-assign]
    assert (await world.pause()).phase is phase
    assert reason(world) == (None if phase is Phase.PAUSED else "server_lost")


async def test_a_failed_save_lets_the_extension_go_before_anything_is_deleted(world: World):
    await world.start()
    world.engine.save_fails = Failed("save_failed", "", True)
    world.engine.errors["delete"] = KeyError("a deletion that takes for ever")
    world.begin_pause()
    with pytest.raises(KeyError):
        await world.drive()
    assert not world.guest.held


async def test_clients_reach_a_server_that_goes_on_while_what_was_saved_is_still_being_deleted(world: World):
    await world.start()
    world.engine.save_fails = Failed("save_failed", "", True)
    routed: list[bool] = []

    async def stuck(_snapshot_id: str) -> None:
        routed.append(world.key in world.hub.routes)
        world.hub.routes.discard(world.key)  # as the Hub does with what it calls pending
        raise TryLater("finalizer_stuck")

    world.engine.delete = stuck  # type: ignore[method-assign]
    assert (await world.pause()).phase is Phase.RUNNING
    assert routed == [True]
    assert world.key in world.hub.routes


async def test_one_lost_word_of_the_extension_does_not_cost_a_save(world: World):
    await world.start()
    world.begin_pause()
    world.guest.unreachable.add("frozen")
    driving = asyncio.ensure_future(world.drive())
    while world.phase() is not Phase.SAVED:
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    world.guest.unreachable.clear()
    assert (await driving).phase is Phase.PAUSED
    assert reason(world) is None


async def test_an_extension_that_stays_silent_means_that_the_freeze_may_be_broken(world: World):
    process = await world.start()
    world.guest.unreachable.add("frozen")
    assert (await world.pause()).phase is Phase.RUNNING
    assert reason(world) == "freeze_broken"
    assert world.process is process


async def test_a_server_that_ends_while_it_stands_still_is_paused_with_what_was_saved(world: World):
    """Its node was drained, say: what asks the extension gets no answer, and the engine sees a moment later why."""
    await world.start()
    world.begin_pause()
    real = world.guest.frozen

    async def frozen(*asked: object) -> bool:
        if world.phase() is Phase.SAVED:
            world.engine.crash(world.server)
        return await real(*asked)  # type: ignore[arg-type]

    world.guest.frozen = frozen  # type: ignore[method-assign]
    assert (await world.drive()).phase is Phase.PAUSED
    assert reason(world) is None
    assert len(world.engine.snapshots) == 1
    world.guest.frozen = real  # type: ignore[method-assign]
    assert (await world.resume()).phase is Phase.RUNNING


# ---------------------------------------------------------------- an engine that speaks late


async def test_clients_get_in_by_the_proof_from_inside_while_the_engine_has_not_spoken(world: World):
    await world.start()
    await world.pause()
    world.engine.restore_gives = Signal.LATE
    assert (await world.resume()).phase is Phase.RUNNING
    pause = world.workspace.pause
    assert pause is not None
    assert pause.receipt is not None
    assert "engine_late" in pause.receipt["notes"]


async def test_without_an_extension_an_engine_that_never_speaks_proves_nothing(world: World):
    await world.start()
    world.engine.freeze = Freeze.WANTED
    world.guest.absent = True
    await world.pause()
    world.engine.restore_gives = Signal.LATE
    asked = world.clock.time()
    assert (await world.resume()).phase is Phase.UNPROVEN
    assert world.clock.time() - asked >= world.limits.restore


# ---------------------------------------------------------------- room that is found by starting


async def test_what_waits_for_room_is_gone_when_it_is_cancelled(world: World):
    await world.start()
    await world.pause()
    world.engine.room_from = world.clock.time() + 10_000
    world.begin_resume()
    world.ask_in(Phase.WAITING, Intent.CANCEL)
    world.store.ask(world.key, Intent.CANCEL)
    assert (await world.drive()).phase is Phase.PAUSED
    assert world.process is None


async def test_what_waited_too_long_for_room_is_gone_and_the_reason_kept(world: World):
    await world.start()
    await world.pause()
    world.engine.room_from = world.clock.time() + 10_000
    assert (await world.resume()).phase is Phase.PAUSED
    assert reason(world) == "no_capacity"
    assert world.process is None


async def test_a_right_that_was_taken_away_is_noticed_before_anything_is_put_in_line(world: World):
    await world.start()
    await world.pause()
    world.engine.policy_changed = True
    assert (await world.resume()).phase is Phase.PAUSED
    assert reason(world) == "policy_changed"
    assert world.engine.launches == 0


async def test_no_snapshot_is_let_go_before_the_engine_has_spoken_and_the_server_has_run_for_a_while():
    world = cluster(Limits(keep_last=0, release_after=300.0))
    await world.start()
    await world.pause()
    world.engine.restore_gives = Signal.LATE
    assert (await world.resume()).phase is Phase.RUNNING
    world.clock.advance(400)
    assert await retain(world.ports, world.key) == ()
    world.engine.restore_gives = Signal.RESTORED
    await world.pause()
    await world.resume()
    assert await retain(world.ports, world.key) == ()
    world.clock.advance(301)
    assert len(await retain(world.ports, world.key)) == 2
    assert not world.engine.snapshots


async def test_a_short_outage_while_a_resume_waits_for_room_is_waited_out(world: World):
    await world.start()
    await world.pause()
    world.engine.errors["capacity"] = world.engine.errors["manifest"] = TryLater("cluster_unreachable")
    world.begin_resume()
    driving = asyncio.ensure_future(world.drive())
    for _ in range(200):
        await asyncio.sleep(0)
    assert world.phase() is Phase.WAITING
    world.engine.errors.clear()
    assert (await driving).phase is Phase.RUNNING


async def test_an_outage_while_the_hub_finds_its_restored_server_again_does_not_cost_the_server(world: World):
    """It has proved itself, so its user may work in it: what he did since would be gone with it."""
    await world.start()
    await world.pause()
    world.begin_resume()
    world.hub.reachable = False
    with pytest.raises(Killed):
        await _killed_once_proved(world)
    process = world.process
    assert process is not None
    world.boot()
    await world.hub.restarted()
    world.hub.reachable = True
    world.engine.errors["signal"] = TryLater("cluster_unreachable")
    with pytest.raises(TryLater):
        await world.drive()
    assert world.process is process
    world.engine.errors.clear()
    assert (await world.drive()).phase is Phase.RUNNING
    assert world.process is process


async def _killed_once_proved(world: World) -> None:
    async def killed(*_: object) -> bool:
        raise Killed

    real, world.hub.routed = world.hub.routed, killed  # type: ignore[method-assign]
    try:
        await world.drive()
    finally:
        world.hub.routed = real  # type: ignore[method-assign]
