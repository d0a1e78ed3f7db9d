"""What a crash or a restart of the machine took: servers that ran when this Hub was last there, and are not there any more."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

from ..hubclient import HubClient, HubError
from .settings import Settings
from .stopping import Running

RAN = "SELECT users.name, spawners.name FROM spawners JOIN users ON users.id = spawners.user_id WHERE spawners.server_id IS NOT NULL"


def ran(settings: Settings) -> tuple[Running, ...]:
    """Servers that the Hub's database calls running: asked before the Hub comes up and sets it right."""
    if not settings.database.exists():
        return ()
    try:
        with closing(sqlite3.connect(settings.database, timeout=20)) as database:
            return tuple(Running(user, server) for user, server in database.execute(RAN))
    except sqlite3.Error:  # made by a JupyterHub with other tables, which this one upgrades
        return ()


def lost(client: HubClient, servers: Sequence[Running]) -> list[Running]:
    """Those of them that neither run nor are paused with what they had in memory then."""
    found = []
    for server in servers:
        try:
            view = client.call("GET", f"{server.path}/pause")
        except HubError:  # deleted
            continue
        stopped = view["phase"] == "running" and not view["hub"]["ready"] and not view["hub"]["pending"]
        older = view["phase"] == "paused" and (view["reason"] or {}).get("code") == "ended_by_itself"
        if stopped or older:
            found.append(server)
    return found
