"""Work inside users' homes. Homes are steered by their users, so root never follows a path in one.

A user can swap a folder for a link to ``/etc/cron.d`` between a look and a deed, leave a FIFO where a file was, or make a hard
link. So each call here starts one small process that opens nothing before it has become the user, and then resolves paths
beneath the home without following links (:mod:`.inhome`). What it may do is what the user may do; what it returns are
values and, for a download, an open descriptor of a regular file.

The calls block for some 25 ms (a Python interpreter without site packages): call them from a thread where an event loop runs.
Paths are tuples of plain names below the home; names that are not UTF-8 use ``surrogateescape``.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TIMEOUT = 30.0
"""Seconds for one call; a home on a disk that hangs must not hang the Hub."""
_HELPER = str(Path(__file__).with_name("inhome.py"))


@dataclass(frozen=True, slots=True)
class Item:
    """Something in a home that a process holds: ``kind`` is ``file`` or ``folder``."""

    path: tuple[str, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class Made:
    """A placeholder, with what tells it from anything else that is put there later."""

    path: tuple[str, ...]
    kind: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder; ``kind`` is ``file``, ``folder`` or ``other`` (link, socket, device, FIFO). ``modified``: since the epoch."""

    name: str
    kind: str
    bytes: int
    modified: float


@dataclass(frozen=True, slots=True)
class Listing:
    """Entries by name; ``more`` says that the limit left some out."""

    entries: tuple[Entry, ...]
    more: bool


def make_home(path: Path, uid: int, gid: int) -> None:
    """An empty home of that uid, 0700; one that exists is left as it is.

    Raises PermissionError when it is a link, is somebody else's, or its parent can be written by others.
    """
    parent = path.parent.lstat()
    if not stat.S_ISDIR(parent.st_mode) or parent.st_uid != os.geteuid() or parent.st_mode & 0o022:
        raise PermissionError(f"{path.parent} is not a folder that only this account can write")
    path.mkdir(mode=0o700, exist_ok=True)
    home = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        owner = os.fstat(home).st_uid
        if owner == os.geteuid() != uid:  # just made, also by a life of ours that was killed right then
            os.fchmod(home, 0o700)
            os.fchown(home, uid, gid)
        elif owner != uid:
            raise PermissionError(f"the home {path} belongs to uid {owner}, not to {uid}")
    finally:
        os.close(home)


def listing(home: Path, uid: int, gid: int, path: tuple[str, ...] = (), limit: int = 5000) -> Listing:
    """What a folder holds. Raises OSError for what is not a folder beneath the home or may not be read by the user."""
    answer, _ = _ask(home, uid, gid, {"call": "listing", "names": list(path), "limit": limit})
    return Listing(tuple(Entry(**entry) for entry in answer["entries"]), bool(answer["more"]))


def open_file(home: Path, uid: int, gid: int, path: tuple[str, ...]) -> tuple[int, int]:
    """A descriptor, open for reading, of a regular file, and the file's size in bytes; the caller closes it.

    Raises OSError for anything else: no such file, a link on the way, a FIFO, a device, no right to read.
    """
    answer, descriptor = _ask(home, uid, gid, {"call": "open_file", "names": list(path)})
    if descriptor is None:
        raise OSError("the helper sent no descriptor")
    return descriptor, int(answer["bytes"])


def put_new(home: Path, uid: int, gid: int, path: tuple[str, ...], content: bytes) -> bool:
    """Make a file with that content, 0600; False, and nothing is done, when something is there already."""
    answer, _ = _ask(home, uid, gid, {"call": "put_new", "names": list(path), "text": base64.b64encode(content).decode("ascii")})
    return bool(answer["made"])


def missing(home: Path, uid: int, gid: int, items: Iterable[Item]) -> tuple[Item, ...]:
    """Those items that are not there, or not as what they were: a restore would fail on them."""
    answer, _ = _ask(home, uid, gid, {"call": "missing", "items": [asdict(item) for item in items]})
    return tuple(Item(tuple(item["path"]), item["kind"]) for item in answer["missing"])


def placeholders(home: Path, uid: int, gid: int, items: Iterable[Item]) -> tuple[Made, ...]:
    """Make an empty file or folder at each path where nothing is; all that was made, or nothing and an OSError."""
    answer, _ = _ask(home, uid, gid, {"call": "placeholders", "items": [asdict(item) for item in items]})
    return tuple(Made(tuple(made["path"]), made["kind"], made["device"], made["inode"]) for made in answer["made"])


def remove_unused(home: Path, uid: int, gid: int, made: Iterable[Made]) -> tuple[Made, ...]:
    """Remove placeholders that are still what was made and still empty; returns those removed."""
    answer, _ = _ask(home, uid, gid, {"call": "remove_unused", "made": [asdict(item) for item in made]})
    return tuple(Made(tuple(item["path"]), item["kind"], item["device"], item["inode"]) for item in answer["removed"])


def _ask(home: Path, uid: int, gid: int, request: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
    """Start the helper, hand it the home and the request, take its answer and at most one descriptor."""
    if uid == 0:
        raise PermissionError("a home is never worked in as root")
    place = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    mine, theirs = socket.socketpair()
    with closing(mine):
        try:
            with closing(theirs):
                # Isolated and without site packages: nothing of a user's or an environment's is imported as root.
                helper = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-B", _HELPER, str(uid), str(gid), str(place)],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    pass_fds=[place],
                    cwd="/",
                    env={"LANG": "C.UTF-8"},
                )
        finally:
            os.close(place)
        with helper:
            try:
                mine.settimeout(TIMEOUT)
                return _converse(mine, helper, request)
            except TimeoutError as error:
                raise OSError(f"the home {home} did not answer in {TIMEOUT:.0f} s") from error
            finally:
                helper.kill()


def _converse(mine: socket.socket, helper: subprocess.Popen[bytes], request: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
    mine.sendall(json.dumps(request).encode("ascii"))
    mine.shutdown(socket.SHUT_WR)
    first, descriptors, _, _ = socket.recv_fds(mine, 1, 1)
    descriptor = descriptors[0] if descriptors else None
    try:
        if not first:
            words = helper.stderr.read().decode(errors="replace") if helper.stderr else ""
            raise OSError(f"the helper for a home ended without an answer: {words[-500:]}")
        answer: dict[str, Any] = json.loads(b"".join(iter(lambda: mine.recv(1 << 16), b"")))
        if "errno" in answer:
            raise OSError(answer["errno"], answer["message"])
    except BaseException:
        if descriptor is not None:
            os.close(descriptor)
        raise
    if descriptor is not None:
        os.set_inheritable(descriptor, False)
    return answer, descriptor
