"""A drive that only the moment was against is begun again by itself; never two drives of one server, and nobody waits for another's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gke_workspaces_spawner.hub.supervisor import ROOM_SECONDS, Supervisor
from gke_workspaces_spawner.lifecycle.model import Intent, Key
from gke_workspaces_spawner.lifecycle.phases import Phase
from gke_workspaces_spawner.lifecycle.ports import Failed, Limits
from gke_workspaces_spawner.lifecycle.reasons import Refused, TryLater
from tests.fakes import World

OUTAGE = TryLater("cluster_unreachable")


def supervisor_of(world: World) -> Supervisor:
    world.store.all = lambda: iter([world.workspace])  # type: ignore[attr-defined]
    return Supervisor(world.ports, world.store, SimpleNamespace(), logging.getLogger(__name__))  # type: ignore[arg-type]


async def until(true: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to be")


class Counted:
    """A method of the fake engine that counts who is in it, and when they came."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.inside, self.most = world, 0, 0
        self.at: list[float] = []
        self.real: Any = getattr(world.engine, name)
        setattr(world.engine, name, self)

    async def __call__(self, *args: Any) -> Any:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.at.append(self.world.clock.time())
        try:
            await asyncio.sleep(0)
            return await self.real(*args)
        finally:
            self.inside -= 1


async def pausing_in_an_outage() -> tuple[World, Supervisor, Counted]:
    """A pause that can go neither on nor back, and who asks whether it still cannot; its drive is not begun."""
    world = World()
    await world.start()
    world.engine.errors["confirm_frozen"] = world.engine.errors["thaw"] = OUTAGE
    world.begin_pause()
    return world, supervisor_of(world), Counted(world, "confirm_frozen")


async def test_a_pause_in_an_outage_goes_on_by_itself_with_growing_pauses_and_nobody_waits_for_it() -> None:
    world, supervisor, asked = await pausing_in_an_outage()
    assert (await supervisor.join(world.key)).phase is Phase.SAVED, "whoever joined it is told as soon as it can not go on"
    await until(lambda: len(asked.at) == 8)
    world.engine.errors.clear()
    await until(lambda: world.phase() is Phase.PAUSED)
    waits = [round(after - before) for before, after in zip(asked.at, asked.at[1:], strict=False)]
    assert waits[:7] == [1, 2, 4, 8, 15, 15, 15]


async def test_after_it_went_on_the_next_outage_is_waited_out_from_the_shortest_pause_again() -> None:
    world = World()
    await world.start()
    supervisor = supervisor_of(world)
    for _ in range(2):
        world.engine.errors["confirm_frozen"] = world.engine.errors["thaw"] = OUTAGE
        asked = Counted(world, "confirm_frozen")
        world.begin_pause()
        supervisor.drive(world.key)
        await until(lambda: len(asked.at) == 3)  # noqa: B023 - called before the next turn
        assert [round(asked.at[1] - asked.at[0]), round(asked.at[2] - asked.at[1])] == [1, 2]
        world.engine.errors.clear()
        await until(lambda: world.phase() is Phase.PAUSED)
        world.engine.confirm_frozen = asked.real  # type: ignore[method-assign]
        await world.resume()


async def test_kicks_and_polls_while_a_drive_waits_to_go_on_never_make_two_of_it() -> None:
    world, supervisor, asked = await pausing_in_an_outage()
    supervisor.drive(world.key)
    for _ in range(20):
        supervisor.kick()
        assert supervisor.drive(world.key) is supervisor.drive(world.key)
        await asyncio.sleep(0)
    await until(lambda: len(asked.at) > 10)
    world.engine.errors.clear()
    await until(lambda: world.phase() is Phase.PAUSED)
    assert asked.most == 1
    assert not supervisor._again


async def test_what_somebody_else_brought_to_rest_meanwhile_stays_there() -> None:
    world, supervisor, asked = await pausing_in_an_outage()
    await supervisor.join(world.key)
    world.engine.errors.clear()
    await world.drive()  # by somebody else
    assert world.phase() is Phase.PAUSED
    seen = len(asked.at)
    await until(lambda: not supervisor._again)
    assert len(asked.at) == seen


async def test_an_error_that_no_later_moment_mends_is_left_to_the_next_kick() -> None:
    world = World()
    await world.start()
    supervisor = supervisor_of(world)
    world.engine.errors["confirm_frozen"] = world.engine.errors["thaw"] = ValueError("a bug")
    world.begin_pause()
    await supervisor.join(world.key)
    assert not supervisor._again


# ---------------------------------------------------------------- a removal that is asked for in a pause


async def test_a_removal_waits_out_an_outage() -> None:
    world, supervisor, asked = await pausing_in_an_outage()
    removable = supervisor.stopped(world.key)
    await until(lambda: len(asked.at) == 3)
    assert not removable.done()
    world.engine.errors.clear()
    await removable
    assert world.phase() is Phase.PAUSED


async def test_a_server_whose_pause_comes_to_nothing_is_stopped_for_its_removal_and_not_resumed() -> None:
    for fails in (True, False):
        world = World()
        await world.start()
        if fails:
            world.engine.save_fails = Failed("disk_full", "", True)
        world.begin_pause()
        supervisor = supervisor_of(world)
        removable = supervisor.stopped(world.key)
        await asyncio.sleep(0)
        world.store.ask(world.key, Intent.RESUME)
        await removable
        await until(lambda: not supervisor._afters)  # noqa: B023 - called before the next turn
        assert world.process is None
        assert world.phase() is (Phase.RUNNING if fails else Phase.PAUSED)


async def test_a_server_that_cannot_be_stopped_is_not_removed(caplog: pytest.LogCaptureFixture) -> None:
    """The Hub waits for a future that is cancelled then: an error would be one that nobody looks at."""
    world = World()
    await world.start()
    world.engine.save_fails = Failed("disk_full", "", True)
    world.engine.errors["remove"] = OUTAGE
    world.begin_pause()
    removable = supervisor_of(world).stopped(world.key)
    await asyncio.wait([removable])
    assert removable.cancelled()
    assert "is not removed" in caplog.text


# ---------------------------------------------------------------- what is refused before anything begins


@pytest.mark.parametrize(
    ("spawner", "code"),
    [
        (None, "not_running"),
        (SimpleNamespace(ready=False, workspace_refusal=lambda: None), "not_running"),
        (SimpleNamespace(ready=True, workspace_refusal=lambda: "Its profile is not pausable."), "not_pausable"),
    ],
)
async def test_a_server_that_is_not_up_or_not_made_for_it_is_not_paused(spawner: Any, code: str) -> None:
    world = World()
    await world.start()
    supervisor = Supervisor(world.ports, world.store, SimpleNamespace(spawner=lambda key: spawner), logging.getLogger(__name__))  # type: ignore[arg-type]
    with pytest.raises(Refused) as refused:
        supervisor.pause(world.key)
    assert refused.value.code == code
    assert refused.value.detail == (spawner.workspace_refusal() or "" if spawner else "")
    assert world.phase() is Phase.RUNNING
    assert not supervisor._tasks


@pytest.mark.parametrize("pending", [None, "spawn"])
async def test_a_fresh_start_that_the_hub_refuses_before_it_begins_makes_no_later_start_a_fresh_one(pending: str | None) -> None:
    world = World()
    await world.start()
    await world.pause()
    spawner = SimpleNamespace(pending=pending)
    supervisor = Supervisor(world.ports, world.store, SimpleNamespace(spawner=lambda key: spawner), logging.getLogger(__name__))  # type: ignore[arg-type]
    asked = world.clock.time()
    supervisor.ask_fresh(world.key)
    if pending:  # a slow hook decides
        await until(lambda: world.clock.time() > asked + 60)
        assert world.workspace.intent is Intent.FRESH
        spawner.pending = None
    await until(lambda: world.workspace.intent is Intent.NONE)
    assert world.phase() is Phase.PAUSED


# ---------------------------------------------------------------- a resume that the Hub gives up


async def test_a_resume_that_the_hub_gives_up_leaves_no_server_and_no_token_with_power() -> None:
    world = World(Limits(restore=1e6))
    await world.start()
    await world.pause()
    world.guest.restored = never  # type: ignore[method-assign, assignment]
    world.begin_resume()
    supervisor = supervisor_of(world)
    supervisor.drive(world.key)
    await until(lambda: world.process is not None and world.key not in world.hub.suspended)
    await supervisor.interrupt(world.key)
    assert world.phase() is Phase.PAUSED
    assert world.process is None
    assert world.key in world.hub.suspended


async def test_a_drive_begun_while_a_resume_is_given_up_starts_nothing() -> None:
    """It would put a pod in line that nobody speaks of once the workspace is paused."""
    world = World()
    world.engine.abilities = replace(world.engine.abilities, reserves=True)
    await world.start()
    await world.pause()
    world.engine.room_from = world.clock.time() + 10_000
    world.begin_resume()
    supervisor = supervisor_of(world)
    supervisor.drive(world.key)
    await until(lambda: world.process is not None)

    launches, removing, go_on = world.engine.launches, asyncio.Event(), asyncio.Event()
    real = world.engine.remove

    async def slow(server: Any) -> None:
        await real(server)
        removing.set()
        await go_on.wait()

    world.engine.remove = slow  # type: ignore[method-assign]
    giving_up = asyncio.ensure_future(supervisor.interrupt(world.key))
    await removing.wait()
    supervisor.kick()
    for _ in range(50):
        await asyncio.sleep(0)
    go_on.set()
    await giving_up
    assert world.phase() is Phase.PAUSED
    await until(lambda: not supervisor._tasks)
    assert world.engine.launches == launches
    assert world.process is None


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.RESTORING])
async def test_a_resume_that_was_given_up_in_an_outage_is_paused_afterwards_and_not_resumed(phase: Phase) -> None:
    world = World(Limits(restore=1e6))
    await world.start()
    await world.pause()
    if phase is Phase.WAITING:
        world.engine.room_from = world.clock.time() + 10_000
    else:
        world.guest.unreachable.add("restored")
        world.ports.hub._port.launch = never  # type: ignore[attr-defined]
    world.begin_resume()
    supervisor = supervisor_of(world)
    supervisor.drive(world.key)
    await until(lambda: world.phase() is phase)
    world.engine.errors["remove"] = OUTAGE
    with pytest.raises(TryLater):
        await supervisor.interrupt(world.key)
    assert world.phase() is phase
    launches = world.engine.launches
    world.engine.errors.clear()
    world.engine.room_from = 0.0
    await until(lambda: world.phase() is Phase.PAUSED)
    assert world.engine.launches == launches
    assert world.workspace.intent is Intent.NONE
    assert world.process is None


async def never(*_: Any) -> None:
    await asyncio.Event().wait()


# ---------------------------------------------------------------- a resume that waits for room


async def outside(world: World, supervisor: Supervisor) -> None:
    """What the spawner's ``start`` does for a resume without room: it looks for a while and leaves it to the drive."""
    await world.start()
    await world.pause()
    world.engine.room_from = world.clock.time() + 10_000
    world.hub.spawning.add(world.key)
    begun = world.clock.time()
    assert (await supervisor.resume(world.key)).phase is Phase.WAITING
    assert ROOM_SECONDS <= world.clock.time() - begun < ROOM_SECONDS + 2
    world.hub.spawning.discard(world.key)


def with_changes(world: World) -> Supervisor:
    """The fake store has no word for a change: whoever waits for one sees it at the next look."""
    supervisor = supervisor_of(world)
    world.store.changed = lambda key: asyncio.sleep(0)  # type: ignore[attr-defined]
    return supervisor


async def test_a_start_steps_out_of_a_resume_without_room_and_a_later_one_goes_on_with_it() -> None:
    world = World(Limits(waiting=1e6))
    supervisor = with_changes(world)
    await outside(world, supervisor)
    revision = world.workspace.revision
    world.hub.spawning.add(world.key)  # the Hub's next start, before there is room
    assert (await supervisor.resume(world.key)).phase is Phase.WAITING
    assert world.workspace.revision == revision, "no second resume was begun"
    world.engine.room_from = 0.0
    workspace = await supervisor.resume(world.key)
    assert workspace.phase in (Phase.RESTORING, Phase.RUNNING)
    await until(lambda: world.phase() is Phase.RUNNING)
    assert world.engine.launches == 1


async def test_a_start_does_not_step_out_in_the_middle_of_what_is_only_possible_inside_of_it() -> None:
    world = World(Limits(waiting=1e6))
    world.engine.abilities = replace(world.engine.abilities, reserves=True)
    supervisor = with_changes(world)
    render = world.hub.plain_launch

    async def slow(key: Key) -> Any:
        await world.clock.sleep(3 * ROOM_SECONDS)
        return await render(key)

    await world.start()
    await world.pause()
    world.hub.plain_launch = slow  # type: ignore[method-assign]
    world.engine.room_from = world.clock.time() + 10_000
    world.hub.spawning.add(world.key)
    begun = world.clock.time()
    assert (await supervisor.resume(world.key)).phase is Phase.WAITING
    assert world.clock.time() - begun >= 3 * ROOM_SECONDS
    assert world.process is not None, "it stands in line"


async def test_a_stop_call_ends_a_wait_and_touches_nothing_else() -> None:
    world = World(Limits(waiting=1e6))
    supervisor = with_changes(world)
    await outside(world, supervisor)
    supervisor.stop_waiting(world.key)
    await until(lambda: world.phase() is Phase.PAUSED)
    assert world.workspace.pause
    assert world.workspace.pause.reason == "cancelled"
    revision = world.workspace.revision
    supervisor.stop_waiting(world.key)
    assert world.workspace.revision == revision


# ---------------------------------------------------------------- looking after everybody


async def test_one_deletion_that_is_stuck_keeps_no_kick_from_looking_after_others() -> None:
    world = World()
    supervisor = supervisor_of(world)
    compared = 0

    async def compare() -> None:
        nonlocal compared
        compared += 1
        await asyncio.Event().wait()

    supervisor.reconcile = compare
    supervisor.kick()
    await asyncio.sleep(0)
    await world.start()
    world.begin_pause()
    supervisor.kick()
    await until(lambda: world.phase() is Phase.PAUSED)
    assert compared == 1
    supervisor._comparison.cancel()  # type: ignore[union-attr]


async def test_a_server_that_waits_for_room_keeps_no_kick_from_looking_after_others() -> None:
    world = World()
    await world.start()
    await world.pause()
    world.engine.room_from = world.clock.time() + 10_000_000
    world.begin_resume()
    supervisor = supervisor_of(world)
    supervisor.kick()
    await until(lambda: world.phase() is Phase.WAITING)
    seen: list[Key] = []
    supervisor.drive = lambda key: seen.append(key)  # type: ignore[method-assign,assignment,return-value]
    supervisor.kick()
    assert seen == [world.key]
