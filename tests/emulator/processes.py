"""Programs that end with us: each in a session of its own, killed by the kernel when the thread that started them is gone."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Program:
    """One program with its log; can be killed and started again with the same arguments.

    Start it from the main thread: the kernel ends it with the thread that started it.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.command = list(command)
        self.log = folder / f"{name}.log"
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    async def listens(self, port: int, seconds: float = 60.0) -> None:
        """Wait until it listens on that port of the loopback. Raises RuntimeError with the end of its log."""
        end = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                _reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            except OSError:
                if not self.running or asyncio.get_running_loop().time() > end:
                    raise RuntimeError(f"{self.name} does not listen: {self.tail()}") from None
                await asyncio.sleep(0.03)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def send(self, number: int) -> None:
        """A signal to its process group."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    async def ended(self, seconds: float) -> None:
        """Wait until it has ended by itself. Raises asyncio.TimeoutError."""
        assert self._process is not None
        await asyncio.wait_for(self._process.wait(), seconds)

    async def stop(self, seconds: float = 5.0) -> None:
        """SIGTERM, SIGKILL after ``seconds``."""
        if self._process is None:
            return
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), seconds)
        except asyncio.TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self.send(signal.SIGKILL)
            await self._process.wait()

    def tail(self, characters: int = 1500) -> str:
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else ""
