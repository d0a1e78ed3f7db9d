"""Processes seen from the host: starting children with a deadline, watching, finding and ending ours.

Children are started with ``posix_spawn`` and awaited through pidfds one by one, never with ``waitpid(-1)``: other code in
the shim (the network) uses :mod:`subprocess` and would lose its exit statuses.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

PR_SET_CHILD_SUBREAPER = 36
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_IOPRIO_IDLE = 3 << 13
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TICK = 0.2


def become_subreaper() -> None:
    """Adopt orphaned descendants: the sandbox and its gofer can then be reaped at once (removal 0.3 s, not 1-2 s)."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def set_idle(thread: int, idle: bool) -> None:
    """Let a thread of ours work only with what others leave of processor and disk, or as this process does."""
    with contextlib.suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, thread, 19 if idle else os.getpriority(os.PRIO_PROCESS, os.getpid()))
    number = _IOPRIO_SET.get(os.uname().machine)
    if number is not None:
        ctypes.CDLL(None).syscall(number, 1, thread, _IOPRIO_IDLE if idle else 0)


class Result(NamedTuple):
    """How a command ended. ``code`` is negative for a signal; ``ended`` says why it was ended early, if it was."""

    code: int
    output: str
    ended: str | None = None
    """``deadline`` or ``cancelled``."""


def run(
    argv: Sequence[str],
    *,
    log: str,
    deadline: float,
    cancelled: Callable[[], bool] = lambda: False,
    stdin: int | None = None,
    started: Callable[[int], None] = lambda pid: None,
) -> Result:
    """Run a command with its output in the file ``log``; kill it at the wall-clock ``deadline`` or when cancelled.

    It inherits nothing but standard input (``/dev/null`` unless given), and output to a file (runsc keeps what it is
    given open for the sandbox's life).
    """
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    begin = os.fstat(fd).st_size
    null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, null if stdin is None else stdin, 0), (os.POSIX_SPAWN_DUP2, fd, 1), (os.POSIX_SPAWN_DUP2, fd, 2)]
        pid = os.posix_spawn(
            argv[0], list(argv), {"PATH": _PATH}, file_actions=actions, setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM]
        )
    finally:
        os.close(fd)
        os.close(null)
    started(pid)
    ended = None
    watch = os.pidfd_open(pid)
    try:
        while not readable(watch, max(0.0, min(_TICK, deadline - time.time()))):
            ended = "cancelled" if cancelled() else "deadline" if time.time() >= deadline else None
            if ended:
                signal.pidfd_send_signal(watch, signal.SIGKILL)
                break
    finally:
        os.close(watch)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with open(log, "rb") as file:
        file.seek(begin)
        return Result(code, file.read(4000).decode(errors="replace"), ended)


def readable(fd: int, seconds: float | None) -> bool:
    """Whether ``fd`` (a pidfd: its process has ended) becomes readable within ``seconds``; ``None`` waits for ever."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


class Process(NamedTuple):
    """A process that cannot be mistaken for a later one of the same pid."""

    pid: int
    start: int
    """Field 22 of /proc/PID/stat (ticks since boot)."""
    boot: str

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The live process of that pid, or ``None``."""
        fields = _stat(pid)
        return cls(pid, int(fields[19]), boot_id()) if fields and fields[0] not in ("Z", "X") else None

    def alive(self) -> bool:
        """Whether it still runs; a zombie does not (runsc itself still calls a zombie "running")."""
        return Process.of(self.pid) == self

    def open(self) -> int | None:
        """A pidfd of it, or ``None`` when it has gone."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        if not self.alive():
            os.close(fd)
            return None
        return fd

    def kill(self, seconds: float) -> bool:
        """Kill it and wait until it has ended; True when it has (also before)."""
        fd = self.open()
        if fd is None:
            return True
        try:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            return readable(fd, seconds)
        finally:
            os.close(fd)


def reap(pid: int) -> int | None:
    """Wait for a child and return its exit code as shells give it; ``None`` when it is not our child."""
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return None
    return code if code >= 0 else 128 - code


def reap_leftovers() -> None:
    """Reap every ended child; only when no other thread awaits one."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _stat(pid: int) -> list[str] | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return None


def boot_id() -> str:
    """Random id of this life of the machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def command_lines() -> Iterator[tuple[int, list[str]]]:
    """Pid and arguments of every process that has some (a zombie has none)."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")[:-1]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if words:
                yield int(name), [os.fsdecode(word) for word in words]
