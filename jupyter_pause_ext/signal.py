"""What the sandbox says of checkpoints: the file ``/proc/gvisor/checkpoint``.

Under gVisor (on GKE, and on one machine by an annotation) the file becomes readable after a checkpoint and reads
``resume`` (this process is the original and goes on), ``restore`` (it is the restored one) or ``error``. It is opened anew
for each checkpoint. Tried: ``resume``, ``restore`` seen by one thread through a save and a restore.

Standard library only, and loadable by path: kernels of any Python environment run it too (see ``startup.py``).
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

CHECKPOINT_FILE = "/proc/gvisor/checkpoint"
WORDS = ("restore", "resume", "error")
UNKNOWN_SECONDS = 1.0
"""Rest after a word that is none of these, so that a file of another meaning costs no processor."""


class Watcher:
    """A daemon thread that waits on the file and hands each word to ``told``, in that thread."""

    def __init__(self, told: Callable[[str], None], path: str = CHECKPOINT_FILE) -> None:
        self._told = told
        self._path = path
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="checkpoint-signal", daemon=True)

    @classmethod
    def start(cls, told: Callable[[str], None], path: str = CHECKPOINT_FILE) -> Watcher | None:
        """A running watcher, or ``None`` where the file is absent (the ability is absent then)."""
        if not os.access(path, os.R_OK):
            return None
        watcher = cls(told, path)
        watcher._thread.start()
        return watcher

    def close(self) -> None:
        """End the thread and wait for it."""
        os.write(self._stop_write, b"x")
        self._thread.join()
        os.close(self._stop_read)
        os.close(self._stop_write)

    def _run(self) -> None:
        while True:
            word = self._next()
            if word is None:
                return
            if word in WORDS:
                self._told(word)
            elif select.select([self._stop_read], [], [], UNKNOWN_SECONDS)[0]:
                return

    def _next(self) -> str | None:
        """The next word; ``None`` when asked to stop or when the file went away."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            poller.register(self._stop_read, select.POLLIN)
            ready = dict(poller.poll())
            if self._stop_read in ready:
                return None
            if ready.get(descriptor, 0) & (select.POLLERR | select.POLLNVAL):
                return None
            return os.read(descriptor, 64).decode("ascii", "replace").strip()
        except OSError:
            return None
        finally:
            os.close(descriptor)
