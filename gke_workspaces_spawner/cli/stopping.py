"""How the demo stops: running servers are paused, with a line for each phase; or, at a second Ctrl-C, ended at once."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..hubclient import HubClient, HubError
from ..sandbox import Sandboxes
from ..sandbox.room import Room, rooms
from .people import users
from .say import say
from .settings import Settings

POLL = 0.2
READY_SECONDS = 60.0
"""How long a server that is just starting is waited for before it is left to itself."""
RESUMING = frozenset({"waiting", "restoring"})
CONFLICT = 409
"""Status of a call that does not fit the phase."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that is not stopped."""

    user: str
    name: str

    @property
    def path(self) -> str:
        """In REST."""
        where = f"/servers/{quote(self.name, safe='')}" if self.name else "/server"
        return f"/users/{quote(self.user, safe='')}{where}"

    def __str__(self) -> str:
        return f"{self.user}/{self.name}" if self.name else self.user


def running(client: HubClient) -> dict[Running, dict[str, Any]]:
    """Servers that run, start or stop now, with the Hub's model of each."""
    found: dict[Running, dict[str, Any]] = {}
    for user in users(client):
        for name, server in (user.get("servers") or {}).items():
            if server.get("ready") or server.get("pending"):
                found[Running(user["name"], name)] = server
    return found


def pause_all(client: HubClient) -> list[Running]:
    """Pause everything that runs, also what somebody starts meanwhile; returns what could not be paused, each said with its reason."""
    waiting = list(running(client))
    if not waiting:
        return []
    say(f"Pausing {len(waiting)} server{'s' if len(waiting) > 1 else ''}; press Ctrl-C again to stop at once (what is not paused is lost).")
    begin = time.monotonic()
    looks: dict[Running, _Look] = {}
    left: list[Running] = []
    while waiting:
        undecided = []
        for server in waiting:
            look = looks.setdefault(server, _Look(client, server, time.monotonic()))
            try:
                outcome = look.next()
            except HubError as error:
                outcome = f"could not be paused: {error}"
            if outcome is None:
                undecided.append(server)
            elif outcome:
                say(f"  {server}: {outcome}")
                left.append(server)
            elif not look.paused:
                look.paused = True
                say(f"  {server}: paused after {time.monotonic() - begin:.1f} s")
        waiting = list(dict.fromkeys([*undecided, *(server for server in running(client) if server not in left)]))
        if waiting:
            time.sleep(POLL)
    return left


class _Look:
    """Looks at one server again and again, and asks for what it needs to be paused."""

    def __init__(self, client: HubClient, server: Running, begin: float) -> None:
        self._client = client
        self._server = server
        self._begin = begin
        self._asked = False
        self._cancelled: set[str] = set()
        self._said = "running"
        self.paused = False

    def next(self) -> str | None:
        """``None`` = go on looking, ``""`` = paused (or stopped by somebody), else why it is not."""
        record = self._client.call("GET", f"{self._server.path}/pause")
        phase = str(record.get("phase"))
        if phase == "paused":
            self._asked = False  # somebody may resume it before all others are paused
            return "" if record.get("intent") == "none" else None
        self.paused = False
        if phase != self._said:
            self._said = phase
            if phase != "running":
                say(f"  {self._server}: {phase}")
        if phase == "unproven":
            return f"is unproven and stays: {record.get('sentence', '')}"
        if phase in RESUMING:
            self._cancel(record["pause"]["id"])
            return None
        return self._pause(record) if phase == "running" else None

    def _cancel(self, pause_id: str) -> None:
        """A resume that is broken off is paused again at once, and one that waits for room would take long."""
        if pause_id not in self._cancelled:
            self._cancelled.add(pause_id)
            try:
                self._client.call("POST", f"{self._server.path}/pause/{pause_id}/cancel", {})
            except HubError as error:
                if error.status != CONFLICT:  # it has ended meanwhile
                    raise

    def _pause(self, record: dict[str, Any]) -> str | None:
        if self._asked:
            return f"could not be paused and goes on: {record.get('sentence') or record.get('reason') or 'no reason given'}"
        model = running(self._client).get(self._server)
        if model is None:
            return ""  # it was stopped meanwhile
        if model.get("ready") and not model.get("pending"):
            self._client.call("POST", f"{self._server.path}/pause", {})
            self._asked = True
            return None
        seconds = time.monotonic() - self._begin
        return None if seconds < READY_SECONDS else f"is still starting after {READY_SECONDS:.0f} s and goes on"


def alive(settings: Settings) -> int:
    """How many sandboxes of the state folder run; needs no Hub."""
    state = Path(settings.state)
    sentries = [Room(state, each).sentry() for each in rooms(state)]
    return sum(sentry is not None and sentry.alive() for sentry in sentries)


def end_sandboxes(settings: Settings, network: Any) -> tuple[str, ...]:
    """End every sandbox of the state folder at once; snapshots and homes stay. Returns their ids."""

    key = Path(settings.state, "keys", "mac")
    if not key.exists():
        return ()
    sandboxes = Sandboxes(Path(settings.state), runsc=Path(settings.runsc), network=network, mac_key=key.read_bytes())

    async def end() -> tuple[str, ...]:
        ids = await sandboxes.ids()
        await asyncio.gather(*(sandboxes.remove(each) for each in ids))
        return ids

    return asyncio.run(end())
