"""Room on the disk, shared by saves that run at the same time: each says beforehand how much it will write."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from .errors import SandboxError
from .files import read_json, tree_bytes, write_json
from .processes import Process

MARGIN = 64 << 20
"""Bytes left free beside what a save needs: its small files and kept copies."""


def free_bytes(state: Path) -> int:
    """What we may still write where the snapshots are, less what running saves have reserved and not written yet."""
    folder = state / "reservations"
    found = os.statvfs(state / "snapshots")
    free = found.f_bavail * found.f_frsize
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            reserved = read_json(Path(entry.path)) if entry.name.endswith(".json") else None
            if reserved is None:
                continue
            if Process(*reserved["owner"]).alive():
                free -= max(0, reserved["bytes"] - tree_bytes(Path(reserved["writes"])))
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)
    return free


@contextlib.contextmanager
def reserved(state: Path, sandbox_id: str, size: int, writes: Path) -> Iterator[None]:
    """Reserve ``size`` bytes, which will appear in the folder ``writes``. Raises SandboxError ``disk_full``."""
    folder = state / "reservations"
    folder.mkdir(mode=0o700, exist_ok=True)
    mine = folder / f"{sandbox_id}.json"
    with open(folder / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            mine.unlink()
        free = free_bytes(state)
        if free < size + MARGIN:
            raise SandboxError("disk_full", f"the save needs {size + MARGIN:,} bytes, {max(0, free):,} are free in {state}")
        write_json(mine, {"bytes": size, "writes": str(writes), "owner": Process.of(os.getpid())})
    try:
        yield
    finally:
        release(state, sandbox_id)


def release(state: Path, sandbox_id: str) -> None:
    """Take a reservation back; harmless when there is none."""
    with contextlib.suppress(FileNotFoundError):
        (state / "reservations" / f"{sandbox_id}.json").unlink()


def memory_bytes(sentry: int) -> int:
    """Bytes of memory that a save of that sandbox writes, read from the host's side: its memory file's blocks.

    Raises SandboxError ``sandbox_gone``.
    """
    folder = f"/proc/{sentry}/fd"
    try:
        for number in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(f"{folder}/{number}").startswith("/memfd:runsc-memory"):
                    return os.stat(f"{folder}/{number}").st_blocks * 512
    except (FileNotFoundError, ProcessLookupError):
        pass
    raise SandboxError("sandbox_gone", "the sandbox has ended")


def meminfo() -> dict[str, int]:
    """``MemTotal``, ``MemAvailable`` and what else ``/proc/meminfo`` counts of this machine's memory, bytes."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        rows = (line.split() for line in lines)
        return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if row[-1] == "kB"}


def memory_available() -> int:
    """Bytes of memory that this machine can give without swapping."""
    return meminfo()["MemAvailable"]
