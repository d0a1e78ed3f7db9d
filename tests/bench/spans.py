"""Where time went, written down by the processes themselves: one JSON line a span, ``[name, start, end, waited]``.

Wall clock in seconds. ``waited``: for how long the calling thread stood ready to run while others had the processors
(``/proc/thread-self/schedstat``, second field), so that a busy machine is not taken for a slow program.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import time
from pathlib import Path
from typing import Any


class Spans:
    """Appends to one file; several processes may, a line is written at once."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, name: str, start: float, waited: float = 0.0) -> None:
        os.write(self._fd, (json.dumps([name, start, time.time(), waited]) + "\n").encode())

    def traced(self, name: str, call: Any) -> Any:
        """The same function, leaving a span at each call."""
        if inspect.iscoroutinefunction(call):

            @functools.wraps(call)
            async def waits(*args: Any, **kwargs: Any) -> Any:
                start = time.time()
                try:
                    return await call(*args, **kwargs)
                finally:
                    self.note(name, start)

            return waits

        @functools.wraps(call)
        def runs(*args: Any, **kwargs: Any) -> Any:
            start, before = time.time(), waited()
            try:
                return call(*args, **kwargs)
            finally:
                self.note(name, start, waited() - before)

        return runs

    def trace(self, owner: Any, *names: str) -> None:
        """Trace these functions of a class or module."""
        for each in names:
            setattr(owner, each, self.traced(f"{owner.__name__.rpartition('.')[2]}.{each}", getattr(owner, each)))


def waited() -> float:
    """Seconds that this thread has stood in the run queue."""
    with open("/proc/thread-self/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1]) / 1e9


def read(path: Path, begin: float, end: float) -> list[tuple[str, float, float, float]]:
    """The spans that began between two moments."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(name, start, stop, queue) for name, start, stop, queue in found if begin <= start < end]
