"""The API token of a pausable server across pause and resume.

A restored process still holds the token that it was started with; that one string is its API credential and its OAuth client
secret. So the Hub must accept the same row again (``will_resume`` and ``self.api_token``), and while the server is paused
the row must be worth nothing: its scopes are emptied, and so are those of the browser tokens of the server's OAuth client.

The token itself lies in a :class:`Vault` (one Secret on a cluster, a 0600 file on one machine), never in the database.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from jupyterhub import orm

from ..lifecycle.model import Key
from ..lifecycle.reasons import Refused
from .internals import Internals
from .store import HubStore

TOKEN_ID = "token_id"
SUSPENDED = "suspended"
MAX_BROWSER_TOKENS = 50
"""Browser tokens whose scopes are remembered; more than that are dropped, their browsers log in again."""


class Vault(Protocol):
    """Keeps one secret string per lineage; synchronous and small."""

    def put(self, lineage: str, token: str) -> None: ...
    def get(self, lineage: str) -> str | None: ...
    def drop(self, lineage: str) -> None: ...


class Credentials:
    """Remembers, suspends, gives back and drops the tokens of servers."""

    def __init__(self, internals: Internals, store: HubStore, vault: Vault, log: logging.Logger) -> None:
        self._internals = internals
        self._store = store
        self._vault = vault
        self._log = log
        self._repairs: dict[Key, tuple[list[str], str]] = {}

    def remember(self, spawner: Any, key: Key) -> None:
        """A cold start: keep the token that the Hub just minted."""
        row = orm.APIToken.find(self._internals.db, spawner.api_token)
        self._vault.put(self._store.read(key).owner.lineage, spawner.api_token)
        self._store.set_extra(key, {TOKEN_ID: row.id if row is not None else None})

    def token(self, key: Key) -> str:
        """The server's token, or an empty string: after a Hub restart the spawner does not know it any more."""
        return self._vault.get(self._store.read(key).owner.lineage) or ""

    def suspend(self, key: Key) -> None:
        """Make the tokens that a snapshot holds powerless. Harmless when repeated."""
        extra = self._store.extra(key)
        db = self._internals.db
        row = self._row(key)
        if row is not None:
            row.scopes = []
        suspended: dict[str, list[str]] = dict(extra.get(SUSPENDED) or {})
        orm_spawner = self._internals.orm_spawner(key)
        client = orm_spawner.oauth_client if orm_spawner is not None else None
        if client is not None:
            for token in list(client.access_tokens):
                if len(suspended) >= MAX_BROWSER_TOKENS:
                    db.delete(token)
                elif token.scopes:
                    suspended[str(token.id)] = list(token.scopes)
                    token.scopes = []
        db.commit()
        self._store.set_extra(key, {**extra, SUSPENDED: suspended})

    def reuse(self, spawner: Any, key: Key) -> None:
        """A resume: let the old token act again, with the scopes that a token minted now has.

        Raises ``Refused('token_revoked')`` when its row is gone: nobody but a person, or the Hub for a reason, deletes it.
        """
        db = self._internals.db
        minted = orm.APIToken.find(db, spawner.api_token)
        old = self.token(key)
        row = self._row(key)
        if not old or row is None or row.user is not spawner.user.orm_user or orm.APIToken.find(db, old) is not row:
            raise Refused("token_revoked")
        if minted is not None:
            row.update_scopes(minted.scopes)
        client = spawner.orm_spawner.oauth_client
        if client is not None:
            self._repairs[key] = (list(client.allowed_scopes), client.description)
            suspended: dict[str, list[str]] = self._store.extra(key).get(SUSPENDED) or {}
            for token in client.access_tokens:
                if str(token.id) in suspended:
                    token.scopes = suspended[str(token.id)]
        db.commit()
        extra = self._store.extra(key)
        extra.pop(SUSPENDED, None)
        self._store.set_extra(key, extra)
        spawner.api_token = old

    def drop_minted(self, spawner: Any) -> None:
        """A start that was refused must not leave the token that the Hub minted for it."""
        row = orm.APIToken.find(self._internals.db, spawner.api_token) if spawner.api_token else None
        if row is not None:
            self._internals.db.delete(row)
            self._internals.db.commit()
        spawner.api_token = ""

    def repair_client(self, spawner: Any, key: Key) -> None:
        """Put back what the Hub's token re-use forgets: the OAuth client's allowed scopes and description.

        In jupyterhub 4.1 to 6.1 the second ``add_client`` call of ``User.spawn`` omits both.
        """
        saved = self._repairs.pop(key, None)
        client = spawner.orm_spawner.oauth_client
        if saved is None or client is None:
            return
        allowed, description = saved
        if list(client.allowed_scopes) != allowed or client.description != description:
            client.allowed_scopes = allowed
            client.description = description
            self._internals.db.commit()

    def forget(self, key: Key) -> None:
        """The lineage ends (stop, start fresh, discard, deletion): drop its token row and the vault's copy."""
        row = self._row(key)
        if row is not None:
            self._internals.db.delete(row)
            self._internals.db.commit()
        self._vault.drop(self._store.read(key).owner.lineage)
        extra = self._store.extra(key)
        if TOKEN_ID in extra or SUSPENDED in extra:
            extra.pop(TOKEN_ID, None)
            extra.pop(SUSPENDED, None)
            self._store.set_extra(key, extra)

    def _row(self, key: Key) -> Any | None:
        token_id = self._store.extra(key).get(TOKEN_ID)
        return None if token_id is None else self._internals.db.get(orm.APIToken, token_id)
