"""A store whose database is a dictionary of JSON texts: what is not in there did not survive a kill."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import lru_cache

from gke_workspaces_spawner.lifecycle.model import Intent, Key, Move, Owner, Want, Workspace, apply, from_json, to_json
from gke_workspaces_spawner.lifecycle.phases import MOVES
from gke_workspaces_spawner.lifecycle.reasons import Broken, Conflict

from .clock import FakeClock


@lru_cache(maxsize=256)
def _parsed(text: str) -> Workspace:
    return from_json(text)


class FakeStore:
    """Implements the Store protocol; reads what it wrote, through JSON, every time."""

    def __init__(self, clock: FakeClock, database: dict[Key, str]) -> None:
        self.clock = clock
        self.database = database
        self.progress: dict[Key, tuple[float | None, Want | None]] = {}
        self.history: list[Workspace] = []
        self._locks: dict[Key, asyncio.Lock] = {}
        self._asked = asyncio.Event()
        self._observers: list[Callable[[Workspace, Workspace], None]] = []

    @contextlib.asynccontextmanager
    async def exclusive(self, key: Key) -> AsyncIterator[None]:
        async with self._locks.setdefault(key, asyncio.Lock()):
            yield

    def read(self, key: Key) -> Workspace:
        text = self.database.get(key)
        if text is None:
            return Workspace(key, Owner(1, f"lineage-{key.user}-{key.server}"))
        fraction, waits_for = self.progress.get(key, (None, None))
        return replace(_parsed(text), progress=fraction, waits_for=waits_for)

    def commit(self, workspace: Workspace, move: Move) -> Workspace:
        before = self.read(workspace.key)
        if before.phase is not workspace.phase:
            raise Conflict("phase_conflict", f"{before.phase.value}, not {workspace.phase.value}")
        if move.to is not before.phase and move.to not in MOVES[before.phase]:
            raise Broken("phase_conflict", f"no move from {before.phase.value} to {move.to.value}")
        after = self._write(apply(before, move, self.clock.time()))
        for observer in self._observers:
            observer(before, after)
        return after

    def ask(self, key: Key, intent: Intent) -> Workspace:
        before = self.read(key)
        after = self._write(replace(before, intent=intent, revision=before.revision + 1))
        self._asked.set()
        return after

    def note_progress(self, key: Key, fraction: float | None, waits_for: Want | None = None) -> None:
        self.progress[key] = (fraction, waits_for)

    async def asked(self, key: Key) -> Intent:
        while self.read(key).intent is Intent.NONE:
            self._asked.clear()
            await self._asked.wait()
        return self.read(key).intent

    def observe(self, observer: Callable[[Workspace, Workspace], None]) -> None:
        self._observers.append(observer)

    def _write(self, workspace: Workspace) -> Workspace:
        self.progress.pop(workspace.key, None)
        self.database[workspace.key] = json.dumps(to_json(workspace))
        self.history.append(workspace)
        return self.read(workspace.key)
