"""The bank holds configurations found in the world. It lies beside the repository; where it does not, this level has no tests."""

from __future__ import annotations

from pathlib import Path

import pytest

BANK = Path(__file__).resolve().parents[3] / "shared" / "bank"

collect_ignore_glob = [] if BANK.is_dir() else ["test_*.py"]


@pytest.fixture(scope="session")
def bank() -> Path:
    """The folder with ``profiles/`` and ``values/``; read it, never copy from it."""
    return BANK
