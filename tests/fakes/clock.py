"""A clock that jumps to the next thing anybody sleeps for: no test waits for real time."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class FakeClock:
    """Time stands still while anything can run, and jumps to the earliest sleeper when nothing else does."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now
        self._sleepers: list[tuple[float, int]] = []
        self._count = itertools.count()

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass while nobody looks (a Hub that is down, a night)."""
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        me = (self._now + max(0.0, seconds), next(self._count))
        heapq.heappush(self._sleepers, me)
        try:
            while True:
                for _ in range(5):  # whoever can run now runs first
                    await asyncio.sleep(0)
                if self._sleepers[0] == me:
                    self._now = max(self._now, me[0])
                    return
        finally:
            self._sleepers.remove(me)
            heapq.heapify(self._sleepers)
