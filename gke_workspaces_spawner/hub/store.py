"""The workspaces in the Hub's database: in each server's own ``state`` column, so they follow the server's deletion.

Sole writer. Spawner objects come and go (popped after a stop, replaced after a failure), so the store holds the workspace
and the spawner's ``get_state`` only copies it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from ..lifecycle.codec import decode
from ..lifecycle.model import Json, Key, Move, Owner, Pause, Want, Workspace, apply, from_json, to_json
from ..lifecycle.phases import MOVES, Intent, Phase
from ..lifecycle.ports import Clock
from ..lifecycle.reasons import Broken, Conflict
from .internals import Internals

FIELD = "gke_workspaces"
"""Our entry in the spawner's state."""
ASIDE = "unreadable"
"""Entry of a workspace's extras: the record that this version could not read, as it was."""

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
        self._entries: dict[Key, tuple[Any, Workspace, dict[str, Json]]] = {}
        """Row, workspace and extras as they are in the database: names are reused, a row object is not."""
        self._locks: dict[Key, asyncio.Lock] = {}
        self._asked: dict[Key, asyncio.Event] = {}
        self._progress: dict[Key, tuple[float | None, Want | None]] = {}
        self._observers: list[Observer] = []
        self._changed: dict[Key, asyncio.Event] = {}

    # ------------------------------------------------------------ protocol

    @contextlib.asynccontextmanager
    async def exclusive(self, key: Key) -> AsyncIterator[None]:
        async with self._locks.setdefault(key, asyncio.Lock()):
            yield

    def read(self, key: Key) -> Workspace:
        """The workspace of a server; a server that has none yet reads as running, with a lineage of its own."""
        _row, workspace, _extras = self._entry(key)
        fraction, waits_for = self._progress.get(key, (None, None))
        return workspace if fraction is None and waits_for is None else replace(workspace, progress=fraction, waits_for=waits_for)

    def commit(self, workspace: Workspace, move: Move) -> Workspace:
        key = workspace.key
        row, current, extras = self._entry(key)
        if current.phase is not workspace.phase:
            raise Conflict("phase_conflict", f"expected {workspace.phase.value}, found {current.phase.value}")
        if move.to is not current.phase and move.to not in MOVES[current.phase]:
            raise Broken("phase_conflict", f"no move from {current.phase.value} to {move.to.value}")
        after = apply(current, move, self._clock.time())
        self._write(row, after, extras)
        if move.to is not current.phase:
            self._progress.pop(key, None)
        self._note_intent(key, after.intent)
        for observer in self._observers:
            try:
                observer(current, after)
            except Exception:  # noqa: BLE001 - an observer never undoes a move: its failure is logged
                self._log.exception("An observer failed on %s -> %s of %s", current.phase.value, after.phase.value, key)
        changed = self._changed.pop(key, None)
        if changed is not None:
            changed.set()
        return after

    def ask(self, key: Key, intent: Intent) -> Workspace:
        row, workspace, extras = self._entry(key)
        after = replace(workspace, intent=intent, revision=workspace.revision + 1)
        self._write(row, after, extras)
        self._note_intent(key, intent)
        return after

    def note_progress(self, key: Key, fraction: float | None, waits_for: Want | None = None) -> None:
        self._progress[key] = (fraction, waits_for)

    async def asked(self, key: Key) -> Intent:
        event = self._asked.setdefault(key, asyncio.Event())
        if self.read(key).intent is not Intent.NONE:
            return self.read(key).intent
        await event.wait()
        return self.read(key).intent

    def observe(self, observer: Observer) -> None:
        self._observers.append(observer)

    # ------------------------------------------------------------ beyond the protocol

    def changed(self, key: Key) -> Coroutine[Any, Any, object]:
        """Wait for the next commit on that workspace, counted from this call (not from when it is first awaited)."""
        return self._changed.setdefault(key, asyncio.Event()).wait()

    def renew_lineage(self, key: Key, user_id: int) -> Workspace:
        """A cold start begins: a new lineage, which nothing saved before belongs to."""
        row, workspace, extras = self._entry(key)
        after = replace(workspace, owner=Owner(user_id, new_lineage()), revision=workspace.revision + 1)
        self._write(row, after, extras)
        return after

    def extra(self, key: Key) -> dict[str, Json]:
        """What the hub side keeps beside the workspace (ids of token rows): small, without secrets."""
        return dict(self._entry(key)[2])

    def update_extra(self, key: Key, **changes: Json) -> None:
        """Set entries of the extras; ``None`` removes one."""
        row, workspace, extras = self._entry(key)
        after = {name: value for name, value in {**extras, **changes}.items() if value is not None}
        if after != extras:
            self._write(row, workspace, after)

    def state(self, key: Key) -> dict[str, Json]:
        """Our part of the spawner's state, for its ``get_state``; nothing for a server without a record."""
        row, workspace, extras = self._entry(key)
        return _state(workspace, extras) if row is not None and FIELD in (row.state or {}) else {}

    def forget(self, key: Key) -> None:
        """The server's row is gone, or has another name now."""
        self._entries.pop(key, None)
        self._locks.pop(key, None)
        self._asked.pop(key, None)
        self._progress.pop(key, None)

    def all(self) -> Iterator[Workspace]:
        """Every workspace that has a record, from the database (also of servers that the Hub has not loaded)."""
        for row in self._internals.orm_spawners():
            if row.user is not None and FIELD in (row.state or {}):
                yield self.read(Key(row.user.name, row.name))

    # ------------------------------------------------------------ private

    def _entry(self, key: Key) -> tuple[Any, Workspace, dict[str, Json]]:
        row = self._internals.orm_spawner(key)
        if row is None:
            return None, Workspace(key, Owner(0, new_lineage())), {}
        entry = self._entries.get(key)
        if entry is None or entry[0] is not row:
            entry = self._entries[key] = (row, *self._load(key, row))
            self._note_intent(key, entry[1].intent)
        return entry

    def _load(self, key: Key, row: Any) -> tuple[Workspace, dict[str, Json]]:
        """The record in a row. One that cannot be read is kept aside, and the server starts anew with the reason for it."""
        saved: Any = (row.state or {}).get(FIELD)
        saved = saved if isinstance(saved, dict) else {}
        extras = dict(saved["extra"]) if isinstance(saved.get("extra"), dict) else {}
        new = Workspace(key, Owner(row.user.id, new_lineage()), Phase.RUNNING, phase_since=self._clock.time())
        record = saved.get("workspace")
        if record is None:
            return new, extras
        try:
            return replace(from_json(record), key=key), extras
        except Broken as error:
            self._log.error("The record of %s cannot be read and is kept aside: %s", key, error)
        with contextlib.suppress(Broken, KeyError, TypeError):
            new = replace(new, owner=decode(Owner, record["owner"], "owner"))  # a server that runs is found by its lineage
        return replace(new, pause=Pause(ASIDE, reason="record_unreadable")), {**extras, ASIDE: record}

    def _write(self, row: Any, workspace: Workspace, extras: dict[str, Json]) -> None:
        """To the database first: memory never knows more than what survives a kill."""
        if row is None:
            return
        workspace = replace(workspace, progress=None, waits_for=None)
        row.state = {**(row.state or {}), **_state(workspace, extras)}
        try:
            self._internals.db.commit()
        except SQLAlchemyError:
            self._internals.db.rollback()
            raise
        self._entries[workspace.key] = (row, workspace, extras)

    def _note_intent(self, key: Key, intent: Intent) -> None:
        event = self._asked.setdefault(key, asyncio.Event())
        if intent is Intent.NONE:
            event.clear()
        else:
            event.set()


def _state(workspace: Workspace, extras: Mapping[str, Json]) -> dict[str, Json]:
    return {FIELD: {"workspace": to_json(workspace), "extra": dict(extras)}}
