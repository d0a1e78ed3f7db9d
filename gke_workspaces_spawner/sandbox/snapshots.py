"""Snapshots on disk: complete or invisible, and every byte accounted for.

``STATE/snapshots/<id>/`` holds the image (``checkpoint.img``, ``pages_meta.img``, ``pages.img``), ``manifest.json`` (the
caller's), ``spec.json`` (how to make the sandbox again), ``kept.json`` (files of the host that the processes hold) and
``macs.json``: size and sha256 of each small file under one MAC. A snapshot is written as ``.partial-<id>`` and renamed.

``pages.img`` is memory that will run. Its chunk list is ``pages.json``, with a MAC of its own: the *seal*. It is made after
the sandbox has gone (reading 6 GB takes seconds that nobody should wait frozen), by the shim as its last act. Each part of
4 MiB is tagged with AES-GMAC (:mod:`.gmac`) under a key that only this seal has; where there is no libcrypto, and in older
seals, it is hashed with SHA-256.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import hmac
import itertools
import mmap
import os
import time
from collections.abc import Callable, Iterator, Mapping
from ctypes import addressof, c_char
from pathlib import Path

from . import gmac
from .diskroom import memory_available
from .errors import SandboxError
from .files import CHUNK, canonical, mac_of, read_json, remove_tree, same_mac, sha256_file, sync_folder, write_json
from .spec import Json, check_id
from .together import together

PAGES = "pages.img"
MACS = "macs.json"
SEAL = "pages.json"
THREADS = min(4, os.cpu_count() or 1)
"""That tag pages at the same time."""
AHEAD = 64 << 20
"""Bytes that the disk is asked for before they are needed."""
SPARE_MEMORY = 1 << 30
"""Bytes of memory that a check leaves beside the pages in the cache and the pages that are being restored."""
REST_SECONDS = 0.008
"""Between parts of a seal that nobody waits for: it then takes about a third of a disk of 1.2 GB/s, and whoever else commits to that disk
(the Hub's database) is not held up (measured: a commit beside a seal at full speed took 0.1 to 1 s)."""
TAGS, HASHES = "gmac", "sha256"
"""Entries of a seal: what it says of each part."""

Digest = Callable[[int, memoryview], str]
"""What is said of the part with that number."""
Part = Callable[[int], memoryview]
"""Reads the part with that number."""


class Shelf:
    """All snapshots of a state folder."""

    def __init__(self, state: Path, key: bytes) -> None:
        self.folder = state / "snapshots"
        self._key = key
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def path(self, snapshot_id: str) -> Path:
        """Where a complete snapshot lies."""
        return self.folder / check_id("snapshot", snapshot_id)

    def partial(self, snapshot_id: str) -> Path:
        """Where it is written until it is complete."""
        return self.folder / f".partial-{check_id('snapshot', snapshot_id)}"

    def ids(self) -> tuple[str, ...]:
        """Complete snapshots."""
        return tuple(sorted(entry.name for entry in self.folder.iterdir() if not entry.name.startswith(".")))

    def publish(self, snapshot_id: str) -> None:
        """Sign what lies in the partial folder, make it durable and then visible."""
        partial = self.partial(snapshot_id)
        files = {}
        for entry in sorted(os.scandir(partial), key=lambda one: one.name):
            size = entry.stat(follow_symlinks=False).st_size
            files[entry.name] = {"size": size} if entry.name == PAGES else {"size": size, "sha256": sha256_file(Path(entry.path))}
        body = {"version": 1, "snapshot": snapshot_id, "files": files}
        write_json(partial / MACS, {**body, "mac": mac_of(self._key, body)})
        for name in (*files, MACS):
            with open(partial / name, "rb") as file:
                os.fsync(file.fileno())
        sync_folder(partial)
        os.rename(partial, self.path(snapshot_id))
        sync_folder(self.folder)

    def delete(self, snapshot_id: str) -> None:
        """Remove a snapshot, complete or partial; visible as a whole or not at all also while it goes."""
        partial = self.partial(snapshot_id)
        with contextlib.suppress(FileNotFoundError):
            remove_tree(partial)
            os.rename(self.path(snapshot_id), partial)
            # Whoever hashes the pages notices and lets go: else their bytes would stay.
            with _locked(partial, fcntl.LOCK_EX):
                remove_tree(partial)
        remove_tree(partial)
        sync_folder(self.folder)

    def abandon(self, snapshot_id: str) -> None:
        """Remove a snapshot that nobody may ever restore; its bytes are free at once.

        A sandbox whose save failed keeps the files open until it ends (seen with ``runsc checkpoint`` on a full disk).
        """
        for folder in (self.partial(snapshot_id), self.path(snapshot_id)):
            with contextlib.suppress(FileNotFoundError):
                os.truncate(folder / PAGES, 0)
        self.delete(snapshot_id)

    # ------------------------------------------------------------ reading

    def check(self, snapshot_id: str) -> None:
        """Verify all files but the pages, and the pages' size.

        Raises SandboxError ``snapshot_gone`` or ``snapshot_changed``, naming the file.
        """
        folder = self.path(snapshot_id)
        if not folder.is_dir():
            raise SandboxError("snapshot_gone", f"there is no snapshot {snapshot_id}")
        with _reading(folder, MACS):
            macs = read_json(folder / MACS)
        if macs is None:
            raise SandboxError("snapshot_changed", f"{MACS} is missing")
        mac = macs.pop("mac", "")
        if not isinstance(mac, str) or not same_mac(mac, mac_of(self._key, macs)) or macs.get("snapshot") != snapshot_id:
            raise SandboxError("snapshot_changed", f"{MACS} is not what was written for this snapshot")
        present = {entry.name for entry in os.scandir(folder)} - {MACS, SEAL} - _scratch(folder)
        for name in sorted(present ^ set(macs["files"])):
            raise SandboxError("snapshot_changed", f"{name} {'was added' if name in present else 'is missing'}")
        for name, known in macs["files"].items():
            with _reading(folder, name):
                same = os.lstat(folder / name).st_size == known["size"]
                if same and "sha256" in known:
                    same = sha256_file(folder / name) == known["sha256"]
            if not same:
                raise SandboxError("snapshot_changed", f"{name} is not as it was written")

    def read(self, snapshot_id: str, name: str) -> dict[str, Json] | None:
        """One of the JSON files, after :meth:`check`; ``None`` when there is no such snapshot."""
        try:
            self.check(snapshot_id)
        except SandboxError as error:
            if error.code == "snapshot_gone":
                return None
            raise
        return read_json(self.path(snapshot_id) / name)

    # ------------------------------------------------------------ the seal of the pages

    def sealed(self, snapshot_id: str) -> bool:
        """Whether the chunk list of the pages has been written."""
        return (self.path(snapshot_id) / SEAL).exists()

    def seal(self, snapshot_id: str) -> bool:
        """Tag the pages and write the chunk list; a second caller waits for the first. False when it was there."""
        folder = self.path(snapshot_id)
        with contextlib.suppress(FileNotFoundError), _locked(folder, fcntl.LOCK_EX):
            if not (folder / SEAL).exists():
                body, name, digest = self._begin_seal(snapshot_id)
                self._write_seal(snapshot_id, {**body, name: chunks(folder / PAGES, CHUNK, digest)})
                return True
        return False

    def seal_at_leisure(self, snapshot_id: str) -> bool:
        """The same with rests, in which :meth:`verify` of a resume that cannot wait takes over. False when somebody else made it."""
        folder = self.path(snapshot_id)
        body, name, digest = self._begin_seal(snapshot_id)
        found: list[str] = []
        with contextlib.suppress(FileNotFoundError), _opened(folder / PAGES) as (fd, cached):
            read = _reader(fd, folder / PAGES, CHUNK, CHUNK if cached else 0)
            while True:
                with _locked(folder, fcntl.LOCK_EX):
                    if (folder / SEAL).exists():
                        return False
                    part = read(len(found))
                    if not part:
                        self._write_seal(snapshot_id, {**body, name: found})
                        return True
                    found.append(digest(len(found), part))
                time.sleep(REST_SECONDS)
        return False

    def _begin_seal(self, snapshot_id: str) -> tuple[dict[str, Json], str, Digest]:
        """A seal without its chunk list, the name of that list, and what makes its entries."""
        body: dict[str, Json] = {"version": 1, "snapshot": snapshot_id, "chunk": CHUNK, "nonce": os.urandom(16).hex()}
        return (body, HASHES, hashed) if gmac.load() is None else (body, TAGS, self._tagged(body))

    def _write_seal(self, snapshot_id: str, body: Mapping[str, Json]) -> None:
        write_json(self.path(snapshot_id) / SEAL, {**body, "mac": mac_of(self._key, body)}, durable=True)

    def verify(self, snapshot_id: str) -> None:
        """Compare every byte of the pages with the seal (as fast as they can be read); what was never sealed is sealed instead.

        Raises SandboxError ``snapshot_gone`` or ``snapshot_changed``; ``restore_failed`` where this machine cannot tell.
        """
        self.check(snapshot_id)
        if self.seal(snapshot_id):
            return  # by the bytes of this moment: to read them again would tell nothing more
        folder = self.path(snapshot_id)
        with _reading(folder, SEAL):
            seal = read_json(folder / SEAL)
        if seal is None:
            raise SandboxError("snapshot_gone", f"there is no snapshot {snapshot_id}")
        mac = seal.pop("mac", "")
        if not isinstance(mac, str) or not same_mac(mac, mac_of(self._key, seal)) or seal.get("snapshot") != snapshot_id:
            raise SandboxError("snapshot_changed", f"{SEAL} is not what was written for this snapshot")
        said = TAGS if TAGS in seal else HASHES
        if said == TAGS and gmac.load() is None:
            raise SandboxError("restore_failed", f"{SEAL} cannot be read without libcrypto, which this machine has no more")
        with _reading(folder, PAGES), _locked(folder, fcntl.LOCK_SH):
            found, wanted = chunks(folder / PAGES, seal["chunk"], self._tagged(seal) if said == TAGS else hashed), seal[said]
        if found != wanted:
            bad = [at for at, (one, other) in enumerate(zip(found, wanted, strict=False)) if one != other]
            where = f"{len(bad)} of {len(found)} parts differ" if bad else "its length differs"
            raise SandboxError("snapshot_changed", f"{PAGES} is not as it was written: {where}")

    def _tagged(self, seal: Mapping[str, Json]) -> Digest:
        """GMAC under a key of that seal alone: its nonce is random, so no other seal of this snapshot ever had it."""
        key = hmac.new(self._key, f"pages/v1/{seal['snapshot']}/{seal['nonce']}".encode(), hashlib.sha256).digest()
        library = gmac.load()
        assert library is not None

        def tag(number: int, part: memoryview) -> str:
            return library.tag(key, number, addressof(c_char.from_buffer(part)), len(part))

        return tag


def hashed(_number: int, part: memoryview) -> str:
    """Hex sha256."""
    return hashlib.sha256(part).hexdigest()


def chunks(path: Path, size: int, digest: Digest) -> list[str]:
    """What ``digest`` says of each chunk.

    By several threads: reading and tagging both let go of the interpreter, and a resume waits for this. Where there is memory to
    spare the file is read through the page cache, as fast as past it when it was asked for ahead, and is found there next time: the
    seal after a pause makes the check at its resume twice as fast. Raises ``FileNotFoundError`` when the file's name goes meanwhile.
    """
    found: dict[int, str] = {}
    numbers = itertools.count()

    def work() -> None:
        read = _reader(fd, path, size, AHEAD if cached else 0)
        while part := read(number := next(numbers)):
            found[number] = digest(number, part)

    with _opened(path) as (fd, cached):
        together(work, THREADS)
    return [found[number] for number in sorted(found)]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[int, bool]]:
    """A descriptor to read pages with, and whether it reads through the page cache."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    cached = memory_available() > 2 * os.fstat(fd).st_size + SPARE_MEMORY
    if not cached:
        fd = _past_the_cache(path, fd)
    try:
        yield fd, cached
    finally:
        os.close(fd)


def _reader(fd: int, path: Path, size: int, ahead: int) -> Part:
    """Reads a part at a time, empty after the last, into memory of its own: a part is valid until the next one is read."""
    total, view = os.fstat(fd).st_size, memoryview(mmap.mmap(-1, size))

    def read(number: int) -> memoryview:
        offset = number * size
        if ahead and offset < total:
            os.posix_fadvise(fd, offset, ahead, os.POSIX_FADV_WILLNEED)
        count = _fill(fd, view, offset, max(0, min(size, total - offset)))
        os.lstat(path)
        return view[:count]

    return read


def _past_the_cache(path: Path, fd: int) -> int:
    """A descriptor that reads past the page cache in place of that one, where the file system can."""
    try:
        direct = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return fd
        os.close(fd)
        raise
    os.close(fd)
    return direct


def _fill(fd: int, view: memoryview, offset: int, wanted: int) -> int:
    """Read so many bytes from there; how many there were."""
    count = 0
    while count < wanted and (more := os.preadv(fd, [view[count:]], offset + count)):
        count += more
    return count


def digest_of(manifest: Mapping[str, Json]) -> str:
    """The digest by which records name a manifest."""
    return hashlib.sha256(canonical(manifest)).hexdigest()


def _scratch(folder: Path) -> set[str]:
    return {entry.name for entry in os.scandir(folder) if entry.name.startswith(".") and entry.name.endswith(".new")}


@contextlib.contextmanager
def _reading(folder: Path, name: str) -> Iterator[None]:
    """Whatever is wrong with a file of a snapshot, it has been changed; a snapshot that has gone is gone."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        if not folder.is_dir():
            raise SandboxError("snapshot_gone", f"there is no snapshot {folder.name}") from error
        raise SandboxError("snapshot_changed", f"{name} cannot be read: {error}") from error


@contextlib.contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, how)
        yield
    finally:
        os.close(fd)
