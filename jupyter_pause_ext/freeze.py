"""Stop everything of the user in this container, and let it go on as if nothing had been.

In a pod nobody outside can freeze a server's processes, so the server does it: all of its pid namespace but itself, the
processes that it descends from, and pid 1. Stopped parents first and continued children first: in any other order a shell
sees its foreground job stop, takes the terminal back and leaves the job "Stopped" (tried, Linux and gVisor). A child is
stopped only when its parent stands, for another reason too: a parent in ``vfork`` cannot stop before its child has called
``exec``. What the user had stopped himself (Ctrl-Z) is left as it was.

What stands goes on by :meth:`Freezer.release`, or by itself at a wall-clock limit that a thread watches: also in a copy that
is restored days later, and when the server's event loop hangs.

Nothing here knows of the event loop; every method may be called from any thread.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace

from . import procfs
from .procfs import Stat

FREEZE_SECONDS = 4.0
"""How long stopping everything may take; the Hub waits ten for the whole of ``prepare``."""
ROUND_SECONDS = 0.5
"""How long one round waits for what it has signalled; then it looks again for who is left."""
LOOK_EVERY = 1.0
"""Seconds between looks at the clock and at what stands; longer where a look itself takes long."""
LOOK_SHARE = 20
"""A look may take one part in so many of the time between looks."""
MAX_NAMES = 20
"""Processes named in a message."""

STANDS = frozenset("Tt")
ENDED = frozenset("ZXx")
INITIAL_NAMESPACE = "pid:[4026531836]"
"""The kernel's own pid namespace (PROC_PID_INIT_INO): all processes of a machine, not of a container."""


class Unfrozen(Exception):
    """Not everything could be stopped, so everything goes on. ``names`` tells what stood in the way."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(set(names))[:MAX_NAMES]
        super().__init__(", ".join(self.names))


class NotPermitted(Unfrozen):
    """This server may not signal these processes (of another user, or root's)."""


class Incomplete(Unfrozen):
    """These processes did not stop in time, or new ones kept coming."""


@dataclass(frozen=True)
class Frozen:
    """What stands, since and until when (wall clock)."""

    pause_id: str
    at: float
    until: float
    processes: int
    """How many stand, those that the user had stopped among them."""


def in_container() -> bool:
    """Whether this process lives in a pid namespace of its own; where that cannot be told it does not."""
    try:
        return os.readlink("/proc/self/ns/pid") != INITIAL_NAMESPACE
    except OSError:
        return False


class Freezer:
    """At most one pause is frozen at a time."""

    def __init__(self, clock: Callable[[], float] = time.time, log: logging.Logger | None = None) -> None:
        self._clock = clock
        self._log = log or logging.getLogger(__name__)
        self._lock = threading.RLock()
        self._frozen: Frozen | None = None
        self._patience = 0.0
        """The limit by the monotonic clock, for a wall clock that is set back."""
        self._stopped: dict[int, Stat] = {}
        """What this freezer has stopped, in that order."""
        self._traces: dict[int, tuple[object, ...]] = {}
        """Of all that stands."""
        self._broken = False
        self._released: Callable[[str], None] = lambda why: None
        self._over = threading.Event()

    # ------------------------------------------------------------ verbs

    def freeze(self, pause_id: str, seconds: float, released: Callable[[str], None]) -> Frozen:
        """Stop everything for so many seconds at most; ``released(why)`` is called, in any thread, when it goes on by itself.

        The same pause again extends the limit, unless the standstill was broken: then, as for another pause, all goes on first.
        Raises :class:`NotPermitted` (nothing was stopped, or all goes on) or :class:`Incomplete` (all goes on).
        """
        with self._lock:
            if self._frozen is not None:
                known = self._confirm(pause_id, seconds)
                if known is not None:
                    return known
                self._go_on()
            try:
                standing = self._stop_all()
            except BaseException:
                self._go_on()
                raise
            now = self._clock()
            self._traces = {pid: _traces(stat) for pid, stat in standing.items()}
            self._broken = False
            self._released = released
            self._over = threading.Event()
            self._patience = time.monotonic() + seconds
            self._frozen = Frozen(pause_id, now, now + seconds, len(standing))
            threading.Thread(target=self._watch, args=(self._over,), name="freeze-limit", daemon=True).start()
            return self._frozen

    def confirm(self, pause_id: str, seconds: float) -> Frozen | None:
        """Extend the limit to so many seconds from now, if all stood still without a break since that pause's freeze; else ``None``."""
        with self._lock:
            return self._confirm(pause_id, seconds)

    def release(self, why: str, pause_id: str | None = None) -> bool:
        """Let everything go on (of that pause only, where one is named); False when nothing stood."""
        with self._lock:
            if self._frozen is None or (pause_id is not None and pause_id != self._frozen.pause_id):
                return False
            released = self._go_on()
        self._log.info("pause: the user's processes go on (%s)", why)
        released(why)
        return True

    @property
    def pause_id(self) -> str | None:
        """The pause whose freeze holds."""
        frozen = self._frozen
        return None if frozen is None else frozen.pause_id

    # ------------------------------------------------------------ inside, with the lock held

    def _confirm(self, pause_id: str, seconds: float) -> Frozen | None:
        if self._frozen is None or self._frozen.pause_id != pause_id or self._due() or not self._unbroken():
            return None
        until = max(self._frozen.until, self._clock() + seconds)
        self._patience = max(self._patience, time.monotonic() + seconds)
        self._frozen = replace(self._frozen, until=until)
        return self._frozen

    def _due(self) -> bool:
        return self._frozen is not None and (self._clock() >= self._frozen.until or time.monotonic() >= self._patience)

    def _stop_all(self) -> dict[int, Stat]:
        """Everything of the user, standing. Raises :class:`Unfrozen`."""
        end = time.monotonic() + FREEZE_SECONDS
        before: _Look | None = None
        stood = False
        """Whether nothing ran at the look before."""
        names: set[str] = set()
        while True:
            look = _look()
            running = {pid: stat for pid, stat in look.users.items() if not _stands(stat)}
            if before is not None and stood and not running and look.same(before):
                return look.users  # nothing ran when this look began, so nothing can have been made since
            refused = [stat.name for stat in running.values() if not _may_signal(stat.pid)]
            if refused:
                raise NotPermitted(refused)
            if time.monotonic() >= end:
                raise Incomplete(names | {stat.name for stat in running.values()})
            until = min(end, time.monotonic() + ROUND_SECONDS)
            if before is None or not running.keys().isdisjoint(before.listed):
                top = [stat for stat in running.values() if stat.parent not in running]
                for stat in top:
                    self._stop(stat)
                _wait(top, until)
            elif running or stood:
                names = self._stop_newcomers(look.listed - look.unread - running.keys(), until)
            before, stood = look, not running

    def _stop_newcomers(self, known: Set[int], until: float) -> set[str]:
        """Stop what came after all that is ``known`` stood, each as soon as it is listed; names of what was still running.

        A process that is ever another one (it forks and ends) is not there any more when a look at everything is over.
        """
        known = set(known)
        moving: set[str] = set()
        while time.monotonic() < until:
            fresh = {pid: procfs.stat(pid) for pid in procfs.pids() if pid not in known}
            running = [stat for stat in fresh.values() if stat is not None and stat.state not in STANDS | ENDED]
            for stat in running:
                parent = fresh.get(stat.parent)
                if parent is None or parent.state in STANDS:
                    self._stop(stat)
            known |= {pid for pid, stat in fresh.items() if stat is not None and stat.state in ENDED}
            moving = {stat.name for stat in running}
            if not running and None not in fresh.values():
                break
        return moving

    def _stop(self, stat: Stat) -> None:
        try:
            os.kill(stat.pid, signal.SIGSTOP)
        except (ProcessLookupError, PermissionError):
            return  # the next look tells
        known = self._stopped.get(stat.pid)
        if known is None or known.started != stat.started:
            self._stopped.pop(stat.pid, None)
            self._stopped[stat.pid] = stat

    def _go_on(self) -> Callable[[str], None]:
        """Continue what this freezer stopped, children first; who wants to know."""
        for stat in reversed(self._stopped.values()):
            now = procfs.stat(stat.pid)
            if now is None or now.started != stat.started:
                continue
            try:
                os.kill(stat.pid, signal.SIGCONT)
            except ProcessLookupError:
                continue
            except PermissionError:
                self._log.warning("pause: process %d (%s) may not be continued", stat.pid, stat.name)
        self._stopped, self._traces, self._frozen = {}, {}, None
        self._over.set()
        released, self._released = self._released, lambda why: None
        return released

    def _unbroken(self) -> bool:
        """Whether the same processes stand as at the freeze and none of them ran meanwhile; once broken, for ever."""
        if self._broken:
            return False
        found = _look().users
        differ = {stat.name for pid, stat in found.items() if not _stands(stat) or _traces(stat) != self._traces.get(pid)}
        gone = len(self._traces.keys() - found.keys())
        if differ or gone:
            self._broken = True
            self._log.warning("pause: the standstill is broken: %d processes ended, these ran: %s", gone, sorted(differ)[:MAX_NAMES])
        return not self._broken

    # ------------------------------------------------------------ the thread

    def _watch(self, over: threading.Event) -> None:
        rest = 0.0
        while not over.wait(rest):
            with self._lock:
                if over.is_set() or self._frozen is None:
                    return
                begun = time.monotonic()
                due = self._due()
                if not due:
                    self._unbroken()
                rest = max(LOOK_EVERY, LOOK_SHARE * (time.monotonic() - begun))
                rest = max(0.0, min(rest, self._frozen.until - self._clock(), self._patience - time.monotonic()))
            if due:
                self.release("limit")


@dataclass(frozen=True)
class _Look:
    """One look at the pid namespace."""

    listed: frozenset[int]
    users: dict[int, Stat]
    """All processes that are to stand: not this one, not what it descends from, not pid 1, not what has ended."""
    unread: frozenset[int] = frozenset()
    """Listed, and gone before they could be looked at."""

    def same(self, other: _Look) -> bool:
        """Whether the same processes were there, and none came or went while this looked at them one by one."""
        mine, others = ({(stat.pid, stat.started) for stat in look.users.values()} for look in (self, other))
        return not self.unread and self.listed == other.listed and mine == others


def _look() -> _Look:
    listed = procfs.pids()
    found = {pid: stat for pid in listed if (stat := procfs.stat(pid)) is not None}
    spared, pid = {1}, os.getpid()
    while pid in found and pid not in spared:
        spared.add(pid)
        pid = found[pid].parent
    users = {pid: stat for pid, stat in found.items() if pid not in spared and not _ended(stat)}
    return _Look(frozenset(listed), users, frozenset(listed) - found.keys())


def _ended(stat: Stat) -> bool:
    """A process whose first thread has ended may have others that run."""
    return stat.state in ENDED and all(thread.state in ENDED for thread in procfs.threads(stat.pid))


def _stands(stat: Stat) -> bool:
    """Whether no thread of it runs."""
    return all(thread.state in STANDS or thread.state in ENDED for thread in procfs.threads(stat.pid))


def _traces(stat: Stat) -> tuple[object, ...]:
    return (stat.started, stat.used, *procfs.traces(stat.pid))


def _may_signal(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        return True
    return True


def _wait(signalled: list[Stat], end: float) -> None:
    """Until all of them stand, or the moment comes; nobody tells when a process that is not one's own child stops."""
    pause = 0.0005
    while time.monotonic() < end and not all(_stands(stat) for stat in signalled):
        time.sleep(pause)
        pause = min(0.02, pause * 2)
