"""The lease under which a server stays prepared for a checkpoint.

It ends by itself at its deadline, by ``thaw``, by ``restored``, or by what the sandbox says (``restore``, ``error``): a Hub
that is killed in the middle leaves a server that accepts its users again. The deadline is wall-clock time, since a restore
may happen days after the save and must find the lease over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

CHECK_EVERY = 1.0
"""Seconds between looks at the wall clock; timers of the event loop alone would not see it jump."""


class Lease:
    """At most one pause is prepared at a time; the last call of the Hub wins."""

    def __init__(self, clock: Callable[[], float], on_end: Callable[[str, str], None]) -> None:
        """``on_end(pause_id, why)`` is called once per lease, in the event loop."""
        self._clock = clock
        self._on_end = on_end
        self._pause_id: str | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pause_id(self) -> str | None:
        """The pause that is prepared; ends the lease when its deadline has passed."""
        if self._pause_id is not None and self._clock() >= self._deadline:
            self.end("deadline")
        return self._pause_id

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends by itself."""
        return max(0.0, self._deadline - self._clock()) if self._pause_id is not None else 0.0

    def begin(self, pause_id: str, deadline: float) -> None:
        """Begin or extend the lease; one of another pause gives way without ``on_end``."""
        self._pause_id, self._deadline = pause_id, deadline
        self._watch()

    def extend(self, deadline: float) -> None:
        """Not before then; never earlier than it would have ended."""
        if self._pause_id is not None and deadline > self._deadline:
            self.begin(self._pause_id, deadline)

    def end(self, why: str, pause_id: str | None = None) -> bool:
        """End the lease (of that pause only, where one is named); False when there was none."""
        if self._pause_id is None or (pause_id is not None and pause_id != self._pause_id):
            return False
        ended, self._pause_id = self._pause_id, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._on_end(ended, why)
        return True

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.pause_id is not None:
            self._timer = asyncio.get_running_loop().call_later(min(CHECK_EVERY, self.remaining), self._watch)
