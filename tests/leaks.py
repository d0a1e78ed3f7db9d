"""What stands on the machine that a test may have put there: processes, namespaces, mounts, interfaces, packet-filter tables.

Take a look before, a look after, and compare. Processes count when they carry this run's mark in their environment (every
descendant has it, also one that made itself a session of its own) or when they are sandboxes (``runsc`` starts its own with an
empty environment).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import time
from dataclasses import dataclass, fields
from pathlib import Path

MARK = "GKE_WORKSPACES_TEST_RUN"
"""Name of the environment variable that all processes of a run inherit."""

RUN = os.environ.get(MARK) or secrets.token_hex(8)
"""This run's mark; a run inside a run keeps the outer one's."""


@dataclass(frozen=True)
class Machine:
    """One look; every entry is a text that a person can search for."""

    processes: frozenset[str]
    namespaces: frozenset[str]
    mounts: frozenset[str]
    interfaces: frozenset[str]
    tables: frozenset[str]


def look() -> Machine:
    """The machine as it is now."""
    return Machine(_processes(), _namespaces(), _mounts(), _interfaces(), _tables())


def difference(before: Machine, after: Machine) -> list[str]:
    """What is there after and was not before, one line each."""
    return [
        f"{field.name}: {entry}" for field in fields(Machine) for entry in sorted(getattr(after, field.name) - getattr(before, field.name))
    ]


def settled_difference(before: Machine, seconds: float) -> list[str]:
    """As :func:`difference` with now, looking again for up to ``seconds`` while something is still going away."""
    deadline = time.monotonic() + seconds
    while True:
        left = difference(before, look())
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def _processes() -> frozenset[str]:
    mark = f"{MARK}={RUN}".encode()
    ancestors = _self_and_ancestors()
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in ancestors:
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            marked = mark in (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # ended while we looked, or somebody else's
            continue
        first = Path(command.split(" ", 1)[0]).name if command else ""
        if command and (marked or first.startswith("runsc")):
            found.add(f"{entry.name} {command[:200]}")
    return frozenset(found)


def _self_and_ancestors() -> frozenset[int]:
    pids, pid = set(), os.getpid()
    while pid > 0:
        pids.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return frozenset(pids)


def _namespaces() -> frozenset[str]:
    folder = Path("/run/netns")
    return frozenset(entry.name for entry in folder.iterdir()) if folder.is_dir() else frozenset()


def _mounts() -> frozenset[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return frozenset(line.split()[4] for line in lines)


def _interfaces() -> frozenset[str]:
    return frozenset(entry.name for entry in Path("/sys/class/net").iterdir())


def _tables() -> frozenset[str]:
    nft = shutil.which("nft", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if nft is None or os.geteuid() != 0:
        return frozenset()
    answer = subprocess.run([nft, "-j", "list", "tables"], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        return frozenset()
    entries = json.loads(answer.stdout)["nftables"]
    return frozenset(f"{row['table']['family']} {row['table']['name']}" for row in entries if "table" in row)
