"""Where the tokens of pausable servers lie: 0600 files on one machine, sealed in the record where the Hub has no disk of its own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Callable
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from ..lifecycle.model import Key
from .store import HubStore


class TokenFiles:
    """Implements the vault with one 0600 file per lineage in the state folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, key: Key, lineage: str, token: str) -> None:
        temporary = self._folder / f".{lineage}.new"
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._folder / lineage)

    def get(self, key: Key, lineage: str) -> str | None:
        try:
            return (self._folder / lineage).read_text(encoding="ascii")
        except FileNotFoundError:
            return None

    def drop(self, key: Key, lineage: str) -> None:
        (self._folder / lineage).unlink(missing_ok=True)


SEALED = "sealed_token"
"""Entry of the store's extras: the token, encrypted, with the lineage that it is of."""


class SealedTokens:
    """Implements the vault in the server's own record, encrypted with a key that the database does not hold.

    A cluster's Secret holds the token too, for the pod; but it cannot be read where the Hub asks for a token, which does not wait.
    """

    def __init__(self, store: HubStore, cookie_secret: bytes, dropped: Callable[[str], None]) -> None:
        """``dropped`` is told the lineage of a token that is not needed any more."""
        key = hmac.new(cookie_secret, b"gke-workspaces/tokens/v1", hashlib.sha256).digest()
        self._fernet = Fernet(base64.urlsafe_b64encode(key))
        self._store = store
        self._dropped = dropped

    def put(self, key: Key, lineage: str, token: str) -> None:
        sealed = self._fernet.encrypt(f"{lineage} {token}".encode()).decode()
        self._store.update_extra(key, sealed_token=sealed)

    def get(self, key: Key, lineage: str) -> str | None:
        """None also when the Hub's cookie secret is another one now: then no token of before is worth anything."""
        sealed = self._store.extra(key).get(SEALED)
        if not isinstance(sealed, str):
            return None
        try:
            of, _, token = self._fernet.decrypt(sealed.encode()).decode().partition(" ")
        except InvalidToken:
            return None
        return token if of == lineage else None

    def drop(self, key: Key, lineage: str) -> None:
        if self._store.extra(key).get(SEALED) is not None:
            self._store.update_extra(key, sealed_token=None)
            self._dropped(lineage)
