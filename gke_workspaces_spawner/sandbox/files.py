"""Files that survive a crash, and folders that only we can touch."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import SandboxError

CHUNK = 4 << 20
"""Bytes per entry of a chunk list."""


def write_json(path: Path, value: Mapping[str, Any], *, durable: bool = False) -> None:
    """Replace ``path`` by ``value`` at once: a reader sees the old or the new, also when we are killed.

    ``durable`` as well when the machine is. What a room holds does not outlive the machine and needs none of that.
    """
    data = json.dumps(value, sort_keys=True).encode()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    if durable:
        sync_folder(path.parent)


def read_json(path: Path) -> dict[str, Any] | None:
    """What :func:`write_json` wrote; ``None`` when the file is not there."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value


def sync_folder(folder: Path) -> None:
    """Make renames in ``folder`` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_tree(path: Path) -> None:
    """Remove a folder of ours with everything in it; not there is fine."""
    try:
        entries = list(os.scandir(path))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(Path(entry.path))
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry.path)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(path)


def tree_bytes(path: Path) -> int:
    """Bytes on disk of the files directly in ``path``; 0 when it is not there."""
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(path):
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def sha256_fd(fd: int) -> str:
    """Hex digest of a whole open file, from its start, whatever its position."""
    digest = hashlib.sha256()
    offset = 0
    while block := os.pread(fd, CHUNK, offset):
        digest.update(block)
        offset += len(block)
    return digest.hexdigest()


def sha256_file(path: Path) -> str:
    """Hex digest of a file that is no symlink."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        return sha256_fd(fd)
    finally:
        os.close(fd)


def canonical(value: Any) -> bytes:
    """The one JSON text of a value, for digests."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def mac_of(key: bytes, value: Any) -> str:
    """Hex HMAC-SHA256 over the canonical JSON of a value."""
    return hmac.new(key, canonical(value), hashlib.sha256).hexdigest()


def same_mac(one: str, other: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def make_private(folder: Path) -> None:
    """Make ``folder`` (0700) and refuse to use it where anybody else could replace it.

    As sshd's StrictModes: every ancestor belongs to root or to us and is writable by no other; a sticky folder such as
    ``/tmp`` will do, since only the owner of an entry may rename it there. Raises SandboxError ``state_unsafe``.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    real = Path(os.path.realpath(folder))
    refuse_steerable(real)
    found = os.stat(real)
    if found.st_uid != os.geteuid():
        raise SandboxError("state_unsafe", f"{real} belongs to uid {found.st_uid}")
    if stat.S_IMODE(found.st_mode) != 0o700:
        os.chmod(real, 0o700)


def refuse_steerable(path: Path) -> None:
    """Raise SandboxError ``state_unsafe`` if another uid could put something else at ``path``."""
    ours = (0, os.geteuid())
    for part in (path, *path.parents):
        found = os.lstat(part)
        if found.st_uid not in ours:
            raise SandboxError("state_unsafe", f"{part} belongs to uid {found.st_uid}")
        sticky_folder = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX and part != path
        if found.st_mode & 0o022 and not sticky_folder:
            raise SandboxError("state_unsafe", f"{part} can be written by others (mode {stat.S_IMODE(found.st_mode):04o})")
