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
from .people import users
from .say import say
from .settings import Settings

POLL = 0.2
READY_SECONDS = 60.0
"""How long a server that is just starting is waited for before it is left to itself."""
DONE = frozenset({"paused", "unproven"})


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
    """Pause everything that runs; returns what could not be paused, each said with its reason."""
    waiting = running(client)
    if not waiting:
        return []
    say(f"Pausing {len(waiting)} server{'s' if len(waiting) > 1 else ''}; press Ctrl-C again to stop at once (what is not paused is lost).")
    begin = time.monotonic()
    asked: dict[Running, str] = {}
    left: list[Running] = []
    while waiting:
        for server in list(waiting):
            try:
                outcome = _next(client, server, asked, time.monotonic() - begin)
            except HubError as error:
                outcome = f"could not be paused: {error}"
            if outcome is None:
                continue
            del waiting[server]
            if outcome:
                say(f"  {server}: {outcome}")
                left.append(server)
            else:
                say(f"  {server}: paused after {time.monotonic() - begin:.1f} s")
        if waiting:
            time.sleep(POLL)
    return left


def _next(client: HubClient, server: Running, asked: dict[Running, str], seconds: float) -> str | None:
    """One look at a server: ``None`` = go on looking, ``""`` = paused, else why it is not."""
    record = client.call("GET", f"{server.path}/pause")
    phase = str(record.get("phase"))
    if phase == "paused":
        return ""
    if phase in DONE:
        return f"is {phase} and stays: {record.get('sentence', '')}"
    if server not in asked and phase == "running":
        model = running(client).get(server)
        if model is None:
            return ""  # it was stopped meanwhile
        if model.get("ready") and not model.get("pending"):
            client.call("POST", f"{server.path}/pause", {})
            asked[server] = ""
            return None
        return None if seconds < READY_SECONDS else f"is still starting after {READY_SECONDS:.0f} s and goes on"
    if server in asked and phase == "running":
        return f"could not be paused and goes on: {record.get('sentence') or record.get('reason') or 'no reason given'}"
    if asked.get(server) != phase:
        asked[server] = phase
        say(f"  {server}: {phase}")
    return None


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
