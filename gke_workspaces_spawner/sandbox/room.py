"""The room of a sandbox, ``STATE/sandboxes/<id>/``: its files, and who holds it.

=============== =======================================================================
``lock``        locked by the shim for its whole life
``s``           the shim's socket
``meta.json``   spec, processes, address, origin; written when the sandbox has started
``exit.json``   exit code of the first process, written when it has ended
``save.json``   the save under way or finished
``log``         output of the sandbox's processes until they redirect it (bounded)
=============== =======================================================================
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

from .files import read_json, write_json
from .processes import Process
from .spec import Json, SandboxSpec, check_id

SOCKET = "s"
"""Name of the shim's socket in the room."""
START_SECONDS = 60.0
"""Bound of ``runsc run`` and ``runsc restore``."""

EARLY = "early.json"
"""In the room: digests of the copies that were made while the server ran, for a pause that may come (see :mod:`.keeper`)."""

PLACES = "places.json"
"""In the room: placeholders that a restore made in the home."""

PATCHED = "patched.json"
"""In the room: files of the machine that a restore shows as they were."""


class Room:
    """One room; reading it never blocks and needs no shim."""

    def __init__(self, state: Path, sandbox_id: str) -> None:
        self.id = check_id("sandbox", sandbox_id)
        self.state = state
        self.path = state / "sandboxes" / sandbox_id

    @property
    def log(self) -> str:
        """Where the sandbox's standard output goes."""
        return str(self.path / "log")

    def exists(self) -> bool:
        """Whether there is anything of this sandbox."""
        return self.path.is_dir()

    def meta(self) -> dict[str, Json] | None:
        """``None`` until the sandbox has started."""
        return read_json(self.path / "meta.json")

    def aids(self) -> dict[str, list[str]]:
        """What its restore needed besides the snapshot: ``placeholders`` in the home, ``kept_files`` of the machine."""
        places, patched = read_json(self.path / PLACES), read_json(self.path / PATCHED)
        return {
            "placeholders": [made["path"] for made in places["made"]] if places else [],
            "kept_files": list(patched["files"]) if patched else [],
        }

    def write_meta(self, meta: Mapping[str, Json]) -> None:
        """Say that the sandbox has started."""
        write_json(self.path / "meta.json", meta)

    def sentry(self) -> Process | None:
        """The sandbox's main process on the host, alive or not; ``None`` before it has started."""
        meta = self.meta()
        return Process(*meta["sentry"]) if meta else None

    def spec(self) -> SandboxSpec | None:
        """What was started."""
        meta = self.meta()
        return SandboxSpec.from_json(meta["spec"]) if meta else None

    def exit(self) -> dict[str, Json] | None:
        """``{"code": ..., "at": ...}`` once the end was seen."""
        return read_json(self.path / "exit.json")

    def write_exit(self, code: int | None, at: float) -> None:
        """Say how it ended."""
        if self.exists():
            write_json(self.path / "exit.json", {"code": code, "at": at})

    def reason(self) -> str | None:
        """Why the shim ended the sandbox, if it did."""
        found = read_json(self.path / "reason.json")
        return str(found["reason"]) if found else None

    def write_reason(self, reason: str) -> None:
        """Say why, before doing it."""
        write_json(self.path / "reason.json", {"reason": reason})

    def early(self) -> set[str]:
        """Digests of the copies that were made for a pause to come."""
        return set((read_json(self.path / EARLY) or {"sha256": ()})["sha256"])

    def save(self) -> dict[str, Json] | None:
        """The record of the last save (see :mod:`.saving`)."""
        return read_json(self.path / "save.json")

    def held(self) -> bool:
        """Whether a shim is alive."""
        fd = self.lock()
        if fd is None:
            return self.exists()
        os.close(fd)
        return False

    def lock(self) -> int | None:
        """Take the lock and return its descriptor; ``None`` when a shim has it (or there is no room)."""
        try:
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd


def rooms(state: Path) -> list[str]:
    """Ids of all rooms."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(entry.name for entry in os.scandir(state / "sandboxes") if entry.is_dir(follow_symlinks=False))
    return []
