"""The helper process that works inside a user's home. Run as a file, never imported by the Hub; see :mod:`.homes`.

It starts as root with an open descriptor of the home, imports all it needs, becomes the user for good, reads one request and
answers it. Every path is a list of plain names that is resolved beneath the home without following any link
(``openat2`` with ``RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS``, Linux 5.6).
"""

from __future__ import annotations

import base64
import ctypes
import errno
import json
import os
import socket
import stat
import sys
from collections.abc import Callable
from typing import Any

_OPENAT2 = 437
_RESOLVE = 0x02 | 0x04 | 0x08  # no magic links, no symlinks, beneath
_LIBC = ctypes.CDLL(None, use_errno=True)
_TRIES = 16
"""``openat2`` says EAGAIN when something moved meanwhile."""


class _How(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def open_beneath(home: int, names: list[str], flags: int) -> int:
    """Open what those names lead to, below the home, through folders only."""
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise OSError(errno.EINVAL, "not a plain name", name)
    path = os.fsencode("/".join(names) or ".")
    how = _How(flags | os.O_CLOEXEC, 0, _RESOLVE)
    for _ in range(_TRIES):
        found = int(_LIBC.syscall(_OPENAT2, home, ctypes.c_char_p(path), ctypes.byref(how), ctypes.sizeof(how)))
        number = ctypes.get_errno()
        if found >= 0:
            return found
        if number != errno.EAGAIN:
            break
    raise OSError(number, os.strerror(number), os.fsdecode(path))


def listing(home: int, names: list[str], limit: int) -> tuple[dict[str, Any], None]:
    """At most ``limit`` entries of a folder, by name; ``more`` says that there are others."""
    folder = open_beneath(home, names, os.O_RDONLY | os.O_DIRECTORY)
    entries: list[dict[str, Any]] = []
    more = False
    with os.scandir(folder) as found:
        for entry in found:
            if len(entries) == limit:
                more = True
                break
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            entries.append({"name": entry.name, "kind": _kind(status.st_mode), "bytes": status.st_size, "modified": status.st_mtime})
    return {"entries": sorted(entries, key=lambda entry: str(entry["name"])), "more": more}, None


def open_file(home: int, names: list[str]) -> tuple[dict[str, Any], int]:
    """A regular file for reading. It is looked at before it is opened: opening a FIFO or a device can have effects."""
    place = open_beneath(home, names, os.O_PATH)
    if not stat.S_ISREG(os.fstat(place).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", "/".join(names))
    file = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return {"bytes": os.fstat(file).st_size}, file


def put_new(home: int, names: list[str], text: str) -> tuple[dict[str, Any], None]:
    """A new file with that content (base64); what is there already is left alone."""
    parent = open_beneath(home, names[:-1], os.O_PATH | os.O_DIRECTORY)
    try:
        file = os.open(names[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent)
    except FileExistsError:
        return {"made": False}, None
    with os.fdopen(file, "wb") as stream:
        stream.write(base64.b64decode(text))
    return {"made": True}, None


def missing(home: int, items: list[dict[str, Any]]) -> tuple[dict[str, Any], None]:
    """Those items that are not there as what they were."""
    return {"missing": [item for item in items if _found(home, item["path"]) != item["kind"]]}, None


def placeholders(home: int, items: list[dict[str, Any]]) -> tuple[dict[str, Any], None]:
    """Make an empty file or folder for each item that is absent, and the folders above it; what is there is left alone."""
    made: list[dict[str, Any]] = []
    try:
        for item in items:
            names = item["path"]
            if not names:
                continue
            for depth in range(1, len(names)):
                _make(home, names[:depth], "folder", made)
            _make(home, names, item["kind"], made)
    except OSError:
        remove_unused(home, made)
        raise
    return {"made": made}, None


def remove_unused(home: int, made: list[dict[str, Any]]) -> tuple[dict[str, Any], None]:
    """Remove those placeholders that are still the same inode and still empty, the deepest first."""
    removed: list[dict[str, Any]] = []
    for item in reversed(made):
        try:
            parent = open_beneath(home, item["path"][:-1], os.O_PATH | os.O_DIRECTORY)
            status = os.stat(item["path"][-1], dir_fd=parent, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EXDEV, errno.EACCES):
                continue
            raise
        if (status.st_dev, status.st_ino) != (item["device"], item["inode"]) or _kind(status.st_mode) != item["kind"]:
            continue
        try:
            if item["kind"] == "folder":
                os.rmdir(item["path"][-1], dir_fd=parent)
            elif status.st_size == 0 and status.st_nlink == 1:
                os.unlink(item["path"][-1], dir_fd=parent)
            else:
                continue
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.EBUSY):
                continue
            raise
        removed.append(item)
    return {"removed": removed}, None


def _make(home: int, names: list[str], kind: str, made: list[dict[str, Any]]) -> None:
    parent = open_beneath(home, names[:-1], os.O_PATH | os.O_DIRECTORY)
    try:
        try:
            if kind == "folder":
                os.mkdir(names[-1], 0o700, dir_fd=parent)
            else:
                os.close(os.open(names[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent))
        except FileExistsError:
            return
        status = os.stat(names[-1], dir_fd=parent, follow_symlinks=False)
        made.append({"path": names, "kind": kind, "device": status.st_dev, "inode": status.st_ino})
    finally:
        os.close(parent)


def _found(home: int, names: list[str]) -> str | None:
    try:
        place = open_beneath(home, names, os.O_PATH)
    except OSError:
        return None
    try:
        return _kind(os.fstat(place).st_mode)
    finally:
        os.close(place)


def _kind(mode: int) -> str:
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


CALLS: dict[str, Callable[..., tuple[dict[str, Any], int | None]]] = {
    "listing": listing,
    "open_file": open_file,
    "put_new": put_new,
    "missing": missing,
    "placeholders": placeholders,
    "remove_unused": remove_unused,
}


def main() -> None:
    """``inhome.py UID GID HOME_FD``, with one end of a socket pair as standard input."""
    uid, gid, home = (int(word) for word in sys.argv[1:4])
    os.umask(0o077)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    connection = socket.socket(fileno=0)
    request = json.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))
    call = CALLS[request.pop("call")]
    descriptor = None
    try:
        answer, descriptor = call(home, **request)
    except OSError as error:
        answer = {"errno": error.errno or errno.EIO, "message": error.strerror or str(error)}
    text = json.dumps(answer).encode("ascii")
    socket.send_fds(connection, [b"."], [] if descriptor is None else [descriptor])
    connection.sendall(text)


if __name__ == "__main__":
    main()
