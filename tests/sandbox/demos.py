"""The command ``gke-workspaces demo`` on one state folder, started several times, as a person and a script see it."""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import websocket

from gke_workspaces_spawner.cli import settings, stopping
from gke_workspaces_spawner.cli.leftovers import end_leftovers
from gke_workspaces_spawner.sandbox.network import Network
from gke_workspaces_spawner.sandbox.room import Room, rooms
from tests.ports import free_port
from tests.sandbox.jupyter import Channels

SECONDS = 240.0


class Demo:
    """One demo on one state folder, started several times."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder = folder
        self.names = names
        self.state = folder / "state"
        self.ready_file = folder / "ready.json"
        self.out = folder / "out"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, Any] = {}

    def command(self, *more: str) -> list[str]:
        users = [word for name in self.names for word in ("--user", name)]
        return [
            *(sys.executable, "-m", "gke_workspaces_spawner.cli", "demo", "--state", str(self.state), "--port", str(self.port)),
            *(*users, "--ready-file", str(self.ready_file), *more),
        ]

    def launch(self, command: Sequence[str] | None = None) -> None:
        """In a session of its own, so that a signal to its process group is what a terminal sends."""
        self.ready_file.unlink(missing_ok=True)
        with self.out.open("ab") as out:
            nothing = subprocess.DEVNULL
            self.process = subprocess.Popen(command or self.command(), stdin=nothing, stdout=out, stderr=out, start_new_session=True)

    def start(self, command: Sequence[str] | None = None) -> None:
        self.launch(command)
        self.answers()

    def answers(self) -> None:
        """Wait for the ready file, and read it."""
        self.until(lambda: self.ready_file.exists() or self.process is None or self.process.poll() is not None)
        assert self.ready_file.exists(), self.words()
        self.ready = json.loads(self.ready_file.read_text())

    def signal(self, number: int) -> None:
        assert self.process
        os.killpg(self.process.pid, number)

    def ended(self) -> int:
        assert self.process
        return self.process.wait(SECONDS)

    def words(self) -> str:
        return self.out.read_text() if self.out.exists() else ""

    def until(self, condition: Any, seconds: float = SECONDS) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.words()
            time.sleep(0.1)

    def call(self, path: str, method: str = "GET", token: str | None = None, root: str | None = None) -> tuple[int, Any]:
        request = urllib.request.Request(
            (root or self.ready["hub_api_url"]) + path,
            method=method,
            headers={"Authorization": f"token {token or self.ready['admin_token']}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def model(self, name: str) -> dict[str, Any]:
        return dict((self.call(f"/users/{quote(name, safe='')}")[1]["servers"] or {}).get("", {}))

    def ask(self, name: str, path: str = "") -> None:
        """A POST of that user to his own server."""
        code, answer = self.call(f"/users/{quote(name, safe='')}/server{path}", "POST", self.ready["users"][name]["token"])
        assert code in (201, 202), answer

    def ask_aside(self, name: str) -> None:
        """Ask for a start and do not wait for its answer, which the Hub gives when it is done, or is asked to stop itself."""

        def ask() -> None:
            with contextlib.suppress(AssertionError, OSError):
                self.ask(name)

        threading.Thread(target=ask, daemon=True).start()

    def start_server(self, name: str) -> None:
        self.ask(name)
        self.until(lambda: self.model(name).get("ready"))

    def pid_of_kernel(self, name: str) -> str:
        """Identity of the running server: the start time that Jupyter Server itself reports."""
        root = f"{self.ready['url']}user/{quote(name, safe='@~')}"
        code, answer = self.call("/api/status", token=self.ready["users"][name]["token"], root=root)
        assert code == 200, answer
        return str(answer["started"])

    def text(self, path: str, token: str | None = None) -> str:
        """A page, as HTML."""
        headers = {"Authorization": f"token {token}"} if token else {}
        with urllib.request.urlopen(urllib.request.Request(self.ready["url"] + path, headers=headers), timeout=60) as answer:
            return str(answer.read().decode())

    def login_by_the_command_of_the_login_page(self, name: str) -> None:
        """Do what the page says, in a shell that knows no environment; the link that comes of it logs in."""
        shown = re.search(r"<pre>(.*?)</pre>", self.text("hub/login"))
        assert shown
        command = html.unescape(shown[1]).replace("NAME", shlex.quote(name))
        shell = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder)}
        said = subprocess.run(command, shell=True, env=shell, capture_output=True, text=True, timeout=60, check=False)
        assert re.fullmatch(rf"http://127\.0\.0\.1:{self.port}/hub/login#[\w-]{{22,}}\n", said.stdout), said

    def view(self, name: str) -> dict[str, Any]:
        """The workspace."""
        return dict(self.call(f"/users/{quote(name, safe='')}/server/pause")[1])

    def phase(self, name: str) -> str:
        return str(self.view(name)["phase"])

    def kernel(self, name: str) -> str:
        """Start one; its id."""
        root = f"{self.ready['url']}user/{name}"
        code, answer = self.call("/api/kernels", "POST", self.ready["users"][name]["token"], root)
        assert code == 201, answer
        return str(answer["id"])

    def run(self, name: str, kernel: str, code: str) -> str:
        """What a cell prints."""
        url = f"ws://127.0.0.1:{self.port}/user/{name}/api/kernels/{kernel}/channels?session_id={uuid.uuid4().hex}"
        with contextlib.closing(
            websocket.create_connection(url, header=[f"Authorization: token {self.ready['users'][name]['token']}"], timeout=60)
        ) as socket:
            return Channels(socket).run(code)

    def crash(self) -> None:
        """The machine goes down: the command, the Hub and the sandboxes end without a word."""
        self.signal(signal.SIGKILL)
        self.ended()
        chosen = settings.load(self.state)
        assert chosen
        end_leftovers(chosen)
        for each in rooms(self.state):
            sentry = Room(self.state, each).sentry()
            assert sentry is None or sentry.kill(10)

    def clean_up(self) -> None:
        """Whatever a test left, also one that failed."""
        if self.process and self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()
        chosen = settings.load(self.state)
        if chosen:
            end_leftovers(chosen)
        if chosen and (self.state / "network").exists():
            network = Network.load(self.state)
            stopping.end_sandboxes(chosen, network)
            for sandbox in network.attached():
                network.release(sandbox)
            network.close()
