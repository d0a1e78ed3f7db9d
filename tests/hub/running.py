"""A real JupyterHub with a real proxy, as processes of their own, that a test can kill and start again; and a client of its REST."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests

from gke_workspaces_spawner.cli import bring
from gke_workspaces_spawner.cli.places import cache
from tests.fakes import kill_switch
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120.0
POLL_SECONDS = 0.05


Answer = tuple[int, Any]
"""Status and parsed JSON."""


class NotYet(AssertionError):
    """Something did not come to be in time."""


def wait_for(what: str, seen: Callable[[], Any], seconds: float = START_SECONDS) -> Any:
    """Look until ``seen`` gives something true; that is returned. Raises :class:`NotYet`."""
    end = time.monotonic() + seconds
    while True:
        value = seen()
        if value:
            return value
        if time.monotonic() > end:
            raise NotYet(f"{what} did not come to be in {seconds:.0f} s")
        time.sleep(POLL_SECONDS)


class RunningHub:
    """Starts proxy and Hub in ``folder``; ``kill`` and ``start`` may follow each other."""

    def __init__(self, folder: Path, config: Path, settings: Mapping[str, Any] | None = None, python: str = sys.executable) -> None:
        self.folder = folder
        self._config = config
        self._python = python
        self.admin_token = secrets.token_hex(16)
        self.password = secrets.token_hex(8)
        self.settings: dict[str, Any] = {
            "folder": str(folder),
            "port": free_port(),
            "hub_port": free_port(),
            "proxy_api_port": free_port(),
            "proxy_token": secrets.token_hex(16),
            "admin_token": self.admin_token,
            "password": self.password,
            **(settings or {}),
        }
        self.url = f"http://127.0.0.1:{self.settings['port']}"
        self._tokens: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(8)
        self._hub: subprocess.Popen[bytes] | None = None
        self._proxy: subprocess.Popen[bytes] | None = None

    # ------------------------------------------------------------ life

    @property
    def log(self) -> str:
        return (self.folder / "hub.log").read_text(errors="replace")

    def start_proxy(self) -> None:
        with open(self.folder / "proxy.log", "ab") as log:
            self._proxy = subprocess.Popen(
                [
                    *(str(bring.node()), str(bring.proxy(cache()))),
                    *("--ip", "127.0.0.1", "--port", str(self.settings["port"])),
                    *("--api-ip", "127.0.0.1", "--api-port", str(self.settings["proxy_api_port"])),
                    *("--error-target", f"http://127.0.0.1:{self.settings['hub_port']}/hub/error"),
                ],
                env={**os.environ, "CONFIGPROXY_AUTH_TOKEN": self.settings["proxy_token"]},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start(self) -> None:
        """Start the Hub and wait until it answers."""
        if self._proxy is None:
            self.start_proxy()
        env = {**os.environ, "HUB_TEST_SETTINGS": json.dumps(self.settings), "PYTHONPATH": str(ROOT)}
        env["PATH"] = f"{Path(self._python).parent}:{env['PATH']}"
        env |= self.settings.get("environment", {})
        with open(self.folder / "hub.log", "ab") as log:
            self._hub = subprocess.Popen(
                [self._python, "-m", "jupyterhub", "-f", str(self._config)],
                cwd=self.folder,
                env=env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for("the Hub's answer", self._answers)

    def _answers(self) -> bool:
        assert self._hub is not None
        if self._hub.poll() is not None:
            raise NotYet(f"the Hub ended with {self._hub.returncode}: {self.log[-3000:]}")
        try:
            return self.call("GET", "/", raw=True)[0] == 200
        except OSError:
            return False

    def kill(self, *, group: bool = False) -> None:
        """SIGKILL the Hub, alone or with its whole process group."""
        assert self._hub is not None
        if group:
            os.killpg(self._hub.pid, signal.SIGKILL)
        else:
            self._hub.kill()
        self._hub.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._hub.pid, signal.SIGKILL)  # its service, which a dead Hub cannot end

    def restart(self) -> None:
        self.kill()
        self.start()

    def close(self) -> None:
        """End Hub and proxy."""
        self._pool.shutdown()
        for process in (self._hub, self._proxy):
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
        for process in (self._hub, self._proxy):
            if process is not None:
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        for pids in self.pids().values():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)

    # ------------------------------------------------------------ REST

    def call(
        self, method: str, path: str, body: object = None, *, token: str | None = None, raw: bool = False, base: str = "/hub/api"
    ) -> tuple[int, Any]:
        """Status and parsed JSON (or text). Unless ``raw``, a 5xx fails the test at once: the product promises none."""
        request = urllib.request.Request(
            self.url + base + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {token or self.admin_token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                status, text = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        if not raw:
            assert status < 500, f"{method} {path}: {status} {text}"
        try:
            return status, json.loads(text) if text.strip() else None
        except ValueError:
            return status, text

    def user(self, name: str) -> str:
        """Create the user when it is new; its own API token."""
        if name not in self._tokens:
            quoted = urllib.parse.quote(name, safe="@~")
            self.call("POST", f"/users/{quoted}", {})
            self._tokens[name] = self.call("POST", f"/users/{quoted}/tokens", {"note": "test"})[1]["token"]
        return self._tokens[name]

    def forget_user(self, name: str) -> None:
        """Its tokens are gone with it; :meth:`user` makes a new one."""
        self._tokens.pop(name, None)

    def resume_as_admin(self, user: str) -> None:
        status, answer = self.call("POST", self.path(user))
        assert status in (201, 202), answer

    def browser(self, user: str) -> requests.Session:
        """A new browser, logged in at the Hub."""
        self.user(user)
        session = requests.Session()
        page = session.get(f"{self.url}/hub/login", timeout=30)
        form = {"username": user, "password": self.password, "_xsrf": session.cookies.get("_xsrf", path="/hub/")}
        answer = session.post(f"{self.url}/hub/login", data=form, allow_redirects=False, timeout=30)
        assert page.status_code == 200
        assert answer.status_code == 302, answer.text
        return session

    @staticmethod
    def path(user: str, server: str = "") -> str:
        """REST path of a server."""
        which = f"/servers/{urllib.parse.quote(server, safe='@~')}" if server else "/server"
        return f"/users/{urllib.parse.quote(user, safe='@~')}{which}"

    def ask(self, method: str, user: str, server: str = "", path: str = "", body: object = None) -> tuple[int, Any]:
        """A call on a server, by its owner."""
        return self.call(method, self.path(user, server) + path, body, token=self.user(user))

    def model(self, user: str, server: str = "") -> dict[str, Any]:
        """The Hub's own model of a server, empty when it knows none."""
        answer = self.call("GET", f"/users/{urllib.parse.quote(user, safe='@~')}?include_stopped_servers")[1]
        found: dict[str, Any] = answer["servers"].get(server) or {}
        return found

    def workspace(self, user: str, server: str = "") -> dict[str, Any]:
        status, answer = self.ask("GET", user, server, "/pause")
        assert status == 200, answer
        view: dict[str, Any] = answer
        return view

    def start_server(self, user: str, server: str = "", *, wait: bool = True) -> None:
        status, answer = self.ask("POST", user, server)
        assert status in (201, 202), answer
        if wait:
            self.wait_ready(user, server)

    def wait_ready(self, user: str, server: str = "", seconds: float = START_SECONDS) -> None:
        try:
            wait_for(f"a ready server {user}/{server}", lambda: self.model(user, server).get("ready"), seconds)
        except NotYet as error:
            raise NotYet(f"{error}; it is {self.model(user, server)}, {self.workspace(user, server)}\n{self.log[-3000:]}") from None

    def wait_phase(self, phases: str | Collection[str], user: str, server: str = "", seconds: float = START_SECONDS) -> dict[str, Any]:
        wanted = {phases} if isinstance(phases, str) else set(phases)
        seen: dict[str, Any] = {}

        def look() -> bool:
            seen.clear()
            seen.update(self.workspace(user, server))
            return seen["phase"] in wanted

        try:
            wait_for(f"{user}/{server} in {sorted(wanted)}", look, seconds)
        except NotYet as error:
            raise NotYet(f"{error}; it is {seen}") from None
        return seen

    def pause(self, user: str, server: str = "") -> dict[str, Any]:
        """Pause and wait until it is paused."""
        status, answer = self.ask("POST", user, server, "/pause", {})
        assert status == 202, answer
        return self.wait_phase("paused", user, server)

    def resume(self, user: str, server: str = "") -> dict[str, Any]:
        """Resume and wait until it runs and is ready."""
        self.start_server(user, server)
        return self.wait_phase("running", user, server)

    def pause_id(self, user: str, server: str = "") -> str:
        found: str = self.workspace(user, server)["pause"]["id"]
        return found

    def verb(self, verb: str, user: str, server: str = "", pause_id: str | None = None, body: object = None) -> tuple[int, Any]:
        """Ask for a verb of the open pause (or of the one that is given), by the server's owner."""
        return self.ask("POST", user, server, f"/pause/{pause_id or self.pause_id(user, server)}/{verb}", {} if body is None else body)

    def in_background(self, call: Callable[[], Answer]) -> Future[Answer]:
        """A call whose answer takes as long as what it does."""
        return self._pool.submit(call)

    # ------------------------------------------------------------ behind REST

    @property
    def renames(self) -> bool:
        """Whether this JupyterHub can rename servers (6 can)."""
        version: str = self.call("GET", "/")[1]["version"]
        return int(version.split(".", maxsplit=1)[0]) >= 6

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of the Hub's database."""
        with contextlib.closing(sqlite3.connect(f"file:{self.folder}/hub.sqlite?mode=ro", uri=True, timeout=20)) as database:
            return database.execute(query, values).fetchall()

    def record(self, user: str, server: str = "") -> dict[str, Any]:
        """The workspace as it is in the database, with its extras."""
        query = "SELECT spawners.state FROM spawners JOIN users ON users.id = spawners.user_id WHERE users.name = ? AND spawners.name = ?"
        state: dict[str, Any] = json.loads(self.rows(query, user, server)[0][0])["gke_workspaces"]
        return {**state["workspace"], "extra": state["extra"]}

    def server_token(self, user: str, server: str = "") -> str:
        """The API token that the server holds."""
        lineage: str = self.record(user, server)["owner"]["lineage"]
        return (self.folder / "state" / "tokens" / lineage).read_text()

    def pids(self) -> dict[str, list[int]]:
        """Main processes of single-user servers that this Hub started and that are not gone (they may stand still), by lineage."""
        homes = self.folder / "state" / "homes"
        found: dict[str, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError, IndexError):
                    cwd = Path(os.readlink(entry / "cwd"))
                    leader = int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == int(entry.name)
                    if leader and cwd.parent == homes:
                        found.setdefault(cwd.name, []).append(int(entry.name))
        return found

    def services(self) -> list[int]:
        """Processes of our managed service that Hubs of this folder started."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    ours = b"gke_workspaces_spawner.service" in (entry / "cmdline").read_bytes().split(b"\0")
                    if ours and Path(os.readlink(entry / "cwd")) == self.folder:
                        found.append(int(entry.name))
        return found

    def pid(self, user: str, server: str = "") -> int:
        """The one process of that server."""
        (pid,) = self.pids()[self.record(user, server)["owner"]["lineage"]]
        return pid

    def count(self, user: str, server: str = "") -> dict[str, Any]:
        """Through the proxy: the light server's memory, which counts how often it was asked."""
        path = self.model(user, server).get("url") or f"/user/{user}/"
        status, answer = self.call("GET", f"{path}count", base="", token=self.user(user), raw=True)
        assert status == 200, answer
        counted: dict[str, Any] = answer
        return counted

    def kill_at(self, phase: str, *, proof: bool = False, group: bool = False) -> None:
        """Let the Hub kill itself right after it has persisted that phase (or, in ``restoring``, the proof)."""
        kill_switch.arm(self.folder / "state", phase, proof=proof, group=group)

    def wait_killed(self) -> None:
        """Until the Hub has killed itself; then it can be started again."""
        assert self._hub is not None
        self._hub.wait(START_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._hub.pid, signal.SIGKILL)

    def fault(self, **faults: str) -> None:
        """Faults of the process engine from now on; none without arguments."""
        path = self.folder / "state" / "faults.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(faults))
        temporary.replace(path)


@contextlib.contextmanager
def running_hub(
    folder: Path, config: Path, settings: Mapping[str, Any] | None = None, python: str = sys.executable
) -> Iterator[RunningHub]:
    """A Hub that is ended afterwards, whatever happens."""
    hub = RunningHub(folder, config, settings, python)
    try:
        hub.start()
        yield hub
    finally:
        hub.close()
