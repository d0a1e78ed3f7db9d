"""Reads of ``/proc``, bounded and without raising for processes that went away meanwhile."""

from __future__ import annotations

import os
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Stat:
    """What ``/proc/PID/stat`` says of a process, or ``/proc/PID/task/TID/stat`` of a thread (times in clock ticks)."""

    pid: int
    name: str
    """The first 15 bytes of the program's name; the process itself may have chosen them."""
    state: str
    """R, S, D run or wait; T is stopped by a signal, t by a debugger; Z and X have ended."""
    parent: int
    used: int
    """Processor time of all its threads, or of this thread."""
    started: int
    """Since boot: with the pid it names a process for ever."""


def stat(pid: int, thread: int | None = None) -> Stat | None:
    """``None`` if it is gone."""
    head, _, tail = read(f"/proc/{pid}/stat" if thread is None else f"/proc/{pid}/task/{thread}/stat").rpartition(")")
    fields = tail.split()
    try:
        name = "".join(character for character in head.partition("(")[2] if character.isprintable())
        return Stat(thread or pid, name, fields[0], int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[19]))
    except (IndexError, ValueError):
        return None


def _numbers(path: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(path) if name.isdecimal()]
    except OSError:
        return []


def pids() -> list[int]:
    """Everything in this pid namespace."""
    return _numbers("/proc")


def threads(pid: int) -> list[Stat]:
    """All threads of a process, its first one among them; empty if it is gone."""
    return [found for thread in _numbers(f"/proc/{pid}/task") if (found := stat(pid, thread)) is not None]


def started(pid: int) -> float | None:
    """Start time of a process in seconds since boot (field 22 of ``/proc/PID/stat`` by ticks); ``None`` if it is gone.

    Under gVisor that is the sandbox's boot, and the value is the same after a restore, also after a second one (measured).
    """
    found = stat(pid)
    return None if found is None else found.started / os.sysconf("SC_CLK_TCK")


def traces(pid: int) -> tuple[str, ...]:
    """What changes when a process runs, beside its processor time: context switches (Linux) and its reads and writes.

    Under gVisor the switches are always 0, the reads and writes count (tried). What may not be read is empty.
    """
    switches = [line for line in read(f"/proc/{pid}/status").splitlines() if "ctxt_switches" in line]
    return (*switches, read(f"/proc/{pid}/io"))


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
