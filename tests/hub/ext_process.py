"""A server with the extension in a process of its own, so that signals reach it, in a pid namespace, so that it can freeze all of it.

``python -m tests.hub.ext_process PORT CHECKPOINT_FILE CLOCK_FILE``: the clock file holds the seconds by which its wall clock
is ahead. With ``-`` as the checkpoint file the extension is put in as Jupyter Server would do it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado.httpclient import HTTPError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.ports import free_port
from tests.sockets import end

from .ext_server import SECRET, TOKEN, Channel, Client, Clock, read

ROOT = Path(__file__).resolve().parents[2]
BASE = "/user/ada/"
START_SECONDS = 60.0


def serve(port: int, checkpoint_file: str, clock_file: Path) -> None:
    """Runs until it is told to end."""
    from jupyter_server.serverapp import ServerApp
    from traitlets.config import Config

    from jupyter_pause_ext.extension import PauseExtension, install, load
    from jupyter_pause_ext.freeze import Freezer
    from jupyter_pause_ext.signing import parse_secret

    settings = Config({"ServerApp": {"jpserver_extensions": {"jupyter_server_terminals": True}}})
    settings.ServerApp.update({"root_dir": os.environ["HOME"], "allow_root": True, "open_browser": False, "base_url": BASE})
    settings.ServerApp.update({"ip": "0.0.0.0", "port": port, "port_retries": 0, "allow_remote_access": True})
    settings.IdentityProvider.token = TOKEN
    app = ServerApp(config=settings, log_level="INFO")
    app.initialize(argv=[], find_extensions=False)
    if checkpoint_file == "-":
        load(app)
    else:

        def clock() -> float:
            return time.time() + float(clock_file.read_text())

        install(PauseExtension(app, parse_secret(SECRET), clock, checkpoint_file, Freezer(clock)))
    app.start()


class Remote(Client):
    """Works with a server of another process: kernels, terminals, the Hub's freeze."""

    async def answering(self) -> None:
        """The server says that it runs a moment before it listens."""
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                if (await self.tab("api/status")).code == 200:
                    return
            except (OSError, HTTPError):  # refused, closed again, or no answer in time
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(0.01)

    async def kernel(self) -> str:
        """Start one; its id."""
        made = await self.tab("api/kernels", "POST", {"name": "python3"})
        assert made.code == 201, made.body
        return str(read(made)["id"])

    async def run(self, kernel_id: str, code: str) -> str:
        """What a cell prints, over a websocket of its own."""
        socket = await self._socket(f"api/kernels/{kernel_id}/channels?session_id=s&token={TOKEN}")
        try:
            return await Channel(socket, "s").run(code)
        finally:
            end(socket)

    async def terminal(self) -> str:
        """Open one; its name."""
        return str(read(await self.tab("api/terminals", "POST", {}))["name"])

    async def type(self, terminal: str, keys: str, seen: str) -> str:
        """Type, and read (the screen as it was, first) until that text appears."""
        socket = await self._socket(f"terminals/websocket/{terminal}?token={TOKEN}")
        try:
            text = ""
            await socket.write_message(json.dumps(["stdin", keys]))
            while seen not in text:
                message = await asyncio.wait_for(socket.read_message(), 30)
                assert message is not None, text
                kind, *rest = json.loads(message)
                text += rest[0] if kind == "stdout" else ""
            return text
        finally:
            end(socket)

    async def _socket(self, path: str) -> WebSocketClientConnection:
        return await websocket_connect(HTTPRequest(f"ws://{self.host}:{self.port}{self.base}{path}", connect_timeout=60))

    async def freeze(self, pause_id: str = "p1", seconds: float = 600, **more: Any) -> Any:
        """The answer to ``prepare`` with ``freeze``."""
        message = {"pause_id": pause_id, "deadline": self.clock() + 60, "freeze": True, "frozen_for": seconds}
        return await self.hub("prepare", message | more)


@dataclass
class Pod(Remote):
    """The process, its pid namespace, and what an onlooker outside of it sees."""

    process: subprocess.Popen[bytes] = field(kw_only=True)
    folder: Path = field(kw_only=True)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def move_clock(self, seconds: float) -> None:
        """Forward, in the test and in the server."""
        self.clock.ahead += seconds
        following = self.folder / "clock.next"
        following.write_text(str(self.clock.ahead))
        following.replace(self.folder / "clock")

    def outside(self) -> dict[int, int]:
        """Pid in the namespace -> pid as this process sees it."""
        namespace = os.readlink(f"/proc/{self.process.pid}/ns/pid_for_children")
        found = {}
        for path in Path("/proc").iterdir():
            try:
                if path.name.isdecimal() and os.readlink(path / "ns/pid") == namespace:
                    line = next(line for line in (path / "status").read_text().splitlines() if line.startswith("NSpid:"))
                    found[int(line.split()[-1])] = int(path.name)
            except (OSError, StopIteration):
                continue
        return found

    def fields(self, pid: int) -> list[str]:
        """Of ``/proc/PID/stat`` from the state on, for a pid of the namespace; empty when it is gone."""
        try:
            return Path(f"/proc/{self.outside()[pid]}/stat").read_text().rpartition(")")[2].split()
        except (KeyError, OSError):
            return []

    def states(self) -> dict[int, str]:
        """State letter of everything in the namespace but zombies."""
        found = {pid: fields[0] for pid in self.outside() if (fields := self.fields(pid))}
        return {pid: state for pid, state in found.items() if state not in "ZX"}

    def send(self, pid: int, number: signal.Signals) -> None:
        """A signal to a pid of the namespace."""
        os.kill(self.outside()[pid], number)


@asynccontextmanager
async def pod(folder: Path, checkpoint_file: str = "/nonexistent", before: str = "", prefix: str = "") -> AsyncIterator[Pod]:
    """A server under a shell that is pid 1; ``before`` is shell code that runs first, ``prefix`` goes before the server's command."""
    port = free_port()
    names = {
        "HOME": "home",
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
    }
    for name in names.values():
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    (folder / "clock").write_text("0")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTERHUB_", "JPY_"))}
    environment = kept | {name: str(folder / value) for name, value in names.items()} | {"JUPYTER_NO_CONFIG": "1", "PS1": "$ "}
    environment |= {"GKE_WORKSPACES_GUEST_SECRET": SECRET, "PYTHONPATH": str(ROOT)}
    server = f'{prefix} "$PYTHON" -m tests.hub.ext_process {port} {checkpoint_file} "$0/clock"'
    namespaces = ["--pid", "--fork", "--kill-child", "--mount-proc", *(["--user", "--map-root-user"] if os.geteuid() else [])]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            ["unshare", *namespaces, "sh", "-c", f"{before}\n{server}\nexit $?", str(folder)],
            env=environment | {"PYTHON": sys.executable},
            cwd=folder / "home",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    running = Pod(port, BASE, Clock(), process=process, folder=folder)
    try:
        await until(lambda: process.poll() is not None or _listens(folder), START_SECONDS)
        await running.answering()
        yield running
    finally:
        process.kill()
        process.wait()


def _listens(folder: Path) -> bool:
    return b"is running at" in (folder / "server.log").read_bytes()


async def until(condition: Callable[[], Any], seconds: float = 30) -> None:
    """Until something that other processes do has happened."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
