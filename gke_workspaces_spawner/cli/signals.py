"""What asks the demo to stop: Ctrl-C, SIGTERM, a terminal that is closed; and a second Ctrl-C, which does not wait.

Only a person presses twice: make and sudo send signals on to us that the process group has given us already.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SAME_SECONDS = 1.0
"""A Ctrl-C that comes sooner after the first is the same one, by another way (sudo relays it to us)."""


class Asked(KeyboardInterrupt):
    """The first Ctrl-C, SIGTERM or SIGHUP."""


class AtOnce(KeyboardInterrupt):
    """A Ctrl-C that a person may have pressed after that."""


class Signals:
    """Raises :class:`Asked` once and then :class:`AtOnce` once, in the main thread, wherever it is."""

    def __init__(self) -> None:
        self._raised: list[type[KeyboardInterrupt]] = []
        self._first = 0.0
        self._holds = 0
        self._due: type[KeyboardInterrupt] | None = None
        self._over = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is done in here is done to its end; what came meanwhile is raised after it."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
        due, self._due = self._due, None
        if due is not None and not self._over:
            raise due

    def over(self) -> None:
        """Nothing is raised any more: what is done from now on takes a moment, and half of it would stay on the machine."""
        self._over = True

    @property
    def asked(self) -> bool:
        """Whether anything has asked to stop."""
        return bool(self._raised)

    def came(self, number: int, _frame: FrameType | None = None) -> None:
        """The handler."""
        if not self._raised:
            self._first = time.monotonic()
            self._raise(Asked)
        elif number == signal.SIGINT and AtOnce not in self._raised and time.monotonic() - self._first > SAME_SECONDS:
            self._raise(AtOnce)

    def _raise(self, what: type[KeyboardInterrupt]) -> None:
        self._raised.append(what)
        if self._over:
            return
        if self._holds:
            self._due = what
            return
        raise what


@contextmanager
def signals() -> Iterator[Signals]:
    """Handled here until the end. A SIGHUP that whoever called us ignores (``nohup``) stays ignored.

    Once we were asked to stop they are ignored from the end on: the process has its exit status, and one more Ctrl-C must not take it.
    """
    coming = Signals()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, coming.came) for number in numbers}
    try:
        yield coming
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_IGN if coming.asked else old)
