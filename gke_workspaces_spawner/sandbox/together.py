"""Work done by several threads at once. ``concurrent.futures`` takes a fifth of a shim's start, which every resume waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable


def together(work: Callable[[], None], threads: int) -> None:
    """Let so many threads do ``work`` (each takes its part by itself); returns when all have ended.

    Raises what the first of them raised that failed.
    """
    failures: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised again below, in the thread that asked
            failures.append(error)

    others = [threading.Thread(target=run) for _ in range(threads - 1)]
    for thread in others:
        thread.start()
    run()
    for thread in others:
        thread.join()
    if failures:
        raise failures[0]
