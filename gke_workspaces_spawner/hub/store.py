"""The workspaces in the Hub's database: in each server's own ``state`` column, so they follow the server's deletion.

Sole writer. Spawner objects come and go (popped after a stop, replaced after a failure), so the store holds the workspace
and the spawner's ``get_state`` only copies it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..lifecycle.model import Json, Key, Move, Owner, Workspace, apply, from_json, to_json
from ..lifecycle.phases import MOVES, Intent, Phase
from ..lifecycle.ports import Clock
from ..lifecycle.reasons import Broken, Conflict
from .internals import Internals

FIELD = "gke_workspaces"
"""Our entry in the spawner's state."""

Observer = Callable[[Workspace, Workspace], None]


def new_lineage() -> str:
    """128 random bits, hex."""
    return secrets.token_hex(16)


class HubStore:
    """Implements :class:`~..lifecycle.ports.Store` on the Hub's database."""

    def __init__(self, internals: Internals, clock: Clock, log: logging.Logger) -> None:
        self._internals = internals
        self._clock = clock
        self._log = log
        self._workspaces: dict[Key, Workspace] = {}
        self._extras: dict[Key, dict[str, Json]] = {}
        self._locks: dict[Key, asyncio.Lock] = {}
        self._asked: dict[Key, asyncio.Event] = {}
        self._progress: dict[Key, tuple[float | None, str]] = {}
        self._observers: list[Observer] = []
        self._changed: dict[Key, asyncio.Event] = {}

    # ------------------------------------------------------------ protocol

    @contextlib.asynccontextmanager
    async def exclusive(self, key: Key) -> AsyncIterator[None]:
        async with self._locks.setdefault(key, asyncio.Lock()):
            yield

    def read(self, key: Key) -> Workspace:
        """The workspace of a server; a server that has none yet reads as running, with a lineage of its own."""
        workspace = self._workspaces.get(key)
        if workspace is None:
            workspace = self._load(key)
            self._workspaces[key] = workspace
        fraction, _detail = self._progress.get(key, (None, ""))
        return workspace if fraction is None else replace(workspace, progress=fraction)

    def commit(self, workspace: Workspace, move: Move) -> Workspace:
        key = workspace.key
        current = self._workspaces.get(key) or self._load(key)
        if current.phase is not workspace.phase:
            raise Conflict("phase_conflict", f"expected {workspace.phase.value}, found {current.phase.value}")
        if move.to is not current.phase and move.to not in MOVES[current.phase]:
            raise Broken("phase_conflict", f"no move from {current.phase.value} to {move.to.value}")
        after = apply(current, move, self._clock.time())
        self._write(key, after)
        if move.to is not current.phase:
            self._progress.pop(key, None)
        if after.intent is Intent.NONE:
            self._asked.setdefault(key, asyncio.Event()).clear()
        for observer in self._observers:
            try:
                observer(current, after)
            except Exception:  # an observer never undoes a move: it is told, its failure is logged
                self._log.exception("An observer failed on %s -> %s of %s", current.phase.value, after.phase.value, key)
        changed = self._changed.pop(key, None)
        if changed is not None:
            changed.set()
        return after

    def ask(self, key: Key, intent: Intent) -> Workspace:
        after = replace(self.read(key), intent=intent)
        after = replace(after, revision=after.revision + 1, progress=None)
        self._write(key, after)
        event = self._asked.setdefault(key, asyncio.Event())
        event.set() if intent is not Intent.NONE else event.clear()
        return after

    def note_progress(self, key: Key, fraction: float | None, detail: str = "") -> None:
        self._progress[key] = (fraction, detail)

    async def asked(self, key: Key) -> Intent:
        event = self._asked.setdefault(key, asyncio.Event())
        if self.read(key).intent is not Intent.NONE:
            return self.read(key).intent
        await event.wait()
        return self.read(key).intent

    def observe(self, observer: Observer) -> None:
        self._observers.append(observer)

    # ------------------------------------------------------------ beyond the protocol

    async def changed(self, key: Key) -> None:
        """Wait for the next commit on that workspace."""
        await self._changed.setdefault(key, asyncio.Event()).wait()

    def renew_lineage(self, key: Key, user_id: int) -> Workspace:
        """A cold start begins: a new lineage, which nothing saved before belongs to."""
        after = replace(self.read(key), owner=Owner(user_id, new_lineage()), progress=None)
        after = replace(after, revision=after.revision + 1)
        self._write(key, after)
        return after

    def replace_shelf(self, workspace: Workspace, move: Move) -> Workspace:
        """Write a change of the shelf outside a drive (retention)."""
        return self.commit(workspace, move)

    def extra(self, key: Key) -> dict[str, Json]:
        """What the hub side keeps beside the workspace (ids of token rows): small, without secrets."""
        self.read(key)
        return dict(self._extras.get(key, {}))

    def set_extra(self, key: Key, extra: Mapping[str, Json]) -> None:
        self.read(key)
        self._extras[key] = dict(extra)
        self._write(key, self._workspaces[key])

    def state(self, key: Key) -> dict[str, Json]:
        """Our part of the spawner's state, for its ``get_state``."""
        workspace = self.read(key)
        return {FIELD: {"workspace": to_json(replace(workspace, progress=None)), "extra": self._extras.get(key, {})}}

    def forget(self, key: Key) -> None:
        """The server's row is gone."""
        for table in (self._workspaces, self._extras, self._locks, self._asked, self._progress):
            table.pop(key, None)  # type: ignore[attr-defined]

    def all(self) -> Iterator[Workspace]:
        """Every workspace that has a record, from the database (also of servers that the Hub has not loaded)."""
        for row in self._internals.orm_spawners():
            if row.user is not None and FIELD in (row.state or {}):
                yield self.read(Key(row.user.name, row.name))

    # ------------------------------------------------------------ private

    def _load(self, key: Key) -> Workspace:
        row = self._internals.orm_spawner(key)
        saved: Any = (row.state or {}).get(FIELD) if row is not None else None
        user_id = row.user.id if row is not None else 0
        if isinstance(saved, dict) and isinstance(saved.get("workspace"), dict):
            extra = saved.get("extra")
            self._extras[key] = dict(extra) if isinstance(extra, dict) else {}
            workspace = from_json(saved["workspace"])
            if workspace.intent is not Intent.NONE:
                self._asked.setdefault(key, asyncio.Event()).set()
            return replace(workspace, key=key)
        return Workspace(key, Owner(user_id, new_lineage()), Phase.RUNNING, phase_since=self._clock.time())

    def _write(self, key: Key, workspace: Workspace) -> None:
        self._workspaces[key] = workspace
        row = self._internals.orm_spawner(key)
        if row is None:
            return
        row.state = {**(row.state or {}), **self.state(key)}
        self._internals.db.commit()
