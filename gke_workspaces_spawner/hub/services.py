"""What belongs together in one Hub: store, credentials, guest, port, supervisor and an engine, made once per Hub."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping, MutableMapping
from typing import Any

from tornado.log import app_log

from ..lifecycle.model import Key, Workspace
from ..lifecycle.phases import OPEN, Phase
from ..lifecycle.ports import Engine, Limits, Ports, Server
from ..lifecycle.words import sentence
from .clock import WallClock
from .credentials import Credentials, Vault
from .guest import HubGuest, guest_secret
from .internals import Internals, answer_programs
from .port import JupyterHubPort
from .store import HubStore
from .supervisor import Supervisor

SETTING = "gke_workspaces_hub"
"""Our entry in the Hub's tornado settings."""

OPTIONS = "options"
ENDED = "ended"
"""Entries of the store's extras: options of the last cold start, and the reason code of an end that nobody asked for."""


class Workspaces:
    """The workspaces of one Hub."""

    def __init__(self, settings: MutableMapping[str, Any], engine: Engine, vault: Vault, limits: Limits, homes: Any = None) -> None:
        logging.getLogger("gke_workspaces_spawner").parent = app_log  # so that what we say stands in the Hub's own log
        self.log = logging.getLogger(__name__)
        self.internals = Internals(settings, self.log)
        self.engine = engine
        self.homes = homes
        self.clock = WallClock()
        self.hub_boot = secrets.token_hex(8)
        self.store = HubStore(self.internals, self.clock, self.log)
        self.credentials = Credentials(self.internals, self.store, vault, self.log)
        self.port = JupyterHubPort(self.internals, self.credentials, self.clock, self.log)
        self.guest = HubGuest(self._url_of, self.guest_secret, self.clock, self.log)
        self.limits = limits
        self.ports = Ports(engine, self.guest, self.port, self.store, self.clock, limits, self.hub_boot)
        self.supervisor = Supervisor(self.ports, self.store, self.internals, self.log)

        self.store.observe(self._end_lineage)
        if not settings.get("subdomain_host"):
            self.log.warning(
                "Users share one origin: a page of one user's server may follow another's. Where they do not trust each other, set "
                "c.JupyterHub.subdomain_host (docs: security of snapshots)."
            )
        answer_programs(_told)

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
        hub_key = hmac.new(self.internals.cookie_secret, b"gke-workspaces/hub/v1", hashlib.sha256).digest()
        return guest_secret(hub_key, self.store.read(key).owner.lineage)

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
