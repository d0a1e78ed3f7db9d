"""Lines for the person at the terminal: what is done now, for how long, and one clear sentence when it cannot go on."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

TICK = 10.0
"""Seconds between signs of life where the output is no terminal; on a terminal the line is renewed each second."""


class Stopped(Exception):
    """It cannot go on; the message is one sentence with the way out."""


def say(text: str = "", *, end: str = "\n", to: TextIO | None = None) -> None:
    """Print a line at once. A terminal that went away is no reason to stop pausing servers: nothing is said any more then."""
    where = to or sys.stdout
    try:
        print(text, end=end, flush=True, file=where)
    except BlockingIOError:  # a pipe that nobody reads just now
        pass
    except OSError:
        nobody = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nobody, where.fileno())  # what is still in the buffer goes there, and does not fail when the command ends
        os.close(nobody)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Show that something long goes on, and how long it took."""
    begin = time.monotonic()
    terminal = sys.stdout.isatty()
    done = threading.Event()

    def tick() -> None:
        while not done.wait(1.0 if terminal else TICK):
            seconds = time.monotonic() - begin
            if terminal:
                say(f"\r  {text} ... {seconds:.0f} s", end="")
            else:
                say(f"  {text} ... still at it after {seconds:.0f} s")

    say(f"  {text} ...", end="" if terminal else "\n")
    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    word = "stopped"
    try:
        yield
        word = "done"
    finally:
        done.set()
        ticker.join()
        line = f"  {text} ... {word} ({time.monotonic() - begin:.1f} s)"
        say(f"\r{line}" if terminal else line)
