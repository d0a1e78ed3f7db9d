"""A wall clock that a test moves, for Hubs and their servers as they are: Debian's libfaketime, loaded into their processes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest


class MovedClock:
    """Who has :attr:`environment` sees this clock, which goes on at its ordinary pace; monotonic time and files' times stay."""

    def __init__(self, folder: Path) -> None:
        library = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
        if library is None:
            pytest.fail("no libfaketime: apt-get install libfaketime")
        self._file = folder / "clock"
        self._ahead = 0.0
        self.move(0)
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def move(self, seconds: float) -> None:
        """Set it ahead by so much more, at once for all who have it."""
        self._ahead += seconds
        new = self._file.with_suffix(".new")
        new.write_text(f"{self._ahead:+.0f}\n", encoding="ascii")
        new.replace(self._file)

    def time(self) -> float:
        """Seconds since 1970, as they see it."""
        return time.time() + self._ahead
