"""A pause either ends with a complete snapshot and nothing else left, or the server goes on and its user is told why."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gke_workspaces_spawner.lifecycle.drive import drive
from gke_workspaces_spawner.lifecycle.model import Intent, KernelProcess, Key, SnapshotState
from gke_workspaces_spawner.lifecycle.phases import Phase
from gke_workspaces_spawner.lifecycle.ports import Failed, Limits, Observation, Server
from gke_workspaces_spawner.lifecycle.reasons import Refused, TryLater
from tests.fakes import World


def goes_on(world: World, code: str) -> None:
    """As before the button was pressed, with the reason."""
    workspace = world.workspace
    assert workspace.phase is Phase.RUNNING
    assert workspace.pause
    assert workspace.pause.reason == code
    assert world.process
    assert world.process.frozen_for is None
    assert world.key in world.hub.routes
    assert world.key not in world.guest.prepared
    assert workspace.intent is Intent.NONE
    assert not workspace.shelf
    assert not world.engine.snapshots


async def test_a_pause_goes_through_every_phase_in_order() -> None:
    world = World()
    process = await world.start()
    workspace = await world.pause()
    phases = list(dict.fromkeys(w.phase.value for w in world.store.history))
    assert phases == ["preparing", "checkpointing", "saved", "stopping", "paused"]
    assert workspace.pause
    assert workspace.pause.identity == process.identity
    assert workspace.pause.reason is None
    clocks = workspace.pause.clocks
    assert clocks.pause_asked is not None
    assert clocks.frozen is not None
    assert clocks.durable is not None
    assert clocks.freed is not None
    assert clocks.pause_asked <= clocks.frozen <= clocks.durable <= clocks.freed
    (snapshot,) = workspace.shelf
    assert (snapshot.state, snapshot.pause_id, snapshot.parent) == (SnapshotState.CURRENT, workspace.pause.id, None)
    assert snapshot.expires == pytest.approx(snapshot.created + 14 * 86400)
    assert world.process is None
    assert world.key in world.hub.suspended
    assert world.key not in world.hub.routes


async def test_saving_shows_progress() -> None:
    world = World()
    await world.start()
    world.engine.save_seconds = 1.0
    seen: list[float] = []
    note = world.store.note_progress

    def watched(key: Key, fraction: float | None, detail: str = "") -> None:
        seen.append(fraction or 0.0)
        note(key, fraction, detail)

    world.store.note_progress = watched  # type: ignore[method-assign]
    await world.pause()
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert 0.0 <= seen[0] < seen[-1] <= 1.0


@pytest.mark.parametrize("alive", [True, False], ids=["server alive", "server gone"])
async def test_a_failed_save_leaves_the_server_as_it_was_and_a_dead_one_is_never_called_paused(alive: bool) -> None:
    world = World()
    await world.start()
    world.engine.save_fails = Failed("disk_full", "no space left on device", alive)
    await world.pause()
    if alive:
        goes_on(world, "disk_full")
        assert world.workspace.pause
        assert world.workspace.pause.detail == "no space left on device"
    else:
        assert world.phase() is Phase.RUNNING
        assert world.process is None
        assert world.workspace.pause
        assert world.workspace.pause.reason == "server_lost"
        assert "disk_full" in world.workspace.pause.detail


async def test_a_save_that_takes_too_long_is_given_up() -> None:
    world = World(Limits(pause=3.0))
    await world.start()
    world.engine.save_hangs = True
    before = world.clock.time()
    await world.pause()
    goes_on(world, "save_timeout")
    assert 3.0 <= world.clock.time() - before < 4.0


async def test_a_save_of_which_the_engine_says_no_more_is_given_up_in_time_too() -> None:
    world = World(Limits(pause=3.0))
    await world.start()
    world.engine.save_hangs = True
    observe = world.engine.observe

    async def no_word(server: Server, pause_id: str) -> Observation:
        assert world.clock.time() < before + 10
        if pause_id in world.engine.saves:
            raise TryLater("save_failed")
        return await observe(server, pause_id)

    world.engine.observe = no_word  # type: ignore[method-assign]
    before = world.clock.time()
    await world.pause()
    goes_on(world, "save_timeout")
    assert 3.0 <= world.clock.time() - before < 4.0


async def test_a_pause_that_would_not_fit_touches_nothing() -> None:
    world = World()
    await world.start()
    world.engine.refusal = "disk_full"
    world.begin_pause()
    touched: list[str] = []
    unroute = world.hub.unroute

    async def watched(key: object) -> None:
        touched.append("unroute")
        await unroute(world.key)

    world.hub.unroute = watched  # type: ignore[method-assign]
    await world.drive()
    goes_on(world, "disk_full")
    assert not touched
    assert not world.engine.saves


@pytest.mark.parametrize(("blockers", "code"), [(("guest_refused",), "guest_refused"), (("a file dialog is open",), "guest_refused")])
async def test_a_server_that_is_not_ready_is_not_saved(blockers: tuple[str, ...], code: str) -> None:
    world = World()
    await world.start()
    world.guest.blockers = blockers
    await world.pause()
    goes_on(world, code)
    assert world.workspace.pause
    assert world.workspace.pause.detail == blockers[0]
    assert not world.engine.saves


async def test_a_server_that_does_not_answer_is_not_saved() -> None:
    world = World()
    await world.start()
    world.guest.unreachable = {"prepare", "thaw"}
    await world.pause()
    goes_on(world, "guest_unreachable")


@pytest.mark.parametrize("freezes", [True, False])
async def test_without_the_extension_a_pause_needs_an_engine_that_freezes(freezes: bool) -> None:
    world = World()
    await world.start()
    world.guest.absent = True
    world.engine.abilities = replace(world.engine.abilities, freezes=freezes)
    await world.pause()
    if freezes:
        assert world.phase() is Phase.PAUSED
        assert world.workspace.pause
        assert world.workspace.pause.identity is None
    else:
        goes_on(world, "guest_absent")


async def test_an_owner_without_rights_is_told_and_keeps_the_server() -> None:
    world = World()
    await world.start()
    world.hub.allowed = False
    await world.pause()
    goes_on(world, "not_allowed")


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.CHECKPOINTING, Phase.SAVED])
async def test_a_cancel_is_taken_up_in_every_phase_before_the_stop(phase: Phase) -> None:
    world = World()
    await world.start()
    world.ask_in(phase, Intent.CANCEL)
    await world.pause()
    goes_on(world, "cancelled")


async def test_a_cancel_that_comes_too_late_does_not_stay() -> None:
    world = World()
    await world.start()
    world.ask_in(Phase.STOPPING, Intent.CANCEL)
    await world.pause()
    assert world.phase() is Phase.PAUSED
    assert world.workspace.intent is Intent.NONE


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.CHECKPOINTING, Phase.SAVED, Phase.STOPPING])
async def test_a_resume_asked_during_the_pause_follows_it(phase: Phase) -> None:
    world = World()
    identity = (await world.start()).identity
    world.ask_in(phase, Intent.RESUME)
    await world.pause()
    assert world.phase() is Phase.RUNNING
    assert world.workspace.intent is Intent.NONE
    assert world.process
    assert world.process.identity == identity
    assert world.engine.launches == 1


async def test_a_resume_that_the_hub_refuses_leaves_it_paused_with_the_reason() -> None:
    world = World()
    await world.start()
    world.begin_pause()
    world.store.ask(world.key, Intent.RESUME)
    world.hub.start_refused = Refused("too_many")
    await world.drive()
    assert world.phase() is Phase.PAUSED
    assert world.workspace.intent is Intent.NONE
    assert world.workspace.pause
    assert world.workspace.pause.reason == "too_many"


async def test_a_freeze_that_was_broken_is_never_followed_by_a_removal() -> None:
    world = World()
    await world.start()
    world.engine.breaks_freeze = True
    await world.pause()
    goes_on(world, "freeze_broken")
    assert world.engine.deleted == ["s-p1"]


async def test_a_stale_snapshot_that_cannot_be_deleted_does_not_hold_the_server_up() -> None:
    world = World()
    await world.start()
    world.engine.breaks_freeze = True
    world.engine.errors["delete"] = TryLater("busy")
    await world.pause()
    assert world.phase() is Phase.RUNNING
    assert world.key in world.hub.routes
    (left,) = world.workspace.shelf
    assert left.state is SnapshotState.SUPERSEDED
    assert left.expires is not None
    assert left.expires <= world.clock.time()


async def test_a_server_that_dies_after_its_save_is_paused_not_lost() -> None:
    for phase in (Phase.SAVED, Phase.STOPPING):
        world = World()
        identity = (await world.start()).identity
        world.store.observe(lambda _before, after, w=world, p=phase: w.engine.crash(w.server) if after.phase is p else None)  # type: ignore[misc]
        await world.pause()
        assert world.phase() is Phase.PAUSED
        assert world.workspace.pause
        assert (world.workspace.pause.reason == "server_ended") is (phase is Phase.SAVED)
        await world.resume()
        assert world.process
        assert world.process.identity == identity


@pytest.mark.parametrize("cancel", [False, True], ids=["", "and a cancel was asked"])
async def test_a_machine_that_goes_down_keeps_what_was_durable(cancel: bool) -> None:
    """At every call the machine loses power: every process is gone, the disk stays."""
    ends = set()
    for at in range(1, 200):
        world = World()
        identity = (await world.start()).identity
        world.begin_pause()
        if not await world.killed_at(at, drive(world.ports, world.key)):
            break
        world.engine.crash(world.server)
        durable = bool(world.engine.snapshots)
        if cancel and world.phase() is not Phase.PAUSED:
            world.store.ask(world.key, Intent.CANCEL)
        await world.restart()
        assert (world.workspace.phase is Phase.PAUSED) is durable
        if durable:
            await world.resume()
            assert world.process
            assert world.process.identity == identity
        else:
            assert world.workspace.pause
            assert world.workspace.pause.reason == "server_lost"
        ends.add(durable)
    assert ends == {True, False}


async def test_an_engine_that_has_no_word_for_a_moment_is_waited_for() -> None:
    world = World(Limits(pause=30.0))
    await world.start()
    saved_save = world.engine.save

    async def save(server: object, request: object) -> None:
        await saved_save(server, request)  # type: ignore[arg-type]
        world.engine.errors["observe"] = TryLater("busy")

    sleep = world.clock.sleep

    async def later(seconds: float) -> None:
        await sleep(seconds)
        if world.clock.time() > 1_800_000_005.0:
            world.engine.errors.clear()

    world.engine.save = save  # type: ignore[method-assign]
    world.clock.sleep = later  # type: ignore[method-assign]
    assert (await world.pause()).phase is Phase.PAUSED


async def test_what_a_port_breaks_is_logged_and_the_server_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    await world.start()
    world.engine.errors["estimate"] = ZeroDivisionError("a bug")
    await world.pause()
    goes_on(world, "internal")
    assert "ZeroDivisionError: a bug" in caplog.text, "with its traceback"


async def test_a_removal_that_does_not_work_is_tried_again_and_not_called_paused() -> None:
    world = World()
    await world.start()
    world.engine.survives_remove = 3
    world.begin_pause()
    with pytest.raises(TryLater, match="stop_unfinished"):
        await world.drive()
    assert world.phase() is Phase.STOPPING
    assert (await world.drive()).phase is Phase.PAUSED


async def test_a_hub_that_was_down_for_longer_than_the_freeze_lets_the_server_go_on() -> None:
    world = World()
    identity = (await world.start()).identity

    async def fails(key: object) -> None:
        raise TryLater("stop_unfinished")

    stop, world.hub.stop = world.hub.stop, fails  # type: ignore[method-assign]
    world.begin_pause()
    with pytest.raises(TryLater):
        await world.drive()
    world.hub.stop = stop  # type: ignore[method-assign]
    await world.restart(down_for=3600.0)
    assert world.phase() is Phase.RUNNING
    assert world.process
    assert world.process.identity == identity
    assert world.workspace.pause
    assert world.workspace.pause.reason == "freeze_broken"
    assert [s.state for s in world.workspace.shelf] == [SnapshotState.SUPERSEDED], "kept: nobody has seen yet that the Hub reaches it"


async def test_a_server_that_ran_on_without_its_hub_row_is_stopped_and_its_user_is_told() -> None:
    world = World()
    identity = (await world.start()).identity

    async def half(key: object) -> None:
        world.rows.discard(world.key)
        raise TryLater("stop_unfinished")

    stop, world.hub.stop = world.hub.stop, half  # type: ignore[method-assign]
    world.begin_pause()
    with pytest.raises(TryLater):
        await world.drive()
    world.hub.stop = stop  # type: ignore[method-assign]
    await world.restart(down_for=3600.0)
    assert world.phase() is Phase.PAUSED
    assert world.process is None
    assert world.workspace.pause
    assert world.workspace.pause.reason == "ran_on"
    await world.resume()
    assert world.process
    assert world.process.identity == identity


async def test_an_identity_that_no_record_can_hold_refuses_the_pause() -> None:
    for kernel in (KernelProcess("k", 1, float("nan")), KernelProcess("k", 2**70, 1.0)):
        world = World()
        process = await world.start()
        world.guest.replays = replace(process.identity, kernels=(kernel,))
        await world.pause()
        goes_on(world, "guest_refused")


async def test_a_pause_under_way_is_joined_by_a_second_driver() -> None:
    world = World()
    await world.start()
    world.begin_pause()
    await asyncio.gather(*(drive(world.ports, world.key) for _ in range(3)))
    assert world.phase() is Phase.PAUSED
    assert [w.phase for w in world.store.history].count(Phase.SAVED) == 1


async def test_a_hub_that_forgot_the_server_does_not_hold_its_pause_open() -> None:
    world = World()
    await world.start()
    world.guest.blockers = ("busy",)
    world.begin_pause()
    world.rows.clear()
    await world.drive()
    assert world.phase() is Phase.RUNNING
    assert world.process


async def test_an_engine_that_cannot_say_whether_it_stands_still_is_not_believed() -> None:
    world = World()
    await world.start()
    world.engine.errors["confirm_frozen"] = TryLater("shim_unreachable")
    await world.pause()
    goes_on(world, "shim_unreachable")
