"""What outlives a Hub, and Hubs that are booted in it and killed at any of their calls."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Awaitable
from typing import Any

from gke_workspaces_spawner.lifecycle import resuming
from gke_workspaces_spawner.lifecycle.drive import drive, follow_up
from gke_workspaces_spawner.lifecycle.model import Intent, Key, Workspace
from gke_workspaces_spawner.lifecycle.pausing import begin_pause
from gke_workspaces_spawner.lifecycle.phases import Phase
from gke_workspaces_spawner.lifecycle.ports import Limits, Ports, Server

from .clock import FakeClock
from .engine import FakeEngine, Process
from .guest import FakeGuest
from .hub import FakeHub
from .store import FakeStore


class Killed(BaseException):
    """The Hub was killed here."""


class Killer:
    """Counts the calls of a Hub's ports (each before and after its effect) and kills at one of them."""

    def __init__(self) -> None:
        self.calls = 0
        self.at: int | None = None

    def tick(self) -> None:
        self.calls += 1
        if self.at is not None and self.calls >= self.at:
            raise Killed


class Mortal:
    """A port of a Hub that may be killed."""

    def __init__(self, port: Any, killer: Killer, names: frozenset[str]) -> None:
        self._port, self._killer, self._names = port, killer, names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name not in self._names:
            return found
        if inspect.iscoroutinefunction(found):

            async def call(*args: Any, **kwargs: Any) -> Any:
                self._killer.tick()
                result = await found(*args, **kwargs)
                self._killer.tick()
                return result

            return call

        def call_now(*args: Any, **kwargs: Any) -> Any:
            self._killer.tick()
            result = found(*args, **kwargs)
            self._killer.tick()
            return result

        return call_now


ENGINE = frozenset({"estimate", "save", "observe", "confirm_frozen", "thaw", "manifest", "capacity", "alive", "signal", "remove", "delete"})
GUEST = frozenset({"prepare", "thaw", "restored", "frozen"})
HUB = frozenset({"unroute", "route", "stop", "suspend_tokens", "plain_launch", "launch", "routed", "start", "begin"})
STORE = frozenset({"commit"})


class World:
    """One user's server, the machine that it runs on, and the Hub of the moment."""

    def __init__(self, limits: Limits | None = None, key: Key | None = None) -> None:
        self.key = key or Key("ann", "lab")
        self.clock = FakeClock()
        self.engine = FakeEngine(self.clock)
        self.database: dict[Key, str] = {}
        self.rows: set[Key] = set()
        self.limits = limits or Limits()
        self.guest = FakeGuest(self.engine)
        self.hub = FakeHub(self.engine, self.rows)
        self._boots = itertools.count(1)
        self._pauses = itertools.count(1)
        self.boot()

    def boot(self) -> None:
        """A new life of the Hub: nothing of the last one is left but what :class:`World` keeps."""
        self.killer = Killer()
        self.store = FakeStore(self.clock, self.database)
        self.hub.store = self.guest.store = self.store
        self.store.observe(self.hub.on_commit)
        self.ports = Ports(
            engine=Mortal(self.engine, self.killer, ENGINE),
            guest=Mortal(self.guest, self.killer, GUEST),
            hub=Mortal(self.hub, self.killer, HUB),
            store=Mortal(self.store, self.killer, STORE),
            clock=self.clock,
            limits=self.limits,
            hub_boot=f"hub-{next(self._boots)}",
        )
        self.hub.ports = self.ports

    # ------------------------------------------------------------ what people do

    @property
    def workspace(self) -> Workspace:
        return self.store.read(self.key)

    def phase(self) -> Phase:
        """The phase now; a method, since it changes between two looks."""
        return self.workspace.phase

    @property
    def server(self) -> Server:
        return Server(self.key, self.workspace.owner)

    @property
    def process(self) -> Process | None:
        return self.engine.process(self.server)

    async def start(self) -> Process:
        """A cold start; returns the process."""
        await self.hub.start(self.key, fresh=False)
        process = self.process
        if process is None:
            raise AssertionError("nothing was started")
        return process

    def begin_pause(self) -> Workspace:
        """Press Pause; nothing is driven yet."""
        pause_id = f"p{next(self._pauses)}"
        return self.store.commit(self.workspace, begin_pause(self.workspace, self.clock.time(), pause_id, self.ports.hub_boot))

    def begin_resume(self) -> Workspace:
        """Press Resume; nothing is driven yet."""
        self.hub.spawning.add(self.key)
        return self.store.commit(self.workspace, resuming.begin_resume(self.workspace, self.clock.time(), self.ports.hub_boot))

    def ask_in(self, phase: Phase, intent: Intent) -> None:
        """Somebody asks for something as soon as that phase is reached."""

        def observer(_before: Workspace, after: Workspace) -> None:
            if after.phase is phase:
                self.store.ask(self.key, intent)

        self.store.observe(observer)

    async def drive(self) -> Workspace:
        """One drive, and what was asked to follow it."""
        await drive(self.ports, self.key)
        await follow_up(self.ports, self.key)
        return self.workspace

    async def pause(self) -> Workspace:
        self.begin_pause()
        return await self.drive()

    async def resume(self) -> Workspace:
        self.begin_resume()
        return await self.drive()

    async def killed_at(self, at: int, work: Awaitable[object]) -> bool:
        """Whether the Hub was killed at its ``at``-th call (counted from 1, twice per call) before the work had ended."""
        self.killer.calls, self.killer.at = 0, at
        try:
            await work
        except Killed:
            return True
        finally:
            self.killer.at = None
        return False

    async def restart(self, down_for: float = 2.0) -> Workspace:
        """The killed Hub starts again and settles what is open."""
        self.clock.advance(down_for)
        self.boot()
        await self.hub.restarted()
        await self.drive()
        await self.hub.poll(self.key)
        return self.workspace
