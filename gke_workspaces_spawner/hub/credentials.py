"""The API token of a pausable server across pause and resume.

A restored process still holds the token that it was started with; that one string is its API credential and its OAuth client
secret. So the Hub must accept the same row again (``will_resume`` and ``self.api_token``), and while the server is paused
the row must be worth nothing: its scopes are emptied, and so are those of the browser tokens of the server's OAuth client.

The token itself lies in a :class:`Vault` (sealed in the record on a cluster, a 0600 file on one machine), never in the database in clear.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from jupyterhub import orm

from ..lifecycle.model import Key
from ..lifecycle.reasons import Refused
from .internals import Internals
from .store import HubStore

TOKEN_ID = "token_id"  # noqa: S105 - the name of an entry
MINTED_ID = "minted_id"
"""The token that the Hub mints for a resume and deletes once the old one is used again; ours to delete when that fails."""
SUSPENDED = "suspended"
ADDRESS = "address"
CLIENT = "client"
"""Allowed scopes and description of the OAuth client as the Hub made it for a resume that is under way."""
NOTE = "Server at "
"""How the Hub's notes on tokens of servers begin."""
MAX_BROWSER_TOKENS = 50
"""Browser tokens whose scopes are remembered; more than that are dropped, their browsers log in again."""


class Vault(Protocol):
    """Keeps one secret string per lineage of a server; synchronous and small."""

    def put(self, key: Key, lineage: str, token: str) -> None: ...
    def get(self, key: Key, lineage: str) -> str | None: ...
    def drop(self, key: Key, lineage: str) -> None: ...


class Credentials:
    """Remembers, suspends, gives back and drops the tokens of servers."""

    def __init__(self, internals: Internals, store: HubStore, vault: Vault, log: logging.Logger) -> None:
        self._internals = internals
        self._store = store
        self._vault = vault
        self._log = log
        self._scopes: dict[Key, list[str]] = {}
        """Of the tokens that the Hub minted for resumes under way."""

    def remember(self, spawner: Any, key: Key) -> None:
        """A cold start: keep the token that the Hub just minted, and the address that the server will know as its own."""
        row = orm.APIToken.find(self._internals.db, spawner.api_token)
        self._vault.put(key, self._store.read(key).owner.lineage, spawner.api_token)
        self._store.update_extra(key, token_id=row.id if row is not None else None, address=_address(spawner))

    def token(self, key: Key) -> str:
        """The server's token, or an empty string: after a Hub restart the spawner does not know it any more."""
        return self._vault.get(key, self._store.read(key).owner.lineage) or ""

    def suspend(self, key: Key) -> None:
        """Make the tokens that a snapshot holds powerless. Harmless when repeated."""
        self.drop_minted(key)
        db = self._internals.db
        row = self._row(key)
        if row is not None:
            row.scopes = []
        suspended: dict[str, list[str]] = dict(self._store.extra(key).get(SUSPENDED) or {})
        for token in self._browser_tokens(key):
            if token.scopes and len(suspended) >= MAX_BROWSER_TOKENS:
                db.delete(token)
            elif token.scopes:
                suspended[str(token.id)] = list(token.scopes)
                token.scopes = []
        self._store.update_extra(key, suspended=suspended or None)  # in one transaction with the scopes that it remembers
        db.commit()

    def reuse(self, spawner: Any, key: Key) -> None:
        """A resume begins: hand the old token to the Hub. It has no power before :meth:`awaken`.

        Raises ``Refused('token_revoked')`` when its row is gone: nobody but a person, or the Hub for a reason, deletes it; and
        ``Refused('address_changed')`` when the server's address is not the one that its processes know.
        """
        db = self._internals.db
        minted = orm.APIToken.find(db, spawner.api_token)
        if minted is None:
            raise Refused("token_revoked", "the Hub made no token for this start")
        self._store.update_extra(key, minted_id=minted.id)
        old, row = self.token(key), self._row(key)
        if row is None or row.user is not spawner.user.orm_user or orm.APIToken.find(db, old) is not row:
            raise Refused("token_revoked")
        if self._store.extra(key).get(ADDRESS) != _address(spawner):
            raise Refused("address_changed")
        self._scopes[key] = list(minted.scopes)
        client = spawner.orm_spawner.oauth_client
        if client is not None:
            self._store.update_extra(key, client=[list(client.allowed_scopes), client.description])
        spawner.api_token = old

    def awaken(self, key: Key) -> None:
        """The restored process starts now: its tokens act again, the server's own with the scopes that one minted now has."""
        row, scopes = self._row(key), self._scopes.pop(key, None)
        if row is None or scopes is None:
            raise Refused("token_revoked")
        row.update_scopes(scopes)
        suspended: dict[str, list[str]] = self._store.extra(key).get(SUSPENDED) or {}
        for token in self._browser_tokens(key):
            if str(token.id) in suspended:
                token.scopes = suspended[str(token.id)]
        self._store.update_extra(key, suspended=None)
        self._internals.db.commit()

    def drop_minted(self, key: Key) -> None:
        """A resume that came to nothing must not leave the token that the Hub minted for it."""
        minted_id = self._store.extra(key).get(MINTED_ID)
        if minted_id is None:
            return
        db = self._internals.db
        row, orm_spawner = db.get(orm.APIToken, minted_id), self._internals.orm_spawner(key)
        if row is not None and orm_spawner is not None and row.user is orm_spawner.user and (row.note or "").startswith(NOTE):
            db.delete(row)
            db.commit()
        self._store.update_extra(key, minted_id=None)

    def drop_unused(self, spawner: Any, key: Key) -> None:
        """A start that ended before ours began (a hook refused it) leaves its token too: the Hub keeps tokens of what will resume."""
        token = spawner.api_token
        if not token or token == self.token(key):
            return
        row = orm.APIToken.find(self._internals.db, token)
        if row is not None and row.user is spawner.user.orm_user:
            self._internals.db.delete(row)
            self._internals.db.commit()
        spawner.api_token = self.token(key)

    def settle(self, spawner: Any, key: Key) -> None:
        """The server is up: the old token is the OAuth client's secret, and the client has what the Hub's re-use of tokens forgets.

        In jupyterhub 4.1 to 6.1 the second ``add_client`` call of ``User.spawn`` omits allowed scopes and description. A Hub that
        was killed between the proof and that call has not made it at all.
        """
        kept = self._store.extra(key).get(CLIENT)
        self.drop_minted(key)
        if kept is None:
            return
        allowed, description = kept
        if spawner.orm_spawner.oauth_client is not None:
            self._internals.set_oauth_client(spawner, self.token(key), allowed, description)
        self._store.update_extra(key, client=None)

    def forget(self, key: Key) -> None:
        """The lineage ends (stop, start fresh, discard, deletion): drop its token rows and the vault's copy."""
        self.drop_minted(key)
        self._scopes.pop(key, None)
        db = self._internals.db
        row = self._row(key)
        if row is not None:
            db.delete(row)
        suspended = self._store.extra(key).get(SUSPENDED) or {}
        for token in self._browser_tokens(key):
            if str(token.id) in suspended:
                db.delete(token)
        db.commit()
        self._vault.drop(key, self._store.read(key).owner.lineage)
        self._store.update_extra(key, token_id=None, suspended=None, address=None, client=None)

    def forget_client(self, key: Key) -> None:
        """The paused state is gone and no server is up: the OAuth client goes as at an ordinary stop, with its browser tokens."""
        row = self._internals.orm_spawner(key)
        if row is not None and row.oauth_client is not None and row.server is None:
            self._internals.db.delete(row.oauth_client)
            self._internals.db.commit()

    def _browser_tokens(self, key: Key) -> list[Any]:
        """Asked of the database: the client's own list in memory does not grow when a browser logs in."""
        row = self._internals.orm_spawner(key)
        if row is None or row.oauth_client is None:
            return []
        return list(self._internals.db.query(orm.APIToken).filter_by(client_id=row.oauth_client.identifier))

    def _row(self, key: Key) -> Any | None:
        """The row of the server's token; a row that only got its id after it (SQLite gives ids away again) is not it."""
        token_id, token = self._store.extra(key).get(TOKEN_ID), self.token(key)
        row = self._internals.db.get(orm.APIToken, token_id) if token_id is not None and token else None
        return row if row is not None and row.match(token) else None


def _address(spawner: Any) -> str:
    """What the server's processes know of their place in the Hub and could not learn anew."""
    return f"{spawner.server.base_url} {spawner.oauth_client_id}"
