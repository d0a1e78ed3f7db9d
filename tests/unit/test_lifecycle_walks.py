"""Random lives of a server: calls, faults, kills and nights in any order. A session is never lost but by its user's own wish."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gke_workspaces_spawner.lifecycle import resuming
from gke_workspaces_spawner.lifecycle.drive import drive, retain
from gke_workspaces_spawner.lifecycle.model import Identity, Intent, SnapshotState
from gke_workspaces_spawner.lifecycle.phases import Phase
from gke_workspaces_spawner.lifecycle.ports import Failed, Limits, Signal
from gke_workspaces_spawner.lifecycle.reasons import LifecycleError, Refused, TryLater
from tests.fakes import World

PAUSE_FAULTS = [
    "none",
    "none",
    "save fails",
    "save hangs",
    "freeze broken",
    "refused",
    "guest refuses",
    "guest silent",
    "not allowed",
    "sticky",
]
RESUME_FAULTS = ["none", "none", "fresh", "crash", "unknown", "no room", "unreachable", "silent", "changed", "not allowed", "sticky"]
KILLS = st.none() | st.integers(1, 60)
DOWN = st.sampled_from([0.5, 30.0, 4000.0])
ASKS = st.none() | st.tuples(st.sampled_from(list(Phase)), st.sampled_from([Intent.CANCEL, Intent.RESUME]))


class Life(RuleBasedStateMachine):
    """One server and its Hub."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = World(Limits(pause=2.0, waiting=3.0, poll=0.5))
        self.session: Identity | None = None
        """What must not be lost now; ``None`` once its user gave it up or it ended before anything was saved of it."""

    def teardown(self) -> None:
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @property
    def phase(self) -> Phase:
        return self.world.workspace.phase

    def settle(self, kill: int | None, down: float) -> None:
        """Drive, killed where asked, then without faults until it stands."""
        world = self.world

        async def go() -> None:
            try:
                dead = kill is not None and await world.killed_at(kill, world.drive())
                if kill is None:
                    await world.drive()
            except LifecycleError:
                dead = True
            if dead:
                world.engine.survives_remove = 0
                await world.restart(down)
            await world.hub.poll(world.key)

        self.run(go())
        self.clear_faults()

    def clear_faults(self) -> None:
        engine, guest, hub = self.world.engine, self.world.guest, self.world.hub
        engine.refusal = engine.save_fails = None
        engine.save_hangs = engine.breaks_freeze = engine.policy_changed = False
        engine.restore_gives, engine.room_from = Signal.RESTORED, 0.0
        engine.survives_remove = 0
        engine.changed.clear()
        engine.errors.clear()
        guest.blockers, guest.unreachable = (), set()
        hub.allowed = hub.reachable = True
        hub.start_refused = None

    def ask_in(self, ask: tuple[Phase, Intent] | None) -> None:
        """Somebody asks something as soon as that phase is reached, once."""
        if ask is None:
            return
        asked: list[Intent] = []
        world = self.world

        def observer(_before: object, after: Any) -> None:
            allowed = {Intent.CANCEL: (Phase.PREPARING, Phase.CHECKPOINTING, Phase.SAVED, Phase.WAITING, Phase.RESTORING)}
            fits = allowed.get(ask[1], (Phase.PREPARING, Phase.CHECKPOINTING, Phase.SAVED, Phase.STOPPING))
            if after.phase is ask[0] and after.phase in fits and not asked:
                asked.append(ask[1])
                world.store.ask(world.key, ask[1])

        world.store.observe(observer)

    # ------------------------------------------------------------ rules

    @initialize()
    def first_start(self) -> None:
        self.session = self.run(self.world.start()).identity

    def is_up(self) -> bool:
        return self.phase is Phase.RUNNING and self.world.key in self.world.rows and self.world.process is not None

    @precondition(lambda self: self.phase is Phase.RUNNING and self.world.key not in self.world.rows)
    @rule()
    def start(self) -> None:
        self.session = self.run(self.world.start()).identity

    @precondition(is_up)
    @rule(fault=st.sampled_from(PAUSE_FAULTS), kill=KILLS, down=DOWN, ask=ASKS)
    def pause(self, fault: str, kill: int | None, down: float, ask: tuple[Phase, Intent] | None) -> None:
        engine, guest, hub = self.world.engine, self.world.guest, self.world.hub
        self.ask_in(ask)
        if fault == "save fails":
            engine.save_fails = Failed("disk_full", "", True)
        elif fault == "save hangs":
            engine.save_hangs = True
        elif fault == "freeze broken":
            engine.breaks_freeze = True
        elif fault == "refused":
            engine.refusal = "disk_full"
        elif fault == "guest refuses":
            guest.blockers = ("busy",)
        elif fault == "guest silent":
            guest.unreachable = {"prepare", "thaw", "restored"}
        elif fault == "not allowed":
            hub.allowed = False
        elif fault == "sticky":
            engine.survives_remove = 2
        self.world.begin_pause()
        self.settle(kill, down)

    @precondition(lambda self: self.phase is Phase.PAUSED)
    @rule(fault=st.sampled_from(RESUME_FAULTS), kill=KILLS, down=DOWN, ask=ASKS)
    def resume(self, fault: str, kill: int | None, down: float, ask: tuple[Phase, Intent] | None) -> None:
        engine, guest, hub = self.world.engine, self.world.guest, self.world.hub
        self.ask_in(ask)
        if fault in ("fresh", "crash", "unknown"):
            engine.restore_gives = {"fresh": Signal.FRESH, "crash": Signal.GONE, "unknown": Signal.UNKNOWN}[fault]
        elif fault == "no room":
            engine.room_from = 1e12
        elif fault == "unreachable":
            hub.reachable = False
        elif fault == "silent":
            guest.unreachable = {"restored"}
        elif fault == "changed":
            engine.changed.update(engine.snapshots)
        elif fault == "not allowed":
            hub.allowed = False
        elif fault == "sticky":
            engine.survives_remove = 2
        self.world.begin_resume()
        self.settle(kill, down)

    @precondition(lambda self: self.phase is Phase.PAUSED)
    @rule(refused=st.none() | st.sampled_from([Refused("too_many"), Refused("not_allowed")]))
    def fresh(self, refused: Exception | None) -> None:
        self.world.hub.start_refused = refused
        self.world.store.ask(self.world.key, Intent.FRESH)
        self.settle(None, 0.0)
        if refused:
            assert self.phase is Phase.PAUSED
        else:
            assert self.world.process is not None
            self.session = self.world.process.identity

    @precondition(lambda self: self.phase is Phase.UNPROVEN)
    @rule(kill=KILLS, down=DOWN)
    def retry(self, kill: int | None, down: float) -> None:
        self.world.store.commit(self.world.workspace, resuming.retry(self.world.workspace))
        self.settle(kill, down)
        if kill is None:
            assert self.phase is Phase.RUNNING

    @precondition(lambda self: self.phase is Phase.UNPROVEN)
    @rule()
    def accept(self) -> None:
        self.world.store.commit(self.world.workspace, resuming.accept(self.world.workspace))
        assert self.world.process is not None
        self.session = self.world.process.identity

    @precondition(lambda self: self.phase is Phase.PAUSED)
    @rule(kill=KILLS, down=DOWN)
    def discard(self, kill: int | None, down: float) -> None:
        world = self.world
        self.session = None
        world.store.commit(world.workspace, resuming.begin_discard(world.workspace, world.clock.time()))
        self.settle(kill, down)
        assert self.phase is Phase.RUNNING

    @precondition(lambda self: self.phase in (Phase.RUNNING, Phase.UNPROVEN))
    @rule()
    def stop(self) -> None:
        if self.phase is Phase.RUNNING:
            self.session = None
        self.run(self.world.hub.stop(self.world.key))
        self.settle(None, 0.0)

    @precondition(lambda self: self.phase in (Phase.RUNNING, Phase.UNPROVEN))
    @rule()
    def power_cut(self) -> None:
        last = self.world.workspace.pause
        own = [s.id for s in self.world.workspace.shelf if s.state is SnapshotState.CURRENT and last and s.id == last.snapshot_id]
        ran = self.phase is Phase.RUNNING and self.world.key in self.world.rows
        self.world.engine.crash(self.world.server)
        self.run(self.world.restart(60.0))
        if ran and own:  # back to the last pause of that very process
            pause = self.world.workspace.pause
            assert self.phase is Phase.PAUSED
            assert pause is not None
            assert (pause.reason, pause.snapshot_id) == ("ended_by_itself", own[-1])
        elif ran:
            self.session = None

    @rule(down=DOWN)
    def hub_restart(self, down: float) -> None:
        self.run(self.world.restart(down))

    @rule(days=st.sampled_from([0.5, 2.0, 15.0]), busy=st.booleans())
    def a_night(self, days: float, busy: bool) -> None:
        world = self.world
        was = self.phase
        world.clock.advance(days * 86400)
        if busy:
            world.engine.errors["delete"] = TryLater("busy")
        try:
            self.run(retain(world.ports, world.key))
        except TryLater:
            world.engine.errors.clear()
            self.run(drive(world.ports, world.key))
        world.engine.errors.clear()
        if was is Phase.PAUSED and self.phase is Phase.RUNNING:
            assert days > 14 or world.workspace.pause is None
            self.session = None

    # ------------------------------------------------------------ what always holds

    @invariant()
    def it_stands(self) -> None:
        workspace = self.world.workspace
        assert workspace.phase in (Phase.RUNNING, Phase.PAUSED, Phase.UNPROVEN)
        assert workspace.intent is Intent.NONE

    @invariant()
    def the_session_is_there(self) -> None:
        world, workspace = self.world, self.world.workspace
        if self.session is None:
            return
        if workspace.phase is Phase.RUNNING:
            assert world.process is not None
            assert world.process.identity == self.session
            assert world.process.frozen_for is None
            assert world.key in world.rows
            assert world.key in world.hub.routes
            assert world.key not in world.hub.suspended
        else:
            assert workspace.pause is not None
            assert world.engine.snapshots[str(workspace.pause.snapshot_id)][1] == self.session

    @invariant()
    def paused_means_gone(self) -> None:
        world = self.world
        if world.workspace.phase is Phase.PAUSED:
            assert world.process is None
            assert world.key not in world.rows
            assert world.key not in world.hub.routes
            assert world.key in world.hub.suspended

    @invariant()
    def records_and_bytes_agree(self) -> None:
        assert set(self.world.engine.snapshots) == {s.id for s in self.world.workspace.shelf}


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
