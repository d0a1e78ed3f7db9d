"""A real state folder, network and runsc for each test, and a small server that runs any code: the session under test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import site
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gke_workspaces_spawner.sandbox import Failed, Network, Nothing, Sandboxes, SandboxSpec, Saved, Saving, homes
from gke_workspaces_spawner.sandbox.processes import Process, command_lines
from gke_workspaces_spawner.sandbox.room import Room
from gke_workspaces_spawner.sandbox.snapshots import Shelf

UID = 210_777
SESSION = """
import hashlib, json, os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
space = {"hashlib": hashlib, "os": os, "sys": sys, "threading": threading, "time": time}
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        code = self.rfile.read(int(self.headers["Content-Length"])).decode()
        try:
            exec("def call():\\n" + "\\n".join("    " + line for line in code.splitlines()), space)
            answer, status = json.dumps(space["call"]()), 200
        except BaseException as error:
            answer, status = repr(error), 500
        body = answer.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
class Server(ThreadingHTTPServer):
    daemon_threads = True
Server(("0.0.0.0", 8888), Handler).serve_forever()
"""
"""Like a kernel: runs the code that it is sent in one namespace and answers with what the code returns, as JSON."""


def runsc_path() -> Path:
    """The runsc under test: ``$GKE_WORKSPACES_RUNSC``, or what ``make`` keeps."""
    named = os.environ.get("GKE_WORKSPACES_RUNSC")
    kept = sorted((Path.home() / ".cache/gke-workspaces").glob("runsc*/runsc"))
    found = named or (str(kept[-1]) if kept else shutil.which("runsc"))
    if found is None:
        pytest.fail("no runsc: build it with 'make runsc' or set GKE_WORKSPACES_RUNSC")
    return Path(found)


def interpreter_paths() -> tuple[str, ...]:
    """Everything of the host that this Python needs, and nothing more."""
    prefixes = {sys.prefix, sys.base_prefix, *site.getsitepackages(), sysconfig.get_path("stdlib")}
    wanted = {os.path.realpath(path) for path in prefixes if os.path.isdir(path)} | {"/usr"}
    return tuple(sorted(path for path in wanted if not any(path != other and path.startswith(other + "/") for other in wanted)))


class Lab:
    """One state folder."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.key = os.urandom(32)
        self.network = Network.open(state)
        self.sandboxes = self.again()

    def again(self, runsc: Path | None = None, key: bytes | None = None) -> Sandboxes:
        """The same state folder as another life of the Hub sees it."""
        return Sandboxes(self.state, runsc=runsc or runsc_path(), network=self.network, mac_key=key or self.key)

    def home(self, name: str = "ann", uid: int = UID) -> Path:
        (self.state / "homes").mkdir(mode=0o755, exist_ok=True)
        home = self.state / "homes" / name
        homes.make_home(home, uid, uid)
        return home

    def spec(self, code: str = SESSION, name: str = "ann", *, uid: int = UID, readonly: tuple[str, ...] = (), **more: Any) -> SandboxSpec:
        return SandboxSpec(
            argv=(sys.executable, "-u", "-c", code),
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
            uid=uid,
            gid=uid,
            user=name,
            home=str(self.home(name, uid)),
            home_inside=f"/home/{name}",
            readonly=tuple(sorted({*interpreter_paths(), *readonly})),
            **more,
        )

    async def up(self, sandbox_id: str = "one", spec: SandboxSpec | None = None, megabytes: int = 8) -> Session:
        """A running session that holds ``megabytes`` of random bytes."""
        address = await self.sandboxes.start(sandbox_id, spec or self.spec(), {})
        session = Session(address.ip)
        await session.ready()
        await session.run(f"global data; data = os.urandom({megabytes} << 20)")
        return session

    async def save(
        self, sandbox_id: str = "one", pause_id: str = "p1", snapshot_id: str = "s1", *, seconds: float = 60, frozen: float = 60
    ) -> Any:
        """Save and wait for the outcome."""
        await self.sandboxes.save(sandbox_id, pause_id, snapshot_id, {"owner": "ann"}, time.time() + seconds, frozen)
        return await self.outcome(sandbox_id, pause_id)

    async def outcome(self, sandbox_id: str = "one", pause_id: str = "p1", seconds: float = 60) -> Saved | Failed | Nothing:
        async def settled() -> Saved | Failed | Nothing:
            while isinstance(result := await self.sandboxes.observe(sandbox_id, pause_id), Saving):
                await asyncio.sleep(0.01)
            return result

        return await asyncio.wait_for(settled(), seconds)

    async def pause(self, sandbox_id: str = "one", pause_id: str = "p1", snapshot_id: str = "s1") -> Saved:
        """Save and remove."""
        result = await self.save(sandbox_id, pause_id, snapshot_id)
        assert isinstance(result, Saved), result
        await self.sandboxes.remove(sandbox_id)
        return result

    async def resume(self, sandbox_id: str = "one", snapshot_id: str = "s1", spec: SandboxSpec | None = None) -> Session:
        spec = spec or await self.sandboxes.spec(snapshot_id)
        assert spec is not None
        address = await self.sandboxes.restore(sandbox_id, spec, snapshot_id)
        session = Session(address.ip)
        await session.ready()
        return session

    async def verify(self, snapshot_id: str) -> None:
        """Look at every byte of a snapshot that nobody restores."""
        await asyncio.to_thread(Shelf(self.state, self.key).verify, snapshot_id)

    def room(self, sandbox_id: str = "one") -> Room:
        return Room(self.state, sandbox_id)

    def shim(self, sandbox_id: str = "one") -> Process:
        """The process that holds the room's lock."""
        lock = os.stat(self.room(sandbox_id).path / "lock")
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].split(":")[2] == str(lock.st_ino):
                process = Process.of(int(fields[4]))
                assert process is not None
                return process
        raise AssertionError(f"nobody holds {sandbox_id}")

    def pids(self) -> dict[int, str]:
        """Every process that names the state folder or works in it (a shim does), but this one."""
        found = {}
        for pid, words in command_lines():
            try:
                where = os.readlink(f"/proc/{pid}/cwd")
            except OSError:
                continue
            if pid != os.getpid() and (str(self.state) in where or str(self.state) in " ".join(words)):
                found[pid] = f"{' '.join(words)[:150]} in {where}"
        return found

    def shims(self) -> list[int]:
        """Pids of all shims."""
        return [pid for pid, text in self.pids().items() if "sandbox.shim" in text]

    async def idle(self) -> None:
        """Wait until nothing of this state folder runs any more (a shim seals its snapshot before it ends)."""
        await wait_for(lambda: not self.pids(), 10)

    async def close(self) -> None:
        for sandbox_id in await self.sandboxes.ids():
            await self.sandboxes.remove(sandbox_id)
        for sandbox_id in self.network.attached():
            self.network.detach(sandbox_id)
        self.network.close()


class Session:
    """Client of :data:`SESSION`."""

    def __init__(self, ip: str) -> None:
        self.ip = ip

    async def run(self, code: str, *, timeout: float = 20) -> Any:
        """Run code (the body of a function) inside and return what it returns."""
        return await asyncio.to_thread(self._post, code, timeout)

    def _post(self, code: str, timeout: float) -> Any:
        request = urllib.request.Request(f"http://{self.ip}:8888/", data=code.encode(), method="POST")
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()) from None

    async def ready(self, seconds: float = 30) -> None:
        """Wait until it answers."""
        end = time.monotonic() + seconds
        while True:
            try:
                await self.run("return 1", timeout=2)
                return
            except OSError:
                assert time.monotonic() < end, "the session does not answer"
                await asyncio.sleep(0.02)

    async def silent(self, seconds: float = 0.7) -> bool:
        """Whether it gives no answer (frozen or gone)."""
        try:
            await self.run("return 1", timeout=seconds)
        except OSError:
            return True
        return False


async def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Until something that other processes do has happened."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def laboratory(state: Path) -> AsyncIterator[Lab]:
    """A lab with its state in that folder; whatever was left running is ended."""
    state.mkdir(mode=0o700)
    lab = Lab(state)
    try:
        yield lab
    finally:
        await lab.close()
        await lab.idle()
        shutil.rmtree(state)


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """A lab in this test's own folder."""
    async with laboratory(tmp_path / "state") as lab:
        yield lab
