"""A stand-in for the file in which gVisor tells of checkpoints."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CheckpointFile:
    """Like ``/proc/gvisor/checkpoint``: silent until there is a word, opened anew for the next one.

    A named pipe that one side stays open of: when the last writer closed a pipe, whoever has just opened it for the next word would
    be told of an end instead.
    """

    path: Path
    descriptor: int

    @classmethod
    @contextlib.contextmanager
    def made(cls, path: Path) -> Iterator[CheckpointFile]:
        os.mkfifo(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            yield cls(path, descriptor)
        finally:
            os.close(descriptor)

    def say(self, word: str) -> None:
        """Waits until somebody has read it."""
        os.write(self.descriptor, f"{word}\n".encode())
        while struct.unpack("i", fcntl.ioctl(self.descriptor, termios.FIONREAD, b"\0" * 4))[0]:
            time.sleep(0.001)
