"""How late a Hub's event loop comes back, and who holds it: used by the configurations of the measurements, ours and the stock one's."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import threading
import time
import traceback
from pathlib import Path

from tests.bench.spans import Spans, waited

TICK = 0.005
"""Seconds between two looks at the event loop."""
LATE = 0.03
"""Seconds from which on it is worth to write down who holds it."""
_ENTRY = struct.Struct("dd")


class LoopWatch:
    """Every look goes into the file ``ticks`` (see :func:`lateness`); one that came late into the spans as well, with where the loop's
    thread was when somebody looked from another one. What the thread waited for a processor is not counted.
    """

    def __init__(self, spans: Spans, ticks: Path) -> None:
        self._spans = spans
        self._ticks = os.open(ticks, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._seen = time.monotonic()
        self._stack = ""
        self.task = asyncio.ensure_future(self._tick())
        threading.Thread(target=self._look, args=(threading.get_ident(),), daemon=True).start()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            start, queue, due = time.time(), waited(), loop.time() + TICK
            self._seen, self._stack = time.monotonic(), ""
            await asyncio.sleep(TICK)
            late, queued = loop.time() - due, waited() - queue
            os.write(self._ticks, _ENTRY.pack(start, max(0.0, late - queued)))
            if late > TICK:
                self._spans.note(f"loop {self._stack}", start + TICK, queued)

    def _look(self, thread: int) -> None:
        while True:
            time.sleep(TICK)
            if not self._stack and time.monotonic() - self._seen > LATE:
                frames = traceback.extract_stack(sys._current_frames()[thread])
                whose = "ours" if any("gke_workspaces_spawner" in frame.filename for frame in frames) else "hub"
                database = ", in the database" if any("sqlalchemy" in frame.filename for frame in frames) else ""
                where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames[-14:]))
                self._stack = f"{whose}{database}: {where}"


def lateness(ticks: Path, windows: list[tuple[float, float]]) -> list[float]:
    """Seconds that the loop came late at each look in these stretches of time, sorted."""
    data = ticks.read_bytes()
    entries = _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size])
    return sorted(late for start, late in entries if any(begin <= start < end for begin, end in windows))


def percentile(values: list[float], share: float) -> float:
    """Of sorted values."""
    return values[min(len(values) - 1, int(len(values) * share))]
