"""Single-use tickets to log in at the demo: no password, no token in a URL.

A ticket is 128 random bits in the fragment of a URL, which browsers do not send; a page of the Hub sends it back in one
XSRF-checked POST (:mod:`.login`). Kept is only its hash, for ten minutes, and taking it removes it in the same transaction.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

LIFETIME = 600.0
"""Seconds."""


class Tickets:
    """The tickets in one SQLite file; several processes may use it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        with self._transaction() as database:
            database.execute("CREATE TABLE IF NOT EXISTS tickets (hash TEXT PRIMARY KEY, user TEXT NOT NULL, expires REAL NOT NULL)")

    def issue(self, user: str, lifetime: float = LIFETIME) -> str:
        """A new ticket for that user."""
        ticket = secrets.token_urlsafe(16)
        now = time.time()
        with self._transaction() as database:
            database.execute("DELETE FROM tickets WHERE expires <= ?", (now,))
            database.execute("INSERT INTO tickets VALUES (?, ?, ?)", (_hash(ticket), user, now + lifetime))
        return ticket

    def take(self, ticket: str) -> str | None:
        """The user of a ticket, exactly once; ``None`` for one that is unknown, used or expired."""
        key = (_hash(ticket),)
        with self._transaction() as database:
            row = database.execute("SELECT user, expires FROM tickets WHERE hash = ?", key).fetchone()
            database.execute("DELETE FROM tickets WHERE hash = ?", key)
        return str(row[0]) if row and row[1] > time.time() else None

    def clear(self) -> None:
        """Make all tickets worthless."""
        with self._transaction() as database:
            database.execute("DELETE FROM tickets")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=10, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")  # a reader that becomes a writer could find that another was first
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")


def _hash(ticket: str) -> str:
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).hexdigest()
