"""The home of a paused server: looked at and downloaded, never run.

A paused server cannot show its files, the Hub can, and the files are the user's: any byte of them may be hostile, to the Hub's
origin above all. So every answer is either our own page with escaped names, or an attachment without a type
(``application/octet-stream``, ``nosniff``, ``Content-Security-Policy: sandbox``); a preview is escaped text in our page.

Reading itself is not done here. A :class:`Home` (given by the spawner) opens in the user's uid and beneath the home only; what it
hands over is checked again: a regular file, and no more bytes than it had when it was opened.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

CHUNK = 256 * 1024
"""Bytes per read and write; a slow client holds that much of a file in memory, whatever the file's size."""
PREVIEW = 256 * 1024
"""Bytes of a file that a preview shows."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder. ``kind`` is ``file``, ``folder`` or ``other`` (link, socket, device: shown, never opened)."""

    name: str
    kind: str
    bytes: int
    modified: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What was found in a folder; ``more`` says that it holds others."""

    entries: Sequence[Entry]
    more: bool = False


class Home(Protocol):
    """What a spawner gives for a paused server. Paths are tuples of plain names below the home; the empty tuple is the home.

    Both run in the user's uid, resolve beneath the home without following any link, and raise ``OSError`` for whatever is not there,
    is not of the right kind or may not be read. They may be coroutines.
    """

    def listing(self, path: tuple[str, ...]) -> Listing | Awaitable[Listing]: ...
    def open_file(self, path: tuple[str, ...]) -> int | Awaitable[int]:
        """A file descriptor open for reading; the caller closes it."""


class BadPath(ValueError):
    """A path that no folder below a home can have."""


def split_path(path: str) -> tuple[str, ...]:
    """The names of a decoded URL path. Raises :class:`BadPath` for ``.``, ``..``, empty or overlong names and NUL."""
    names = tuple(path.strip("/").split("/")) if path.strip("/") else ()
    for name in names:
        if name in {"", ".", ".."} or "\0" in name or len(name.encode("utf-8", "surrogateescape")) > 255:
            raise BadPath(path)
    return names


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """As people look for them: what is hidden (a leading dot) last, folders first, by name."""
    return sorted(entries, key=lambda entry: (entry.name.startswith("."), entry.kind != "folder", entry.name.casefold(), entry.name))


def addressable(name: str) -> bool:
    """Whether a name can stand in a URL; names that are not UTF-8 are shown, but have no link."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def shown(name: str) -> str:
    """A name as text that every page can carry; bytes that are not UTF-8 become U+FFFD."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def attachment(name: str) -> str:
    """``Content-Disposition`` for a download (RFC 6266): ASCII fallback without quotes or controls, and the real name."""
    fallback = "".join(c if " " <= c <= "~" and c not in '"\\%' else "_" for c in name)
    return f"attachment; filename=\"{fallback}\"; filename*=UTF-8''{quote(name, safe='')}"


def regular_size(fd: int) -> int:
    """Size in bytes of an open regular file; ``OSError`` for anything else."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise OSError("not a regular file")
    return status.st_size


async def read(fd: int, size: int) -> AsyncIterator[bytes]:
    """At most ``size`` bytes from the start, read in a thread: a slow disk must not hold the Hub's event loop."""
    loop = asyncio.get_running_loop()
    offset = 0
    while offset < size:
        chunk = await loop.run_in_executor(None, os.pread, fd, min(CHUNK, size - offset), offset)
        if not chunk:
            return
        offset += len(chunk)
        yield chunk


async def preview(fd: int, size: int) -> tuple[str | None, bool]:
    """Text of the first :data:`PREVIEW` bytes and whether that is all; ``None`` when it is not text (a NUL byte in it)."""
    head = b"".join([chunk async for chunk in read(fd, min(size, PREVIEW))])
    if b"\0" in head:
        return None, False
    return head.decode("utf-8", "replace"), size <= PREVIEW
