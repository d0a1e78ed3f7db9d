"""Files of the host that saved processes hold: found from the host's side, kept, and put back under a restore.

A memory image does not contain the pages of mapped files; a restore maps whatever lies at the path then. A library that was
replaced meanwhile (pip, dpkg: rename) would be run at the old offsets: silent corruption. So each file that the sandbox
still holds when it is saved is copied (reflinked where possible; never hard-linked, an inode can be rewritten in place) into
a store by content, and a changed path gets its old bytes back at the restore, through an overlay that only the restored
sandbox sees.

What is held is read from ``/proc/<sentry>/fd``: gVisor has an open descriptor on the host for every file that a process
inside has open, mapped or as its directory, and drops those of its cache when it saves. Nothing from inside is believed,
and only paths below the read-only binds of our own spec count. Descriptors are read, not paths: a file replaced while the
server runs is kept with the bytes that the server has.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from .errors import SandboxError
from .files import remove_tree, sha256_fd, sync_folder
from .spec import Json, SandboxSpec, is_below
from .together import together

SENTRY_ROOT = "/root"
"""Where gVisor's sentry sees the sandbox's root (its gofer's mount namespace)."""
EARLY = 256 << 10
"""Files from this size on are kept before the freeze already; the rest takes milliseconds."""
COPIES = 4
"""Files that are copied at the same time."""
PIECE = 16 << 20
"""Bytes that are copied between two looks whether the copy is still wanted."""
_FICLONE = 0x40049409
_O_PATH = os.O_PATH


class Held(NamedTuple):
    """A file or folder of the host that the sandbox holds."""

    path: str
    """In the sandbox, and on the host for read-only binds."""
    kind: str
    """``file``, ``folder`` or ``other``."""
    link: str
    """``/proc/PID/fd/N``: the thing itself, whatever lies at the path by now."""
    readable: bool
    unlinked: bool


def held_files(sentry: int) -> list[Held]:
    """Everything that the sandbox of that sentry holds, one entry a path."""
    found: dict[str, Held] = {}
    folder = f"/proc/{sentry}/fd"
    try:
        numbers = os.listdir(folder)
    except FileNotFoundError as error:
        raise SandboxError("sandbox_gone", "the sandbox has ended") from error
    for number in numbers:
        link = f"{folder}/{number}"
        try:
            target = os.readlink(link)
            if not target.startswith(SENTRY_ROOT + "/"):
                continue
            status = os.stat(link)
            flags = _open_flags(f"/proc/{sentry}/fdinfo/{number}")
        except FileNotFoundError:
            continue
        unlinked = status.st_nlink == 0 and target.endswith(" (deleted)")
        path = target[len(SENTRY_ROOT) :].removesuffix(" (deleted)") if unlinked else target[len(SENTRY_ROOT) :]
        kind = "file" if stat.S_ISREG(status.st_mode) else "folder" if stat.S_ISDIR(status.st_mode) else "other"
        held = Held(path, kind, link, not flags & _O_PATH, unlinked)
        known = found.get(path)
        if known is None or (held.readable, held.unlinked) > (known.readable, known.unlinked):
            found[path] = held
    return sorted(found.values())


def _open_flags(path: str) -> int:
    """The flags in a file of ``/proc/PID/fdinfo``; read bare, there are hundreds and a server stands still for it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(fd, 4096).split(b"flags:", 1)[1].split(None, 1)[0], 8)
    finally:
        os.close(fd)


def in_home(held: Iterable[Held], spec: SandboxSpec) -> list[dict[str, Json]]:
    """What is held in the home, relative to it; for placeholders at a restore. What was deleted is inside the image."""
    return [
        {"path": os.path.relpath(one.path, spec.home_inside), "kind": one.kind}
        for one in held
        if is_below(one.path, spec.home_inside) and one.path != spec.home_inside and not one.unlinked
    ]


class Store:
    """Copies by content under ``STATE/kept``, shared by all snapshots. Thread-safe; one in a process never copies a file twice."""

    def __init__(self, state: Path) -> None:
        self._copying: dict[str, threading.Lock] = {}
        self.folder = state / "kept"
        (self.folder / "index").mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """While copies are put in and a snapshot that names them is not visible yet: nothing is collected."""
        with open(self.folder / "lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield

    def keep_early(self, held: Iterable[Held], readonly: Sequence[str]) -> None:
        """Copy the large files while the server still runs, several at a time: most of it is waiting for the disk."""

        wanted = iter([one for one in held if is_library(one, readonly)])

        def work() -> None:
            for one in wanted:
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(one.link).st_size >= EARLY:
                        self.put(one.link)

        together(work, COPIES)

    def keep(self, held: Iterable[Held], readonly: Sequence[str]) -> list[dict[str, Json]]:
        """Copy every held file below the read-only binds, durably; returns what ``kept.json`` says of them."""
        entries: list[dict[str, Json]] = []
        for one in held:
            if bind_of(one.path, readonly) is None:
                continue
            entry: dict[str, Json] = {"path": one.path, "kind": one.kind}
            if one.kind == "file":
                status = os.stat(one.link)
                entry |= {name: getattr(status, f"st_{name}") for name in ("ino", "size", "mtime_ns", "ctime_ns")}
                entry["sha256"] = self.put(one.link)
            entries.append(entry)
        sync_folder(self.folder)
        return entries

    def path(self, digest: str) -> Path:
        """Where the copy lies."""
        return self.folder / digest

    def collect(self, still_wanted: Callable[[], set[str]]) -> None:
        """Remove the copies that nobody wants; not while some are being made (the next deletion does it then).

        What is wanted is asked for when nothing can be added any more.
        """
        with open(self.folder / "lock", "w", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            wanted = still_wanted()
            for entry in (self.folder / "index").iterdir():
                if entry.read_text(encoding="ascii") not in wanted:
                    entry.unlink()
            for copy in self.folder.iterdir():
                if copy.is_file() and copy.name != "lock" and copy.name not in wanted:
                    copy.unlink()

    def put(self, link: str, given_up: Callable[[], bool] = lambda: False) -> str:
        """Copy what ``link`` leads to unless it is here; returns its sha256. Waits for another thread's copy of the same file.

        Raises SandboxError ``sandbox_gone`` once ``given_up`` says so in the middle of a copy.
        """
        fd = os.open(link, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            name = "-".join(str(part) for part in (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
            with self._copying.setdefault(name, threading.Lock()):
                return self._put(fd, status.st_size, self.folder / "index" / name, given_up)
        finally:
            os.close(fd)

    def _put(self, fd: int, size: int, index: Path, given_up: Callable[[], bool]) -> str:
        with contextlib.suppress(FileNotFoundError):
            digest = index.read_text(encoding="ascii")  # empty where the machine went down: only the copies are durable
            if digest and os.stat(self.path(digest)).st_size == size:
                return digest
        temporary = self.folder / f".{os.getpid()}.{os.urandom(6).hex()}"
        copy = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _clone(fd, copy, given_up)
            digest = sha256_fd(copy)
            os.fchmod(copy, 0o555)
            os.fsync(copy)
            os.replace(temporary, self.path(digest))
        except BaseException:
            os.unlink(temporary)
            raise
        finally:
            os.close(copy)
        index.write_text(digest, encoding="ascii")
        return digest


def _clone(source: int, target: int, given_up: Callable[[], bool]) -> None:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        # Another file system, or one without reflinks: copy.
        offset = 0
        while count := os.sendfile(target, source, offset, PIECE):
            offset += count
            if given_up():
                raise SandboxError("sandbox_gone", "the copy is not wanted any more") from None


def is_library(one: Held, readonly: Sequence[str]) -> bool:
    """Whether it is a file to be kept whose reader may go on reading it (not one that gVisor only remembers the path of)."""
    return one.readable and one.kind == "file" and bind_of(one.path, readonly) is not None


def bind_of(path: str, readonly: Sequence[str]) -> str | None:
    """The innermost read-only bind that ``path`` lies in."""
    return max((bind for bind in readonly if is_below(path, bind)), key=len, default=None)


class Patched(NamedTuple):
    """A read-only bind whose tree must look as it did: mount ``layers`` over one another at ``target``."""

    bind: str
    layers: tuple[str, ...]
    """Uppermost first; one layer needs no overlay."""
    target: str
    names: tuple[str, ...] = ()
    """The files that have changed, of which the sandbox sees the old bytes."""


def patches(entries: Iterable[dict[str, Json]], readonly: Sequence[str], store: Store, room: Path) -> list[Patched]:
    """What has changed on the host since ``keep``, as overlays; builds their upper layers below ``room``.

    Raises SandboxError ``files_changed`` with the names, when the old bytes cannot be given back.
    """
    real = lru_cache(maxsize=None)(os.path.realpath)
    changed = [entry for entry in entries if not _unchanged(entry, bind_of(entry["path"], readonly) or "/", real)]
    lost = [entry["path"] for entry in changed if not _can_be_put_back(entry, store)]
    if lost:
        names = ", ".join(lost[:10]) + (f" and {len(lost) - 10} more" if len(lost) > 10 else "")
        raise SandboxError("files_changed", f"these files of the machine have changed and no copy is left: {names}")
    by_bind: dict[str, list[dict[str, Json]]] = {}
    for entry in changed:
        bind = bind_of(entry["path"], readonly)
        if bind is None:
            raise SandboxError("files_changed", f"{entry['path']} is not below what the sandbox may see today")
        by_bind.setdefault(bind, []).append(entry)
    remove_tree(room / "layers")
    made = []
    for number, (bind, parts) in enumerate(sorted(by_bind.items())):
        layer, target = room / "layers" / f"{number}-old", room / "layers" / f"{number}-view"
        layer.parent.mkdir(mode=0o700, exist_ok=True)
        if parts[0]["path"] == bind and parts[0]["kind"] == "file":
            made.append(Patched(bind, (str(store.path(parts[0]["sha256"])),), "", (bind,)))
            continue
        for folder in (layer, target):
            folder.mkdir()
            os.chmod(folder, 0o755)
        _fill(layer, bind, parts, store)
        layers = (str(layer), bind) if os.path.isdir(bind) else (str(layer),)
        made.append(Patched(bind, layers, str(target), tuple(part["path"] for part in parts if part["kind"] == "file")))
    return made


def _fill(layer: Path, bind: str, parts: Iterable[dict[str, Json]], store: Store) -> None:
    for entry in parts:
        inside = os.path.relpath(entry["path"], bind)
        folders = inside if entry["kind"] == "folder" else os.path.dirname(inside)
        where = layer
        for part in Path(folders).parts:
            where = where / part
            where.mkdir(exist_ok=True)
            os.chmod(where, 0o755)
        if entry["kind"] == "file":
            # Both ends are ours alone: one store, one room, one file system.
            os.link(store.path(entry["sha256"]), layer / inside)


def _unchanged(entry: dict[str, Json], bind: str, real: Callable[[str], str]) -> bool:
    """Whether the same thing lies there; ``real`` is ``os.path.realpath``, remembered for the hundreds of entries of one look."""
    path, folder = entry["path"], os.path.dirname(entry["path"])
    try:
        status = os.lstat(path)
        # The bind itself may lie behind a link on the host; nothing below it does, or the sandbox had seen another path.
        if path != bind and (
            stat.S_ISLNK(status.st_mode) or real(folder) != os.path.normpath(os.path.join(real(bind), os.path.relpath(folder, bind)))
        ):
            return False
    except OSError:
        return False
    if entry["kind"] == "folder":
        return stat.S_ISDIR(status.st_mode)
    if entry["kind"] != "file":
        return True
    if not stat.S_ISREG(status.st_mode) or status.st_size != entry["size"]:
        return False
    if all(getattr(status, f"st_{name}") == entry[name] for name in ("ino", "mtime_ns", "ctime_ns")):
        return True
    return bool(_content(entry["path"]) == entry["sha256"])


def _can_be_put_back(entry: dict[str, Json], store: Store) -> bool:
    if entry["kind"] != "file":
        return bool(entry["kind"] == "folder")
    return bool(_content(os.fspath(store.path(entry["sha256"]))) == entry["sha256"])


def _content(path: str) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return sha256_fd(fd)
    finally:
        os.close(fd)
