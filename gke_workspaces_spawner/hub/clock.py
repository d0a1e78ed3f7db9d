"""The real clock."""

from __future__ import annotations

import asyncio
import time


class WallClock:
    """Implements :class:`~..lifecycle.ports.Clock` with the machine's time."""

    def time(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
