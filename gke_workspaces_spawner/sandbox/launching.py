"""Shims of one state folder: started with what they need, asked, and replaced when they were killed."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from . import binary, shims
from .errors import SandboxError
from .room import START_SECONDS, Room
from .runsc import Runsc
from .spec import Json, Network


class Launcher:
    """What a shim needs (its runsc, a network namespace, the key), and the ways to one; see :class:`.api.Sandboxes`."""

    def __init__(self, state: Path, *, runsc: Path, network: Network | None, mac_key: bytes, python: str) -> None:
        self._state = state
        self._source = runsc
        self._network = network
        self._key = mac_key
        self._python = python
        self._installed: dict[str, Runsc] = {}
        self._installing = threading.Lock()

    async def launch(self, sandbox_id: str, config: Mapping[str, Json], digest: str | None) -> str:
        """Start a shim; returns what it reports once it has done what it was started for.

        The interpreter comes up while the binary is checked and the network is made. Nothing here holds the event loop: to start
        a process takes a Hub of some 100 MB up to 50 ms.
        """
        ours, theirs = socket.socketpair()
        started: list[subprocess.Popen[bytes]] = []
        try:
            with ours:  # closed without a word, and the shim ends
                attach = asyncio.to_thread(self.attach, sandbox_id) if config["action"] != "takeover" else asyncio.sleep(0)
                spawn = asyncio.to_thread(lambda: started.append(shims.spawn(self._python, theirs)))
                runsc, network, _ = await together(asyncio.to_thread(self.runsc, digest), attach, spawn)
                described = {"state": str(self._state), "id": sandbox_id, "key": self._key.hex(), "runsc": runsc, "network": network}
                said = await asyncio.wait_for(shims.exchange(ours, json.dumps({**described, **config})), START_SECONDS + 30)
        except asyncio.TimeoutError as error:
            raise SandboxError("shim_unreachable", f"the shim of {sandbox_id} gave no answer") from error
        finally:
            for shim in started:
                await asyncio.to_thread(shim.wait)  # it goes on in a child of its own
        try:
            answer = json.loads(said.rpartition("\n")[2])
        except ValueError as error:
            raise SandboxError("start_failed", f"the shim of {sandbox_id} ended: {said[-500:]}") from error
        return str(shims.result_of(answer) or "")

    def attach(self, sandbox_id: str) -> dict[str, Json]:
        """A network namespace, made afresh; what a bundle says of it."""
        if self._network is None:
            return {"ip": "", "netns": None, "resolv_conf": ""}
        found = self._network.attach(sandbox_id)
        return {"ip": found.ip, "netns": found.path, "resolv_conf": self._network.resolv_conf()}

    def unplug(self, sandbox_id: str) -> None:
        """While it ends; its address stays its own."""
        if self._network is not None:
            self._network.detach(sandbox_id)

    def detach(self, sandbox_id: str) -> None:
        """A restore may have another address, so that of a sandbox that is gone is free."""
        if self._network is not None:
            self._network.release(sandbox_id)

    async def ensure_shim(self, room: Room) -> None:
        """Start a shim that takes over, unless one is there."""
        if not room.exists() or room.held():
            return
        meta = room.meta()
        try:
            await self.launch(room.id, {"action": "takeover"}, meta["runsc"] if meta else None)
        except SandboxError as error:
            if error.code != "busy":
                raise

    async def settled(self, room: Room) -> None:
        """Wait until a shim that is starting its sandbox has done so or given up."""
        await _until(lambda: room.meta() is not None or not room.held(), START_SECONDS + 10)

    async def exit_written(self, room: Room) -> None:
        """The end is seen on the host a moment before the shim has reaped and written its code."""
        await _until(lambda: room.exit() is not None or not room.held(), 2)

    async def call(self, room: Room, request: Mapping[str, Json], seconds: float) -> Json:
        """Ask the shim; starts one that takes over when there is none. Raises SandboxError."""
        for attempt in range(3):
            if not room.exists():
                raise Gone("sandbox_gone", f"there is no sandbox {room.id}")
            if attempt or not room.held():
                await self.ensure_shim(room)
            try:
                return await asyncio.wait_for(shims.ask(room, request), seconds)
            except asyncio.TimeoutError as error:
                raise SandboxError("shim_unreachable", f"the shim of {room.id} did not answer in {seconds:.0f} s") from error
            except OSError:
                # Between its start and its first answer, or killed under our hands.
                await asyncio.sleep(0.1)
        if not room.exists():
            raise Gone("sandbox_gone", f"there is no sandbox {room.id}")
        raise SandboxError("shim_unreachable", f"the shim of {room.id} cannot be reached")

    def runsc(self, digest: str | None) -> Runsc:
        """The binary of that digest, by default the configured one; its bytes are checked once in a process's life."""
        with self._installing:
            name = digest or "configured"
            if name not in self._installed:
                found = binary.install(self._source, self._state) if digest is None else binary.installed(digest, self._state)
                self._installed[name] = self._installed[found.digest] = found
            return self._installed[name]

    def any_runsc(self) -> Runsc:
        """Enough to recognise processes by their state folder."""
        return Runsc("", "", str(self._state / "runsc"))

    def attached(self) -> set[str]:
        """Ids that have a network namespace."""
        return set(self._network.attached()) if self._network is not None else set()


class Gone(SandboxError):
    """There is no such sandbox (any more)."""


async def together(*ways: Awaitable[Any]) -> list[Any]:
    """Wait until all have ended, also when one fails: what the others make must be there to be removed."""
    made: list[Any] = await asyncio.gather(*ways, return_exceptions=True)
    for one in made:
        if isinstance(one, BaseException):
            raise one
    return made


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    """Poll what other processes write to disk; gives up after ``seconds``."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        if loop.time() >= end:
            return
        await asyncio.sleep(0.02)
