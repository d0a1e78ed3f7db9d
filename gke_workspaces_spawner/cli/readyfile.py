"""The ready file: what a script needs to use the demo, tokens among it, so it is written as a secret.

It appears complete or not at all (``O_EXCL | O_NOFOLLOW``, then a rename inside the opened folder), belongs to the person who
called sudo, is 0600, and lies only where nobody else could put something in its place.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .places import caller
from .say import Stopped


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write it. Raises Stopped where it would not be safe."""
    uid, gid = caller()
    with _parent(path) as folder:
        temporary = f".{path.name}.{secrets.token_hex(8)}"
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o600)
                os.fchown(file.fileno(), uid, gid)
                json.dump(content, file, indent=2)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise


def remove(path: Path) -> None:
    """Remove a ready file of ours, also a stale one; not there is fine. Raises Stopped when it is something else."""
    if not path.parent.exists():
        return
    with _parent(path) as folder:
        try:
            handle = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _not_ours(path) from error
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode) or not _is_ready_file(os.read(handle, 1 << 20)):
                raise _not_ours(path)
        finally:
            os.close(handle)
        os.unlink(path.name, dir_fd=folder)


def check_place(path: Path) -> None:
    """Raise Stopped now, rather than after minutes, if the file could not be written there."""
    with _parent(path):
        pass


def _is_ready_file(text: bytes) -> bool:
    try:
        content = json.loads(text)
    except ValueError:
        return False
    return isinstance(content, dict) and {"url", "hub_api_url", "admin_token", "users"} <= content.keys()


def _not_ours(path: Path) -> Stopped:
    return Stopped(f"{path} is there and is not a ready file of the demo: move it away, or name another one with --ready-file.")


@contextmanager
def _parent(path: Path) -> Iterator[int]:
    """The opened folder of a path, after a look at it and all above it, as sshd's StrictModes."""
    folder = path.absolute().parent.resolve()
    if not folder.is_dir():
        raise Stopped(f"The folder of the ready file, {folder}, is not there: make it first.")
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        trusted = {0, os.geteuid(), caller()[0]}
        for place in (folder, *folder.parents):
            found = os.fstat(handle) if place == folder else place.stat()
            # In a sticky folder others cannot replace what is not theirs; only directly in one they could be first with a name.
            others_write = found.st_mode & 0o022 and not (found.st_mode & stat.S_ISVTX and place != folder)
            if found.st_uid not in trusted or others_write:
                raise Stopped(
                    f"The ready file holds tokens, and others can write {place}: name one in a folder of your own with --ready-file."
                )
        yield handle
    finally:
        os.close(handle)
