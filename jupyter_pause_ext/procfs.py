"""Reads of ``/proc``, bounded and without raising for processes that went away meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

MAX_READ = 4 * 1024 * 1024
"""Bytes read of one file of /proc at most."""


def read(path: str) -> str:
    """The file's text, cut at the limit; empty when it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_READ).decode("utf-8", "replace")
    except OSError:
        return ""


def started(pid: int) -> float | None:
    """Start time of a process in seconds since boot (field 22 of ``/proc/PID/stat`` by ticks); ``None`` if it is gone.

    Under gVisor that is the sandbox's boot, and the value is the same after a restore, also after a second one (measured).
    """
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    try:
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (IndexError, ValueError):
        return None


def maps_any(pid: int, words: tuple[str, ...]) -> bool:
    """Whether the process has a file mapped whose path holds one of the words."""
    text = read(f"/proc/{pid}/maps")
    return any(word in text for word in words)


def _is_loopback(address: str) -> bool:
    """For the hex form of /proc/net/tcp (each 32-bit word in host order, little endian)."""
    if len(address) == 8:
        return address.endswith("7F")
    return address == "00000000000000000000000001000000" or (address.startswith("0000000000000000FFFF0000") and address.endswith("7F"))


def established(skip_local_ports: frozenset[int], skip_remote_ports: frozenset[int]) -> int:
    """Established TCP connections to other machines, without those of the server itself (by its ports)."""
    count = 0
    for name in ("tcp", "tcp6"):
        for line in read(f"/proc/net/{name}").splitlines()[1:]:
            fields = line.split()
            if len(fields) < 4 or fields[3] != "01":
                continue
            local, _, local_port = fields[1].partition(":")
            remote, _, remote_port = fields[2].partition(":")
            if _is_loopback(remote) or _is_loopback(local):
                continue
            if int(local_port, 16) in skip_local_ports or int(remote_port, 16) in skip_remote_ports:
                continue
            count += 1
    return count
