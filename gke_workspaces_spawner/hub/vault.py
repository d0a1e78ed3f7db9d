"""A vault for one machine: a 0600 file per lineage in the state folder."""

from __future__ import annotations

import os
from pathlib import Path


class TokenFiles:
    """Implements the vault with one 0600 file per lineage in the state folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, lineage: str, token: str) -> None:
        temporary = self._folder / f".{lineage}.new"
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._folder / lineage)

    def get(self, lineage: str) -> str | None:
        try:
            return (self._folder / lineage).read_text(encoding="ascii")
        except FileNotFoundError:
            return None

    def drop(self, lineage: str) -> None:
        (self._folder / lineage).unlink(missing_ok=True)
