"""What belongs together in one Hub: store, credentials, guest, port, supervisor and an engine, made once per Hub."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from tornado.log import app_log

from ..lifecycle.model import Key, Workspace
from ..lifecycle.pace import Pace, restore_of
from ..lifecycle.phases import OPEN, Phase
from ..lifecycle.ports import Engine, Limits, Ports, Server
from ..lifecycle.words import sentence
from .clock import WallClock
from .credentials import Credentials, Vault
from .guest import HubGuest, guest_secret
from .internals import Internals, after_stops, answer_programs
from .port import JupyterHubPort
from .store import HubStore
from .supervisor import Supervisor

SETTING = "gke_workspaces_hub"
"""Our entry in the Hub's tornado settings."""

OPTIONS = "options"
ENDED = "ended"
"""Entries of the store's extras: options of the last cold start, and the reason code of an end that nobody asked for."""

VaultOf = Callable[[HubStore], Vault]
"""Makes a vault that keeps its secrets in the records."""


class Workspaces:
    """The workspaces of one Hub."""

    def __init__(
        self, settings: MutableMapping[str, Any], engine: Engine, vault: Vault | VaultOf, limits: Limits, homes: Any = None
    ) -> None:
        logging.getLogger("gke_workspaces_spawner").parent = app_log  # so that what we say stands in the Hub's own log
        self.log = logging.getLogger(__name__)
        self.internals = Internals(settings, self.log)
        self.engine = engine
        self.homes = homes
        self.clock = WallClock()
        self.hub_boot = secrets.token_hex(8)
        self.store = HubStore(self.internals, self.clock, self.log)
        self.credentials = Credentials(self.internals, self.store, vault(self.store) if callable(vault) else vault, self.log)
        self.port = JupyterHubPort(self.internals, self.credentials, self.clock, self.log)
        self.guest = HubGuest(self._url_of, self.guest_secret, self.clock, self.log)
        self.limits = limits
        self.ports = Ports(engine, self.guest, self.port, self.store, self.clock, limits, self.hub_boot)
        self.supervisor = Supervisor(self.ports, self.store, self.internals, self.log)

        self.store.observe(self._end_lineage)
        self.store.observe(self._learn_pace)
        self._pace: Pace | None = None
        if not settings.get("subdomain_host"):
            self.log.warning(
                "Users share one origin: a page of one user's server may follow another's. Where they do not trust each other, set "
                "c.JupyterHub.subdomain_host (docs: security of snapshots)."
            )
        answer_programs(_told)
        after_stops(_stopped)

    @property
    def pace(self) -> Pace:
        """How long restores take here; after a restart of the Hub from the receipts of the servers that run."""
        if self._pace is None:
            running = sorted(self.store.all(), key=lambda workspace: workspace.phase_since)
            self._pace = Pace(filter(None, map(restore_of, running)))
        return self._pace

    def _learn_pace(self, before: Workspace, after: Workspace) -> None:
        ended = restore_of(after) if before.phase is Phase.RESTORING else None
        if ended is not None and self._pace is not None:
            self._pace.learn(ended)

    def _end_lineage(self, before: Workspace, after: Workspace) -> None:
        """The paused state was deleted: nothing may act with its tokens any more."""
        if before.phase is Phase.DELETING and after.phase is Phase.RUNNING:
            self.credentials.forget(after.key)
            self.credentials.forget_client(after.key)

    def server(self, key: Key) -> Server:
        """The server as an engine knows it now."""
        return Server(key, self.store.read(key).owner)

    def keep_options(self, spawner: Any) -> None:
        """Remember the options of a cold start: the Hub replaces its own copy at every start that names some, also a refused one."""
        self.store.update_extra(spawner.workspace_key, options=dict(spawner.user_options or {}))

    def options(self, spawner: Any) -> dict[str, Any]:
        """The options that the paused server was started with."""
        kept = self.store.extra(spawner.workspace_key).get(OPTIONS)
        return dict(kept) if isinstance(kept, dict) else dict(spawner.orm_spawner.user_options or {})

    def guest_secret(self, key: Key) -> str:
        """The secret shared with the server extension of that server's lineage, hex."""
        return guest_secret(self._derived("hub"), self.store.read(key).owner.lineage)

    def cancel_ticket(self, key: Key, pause_id: str) -> str:
        """Lets whoever holds it cancel that one pause and nothing else, hex: for the tab that asked for it.

        The tab has no token of the Hub, and a frozen server cannot ask for it. Worthless once the pause has ended.
        """
        owner = self.store.read(key).owner
        return hmac.new(self._derived("cancel"), f"{owner.user_id}/{owner.lineage}/{pause_id}".encode(), hashlib.sha256).hexdigest()

    def _derived(self, use: str) -> bytes:
        """The Hub's own key for that use: nothing of ours is made from its cookie secret directly."""
        return hmac.new(self.internals.cookie_secret, f"gke-workspaces/{use}/v1".encode(), hashlib.sha256).digest()

    def _url_of(self, key: Key) -> str | None:
        spawner = self.internals.spawner(key)
        return None if spawner is None else spawner.workspace_url()


def _told(handler: Any, user_name: str, server_name: str) -> Mapping[str, Any] | None:
    """What a program that may use the server is told instead of "no longer running": that it is paused, or on its way there or back."""
    workspaces = handler.settings["users"].settings.get(SETTING)
    if workspaces is None or not handler.has_scope(f"access:servers!server={user_name}/{server_name}"):
        return None
    workspace = workspaces.store.read(Key(user_name, server_name))
    if workspace.phase not in OPEN:
        return None
    said = sentence(workspace, workspaces.clock.time())
    return {"message": f"This server cannot answer now. {said}", "reason": workspace.phase.value, "phase": workspace.phase.value}


def _stopped(handler: Any, user_name: str, server_name: str) -> None:
    """A server that waits for room runs no more than a stopped one, but must not come back by itself after a stop."""
    workspaces = handler.settings["users"].settings.get(SETTING)
    if workspaces is not None:
        workspaces.supervisor.stop_waiting(Key(handler.find_user(user_name).name, server_name))
