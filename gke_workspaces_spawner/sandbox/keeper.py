"""Copies what a running sandbox holds before anybody asks for a pause, so that the first pause does not pay for it.

A server holds some 100 libraries (200 MB and more). Their copies are shared by all snapshots and servers of a state folder, but
the first pause would have to write them while its user waits. So the shim looks some seconds after a start, and again ever more
seldom, and copies what is new: at the lowest priority, one shim of the state folder at a time. A save that comes meanwhile lets
the copy under way finish at its own priority instead of making it twice, and does the rest itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import threading
from collections.abc import Iterator, Sequence

from . import kept
from .diskroom import free_bytes
from .errors import SandboxError
from .files import write_json
from .journal import note
from .processes import set_idle
from .room import EARLY, Room

FIRST_SECONDS = 5.0
"""From a start to the first look; every next one comes after twice the time."""
MOST_SECONDS = 600.0
SPARE_BYTES = 1 << 30
"""Bytes that stay free on the disk: copies for a pause that may never come must not take the last room."""


class Keeper:
    """The background copies of one room, in a thread of its shim."""

    def __init__(self, room: Room, store: kept.Store) -> None:
        self._room = room
        self._store = store
        self._guard = threading.Lock()
        self._aside = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, sentry: int, readonly: Sequence[str]) -> None:
        """Look after the sandbox of that sentry from now on."""
        self._thread = threading.Thread(target=self._work, args=(sentry, tuple(readonly)), name="keep", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """No more copies; returns at once."""
        self._end.set()

    def join(self) -> None:
        """Wait until the thread has ended, after :meth:`end`."""
        if self._thread is not None:
            self._thread.join()

    @contextlib.contextmanager
    def stands_aside(self) -> Iterator[None]:
        """While a save copies: only the copy under way is finished, no slower than the save's own."""
        with self._guard:
            self._aside += 1
            self._set_idle(False)
        try:
            yield
        finally:
            with self._guard:
                self._aside -= 1

    # ------------------------------------------------------------ the thread

    def _work(self, sentry: int, readonly: Sequence[str]) -> None:
        seconds = FIRST_SECONDS
        while not self._end.wait(seconds):
            try:
                self._look(sentry, readonly)
            except (OSError, SandboxError) as error:
                # Nobody waits for these copies: a full disk, say, or a sandbox that ends under our eyes. The pause will tell.
                note(f"copies of what {self._room.id} holds: {error}")
            seconds = min(MOST_SECONDS, 2 * seconds)

    def _look(self, sentry: int, readonly: Sequence[str]) -> None:
        with open(self._room.state / "early.lock", "w", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            with self._guard:
                if self._aside:
                    return
                self._set_idle(True)
            with self._store.in_use():
                digests = set()
                for one in kept.held_files(sentry):
                    if not kept.is_library(one, readonly):
                        continue
                    with self._guard:
                        if self._aside or self._end.is_set():
                            return
                        self._set_idle(True)
                    if free_bytes(self._room.state) < SPARE_BYTES:
                        return
                    with contextlib.suppress(FileNotFoundError):
                        digests.add(self._store.put(one.link, self._end.is_set))
                write_json(self._room.path / EARLY, {"sha256": sorted(digests)})

    def _set_idle(self, idle: bool) -> None:
        """Sets the thread's own priority; the guard is held."""
        if self._thread is not None and self._thread.native_id is not None and self._thread.is_alive():
            set_idle(self._thread.native_id, idle)
