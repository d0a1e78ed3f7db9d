"""What has to be so before the demo starts: each check raises :class:`Stopped` with one sentence that names the way out."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import stat
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from .say import Stopped, say

STATE_BYTES = 1 << 30
"""Free space that the state folder's disk must have: a small server's snapshot, logs and the Hub's database."""
BUILD_BYTES = 2 << 30
"""Free space that bringing needs at its peak: sources, build cache, toolchain; most of it is removed again."""
KERNEL = (5, 6)
"""``openat2``, which homes are opened with (Linux 5.6)."""
RESERVED_USERS = frozenset({"admin"})


def machine() -> None:
    """Linux, x86-64, a kernel and a Python that are new enough."""
    if sys.platform != "linux":
        raise Stopped(f"The demo needs Linux, and this is {platform.system() or sys.platform}: run it in a Linux machine (a VM will do).")
    if platform.machine() not in ("x86_64", "amd64"):
        raise Stopped(f"The demo needs an x86-64 machine, and this one is {platform.machine()}: run it on an x86-64 machine.")
    release = tuple(int("0" + "".join(c for c in part if c.isdigit())) for part in platform.release().split(".")[:2])
    if release < KERNEL:
        raise Stopped(f"The demo needs Linux {KERNEL[0]}.{KERNEL[1]} or newer, and this is {platform.release()}: update the system.")


def root(argv: Sequence[str]) -> None:
    """Go on as root: through sudo when we are not. Returns only as root."""
    if os.geteuid() == 0:
        return
    sudo = shutil.which("sudo")
    if sudo is None:
        raise Stopped("The demo needs root (it makes network namespaces and sandboxes), and there is no sudo: run it as root.")
    say("Network namespaces and sandboxes need root: asking sudo.")
    command = [sudo, "-E", sys.executable, "-m", "gke_workspaces_spawner.cli", *argv]
    os.execv(sudo, command)  # noqa: S606 - this very command again, with more rights


def port_free(port: int, taken_is: str = "choose another one with --port") -> None:
    """Nobody listens on that port of the loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError as error:
            raise Stopped(f"Port {port} may not be used by this account: {taken_is}.") from error
        except OSError as error:
            who = listener(port)
            raise Stopped(f"Port {port} is taken{f' by {who}' if who else ''}: {taken_is}, or stop that.") from error


def listener(port: int) -> str:
    """Who listens on a port: name and pid, where /proc tells."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(handle) in inodes for handle in (process / "fd").iterdir()):
                program = (process / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0", 1)[0]
                return f"{os.path.basename(program)} (pid {process.name})"
        except OSError:
            continue
    return ""


def disk(folder: Path, needed: int, what: str, way_out: str) -> None:
    """That much is free where a folder is, or will be."""
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise Stopped(f"Only {free / 1e9:.1f} GB are free below {existing}, and {what} needs {needed / 1e9:.1f} GB: {way_out}.")


def state_folder(state: Path) -> None:
    """Make it 0700, where nobody else could put something in its place (snapshots are executed)."""
    existing = next(place for place in (state, *state.parents) if place.exists()).resolve()
    if not existing.is_dir():
        raise Stopped(f"The state folder {state} cannot be made: {existing} is not a folder; use --state with another place.")
    for part in (existing, *existing.parents):
        found = part.stat()
        shared = found.st_mode & 0o022 and not (found.st_mode & stat.S_ISVTX and part != state)
        if found.st_uid not in (0, os.geteuid()) or shared:
            raise Stopped(
                f"The state folder {state} is not safe: others can write {part}, and a snapshot is executed when it is resumed; "
                "use --state with a folder that only root can write."
            )
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    state.chmod(0o700)


def user_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names that a Hub can have, each once, in order."""
    for name in names:
        bad = not name or name != name.strip() or "/" in name or len(name) > 255
        if bad or any(unicodedata.category(c).startswith("C") for c in name):
            raise Stopped(
                f"{name!r} cannot be the name of a user: no slash, no control characters, no blanks around it, at most 255 characters."
            )
        if name in RESERVED_USERS:
            raise Stopped(f"The user {name!r} is there already, as the demo's admin: choose another name.")
    return tuple(dict.fromkeys(names))
