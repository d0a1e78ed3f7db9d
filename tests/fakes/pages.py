"""A stand-in for what the pages ask (``hubapi.pages.Services``): every phase, hostile names, a home made of real files.

Also a JupyterHub configuration, so that a real Hub serves the pages (:func:`started`). A user's servers are his phases;
their names say which. A test changes the state of one with ``POST /hub/test/state/USER/SERVER/STATE`` (no login, this is a test).
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.proxy import Proxy
from jupyterhub.spawner import SimpleLocalProcessSpawner
from tornado import web

from gke_workspaces_spawner.hubapi import files, pages, urls

HOSTILE = "<img src=x onerror=document.title='pwned'>"
SERVERS = {
    "": "paused",
    "up": "running",
    "down": "stopped",
    "fit": "preparing",
    "train": "checkpointing",
    "safe": "saved",
    "going": "stopping",
    "sleep": "paused",
    "queue": "waiting",
    "back": "restoring",
    "doubt": "unproven",
    "gone": "deleting",
    "late": "failed",
    "after": "resumed",
    "w" * 60: "paused",
}
ACTIONS = {
    "running": ["open", "pause", "stop"],
    "stopped": ["start"],
    "preparing": ["cancel", "resume"],
    "checkpointing": ["cancel", "resume"],
    "saved": [],
    "stopping": ["resume"],
    "paused": ["resume", "fresh", "discard"],
    "waiting": ["cancel", "stop"],
    "restoring": ["cancel", "stop"],
    "unproven": ["retry", "accept", "stop", "open"],
    "deleting": [],
}
SENTENCES = {
    "running": "The server is running.",
    "stopped": "The server is stopped; nothing of it is saved.",
    "preparing": "The server gets ready: files are written out and connections are closed.",
    "checkpointing": "The memory of the server is being saved.",
    "saved": "The memory is saved; the server is about to be stopped.",
    "stopping": "The memory is saved; the machine is being freed.",
    "paused": "Paused for 2 h (1.2 GB). Resume brings 2 kernels back.",
    "waiting": "Waiting until there is room for the server.",
    "restoring": "The memory of the server is being loaded.",
    "unproven": "A server is running, but it is not the one that was paused. The snapshot is kept.",
    "deleting": "The snapshot is being discarded.",
}


def view(user: str, server: str, state: str, hub_base: str = "/hub/", now: float | None = None, revision: int = 4) -> dict[str, Any]:
    """A view in the given state, as REST would give it."""
    now = time.time() if now is None else now
    phase = {"stopped": "running", "failed": "running", "resumed": "running", "retrying": "unproven"}.get(state, state)
    words = {"failed": "running", "resumed": "running", "retrying": "unproven"}.get(state, state)
    has_snapshot = phase not in {"running", "preparing", "checkpointing"}
    snapshot = {
        "id": "s1",
        "pause_id": "p" * 32,
        "bytes": 1_234_567_890,
        "created": now - 7200,
        "expires": now + 12.6 * 86400,
        "state": "current",
    }
    reason = None
    if state == "failed":
        reason = {
            "code": "disk_full",
            "sentence": "The snapshot did not fit on the disk.",
            "advice": "Discard snapshots that you do not need, then pause again.",
        }
    if state == "unproven":
        reason = {
            "code": "cold_start",
            "sentence": "The restore did not happen: a new server was started instead.",
            "advice": "Try again, or keep the new server.",
        }
    return {
        "user": user,
        "server": server,
        "phase": phase,
        "since": now - {"paused": 7200, "running": 300}.get(phase, 7),
        "age": 7,
        "revision": revision,
        "intent": "retry" if state == "retrying" else "none",
        "progress": {"checkpointing": 0.42, "restoring": 0.63}.get(phase),
        "remaining": {"checkpointing": 9.7}.get(phase),
        "sentence": SENTENCES.get(words, ""),
        "actions": ACTIONS[words],
        "reason": reason,
        "detail": {"failed": "write pages.img: no space left on device", "waiting": "it needs 1.2 GB, 0.4 GB are free"}.get(state, ""),
        "pause": None
        if state in {"running", "stopped"}
        else {"id": "p" * 32, "clocks": {"pause_asked": now - 7203.4, "frozen": now - 7203, "durable": now - 7201, "freed": now - 7200}},
        "snapshot": snapshot if has_snapshot else None,
        "snapshots": [
            snapshot,
            {**snapshot, "id": "s0", "pause_id": "earlier", "state": "superseded", "bytes": 310_000_000, "created": now - 3 * 86400},
        ]
        if state in {"paused", "unproven", "resumed"}
        else [],
        "receipt": {
            "resumed": True,
            "reasons": [],
            "notes": ["checkpoint_silent"],
            "bytes": 1_234_567_890,
            "kernels": [{"id": "k1", "name": "Python 3"}, {"id": "k2", "name": HOSTILE}],
            "kernels_missing": [],
            "repaired": {"connections": 3},
            "before": {"not_returning": ["1 connection to db.example.org"], "terminals": 1},
            "seconds": {"pause": 3.4, "paused": 7200.0, "waiting": 0.1, "resume": 1.4},
        }
        if state == "resumed"
        else None,
        "holds": {
            "kernels": [
                {"name": "Python 3", "path": f"work/{HOSTILE}.ipynb", "state": "busy"},
                {"name": "Python 3", "path": "o'neil (x).ipynb", "state": "idle"},
            ],
            "terminals": 1,
            "not_returning": ["1 open network connection (db.example.org:5432)"],
        }
        if state not in {"stopped", "running", "resumed"}
        else None,
        "urls": {
            "page": urls.page(hub_base, user, server),
            "follow": urls.follow(hub_base, user, server),
            "server": hub_base.removesuffix("hub/") + f"user/{urls.segment(user)}/" + (f"{urls.segment(server)}/" if server else ""),
            "files": urls.files(hub_base, user, server),
        },
        "hub": {
            "ready": words == "running" or phase == "unproven",
            "pending": "stop"
            if phase in {"preparing", "checkpointing", "saved", "stopping"}
            else "spawn"
            if phase in {"waiting", "restoring"}
            else None,
        },
    }


LISTED = 50
"""Names that a :class:`DiskHome` gives of a folder."""


class DiskHome:
    """A home on this disk, opened the way the contract says: beneath it, without links."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _open(self, path: tuple[str, ...], flags: int) -> int:
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for index, name in enumerate(path):
            last = index == len(path) - 1
            try:
                inner = os.open(
                    name, (flags if last else os.O_DIRECTORY) | os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd
                )
            finally:
                os.close(fd)
            fd = inner
        return fd

    def listing(self, path: tuple[str, ...]) -> files.Listing:
        fd = self._open(path, os.O_DIRECTORY)
        try:
            entries = []
            names = os.listdir(fd)
            for name in names[:LISTED]:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                kind = "folder" if stat.S_ISDIR(status.st_mode) else "file" if stat.S_ISREG(status.st_mode) else "other"
                entries.append(files.Entry(name, kind, status.st_size, status.st_mtime))
            return files.Listing(entries, len(names) > LISTED)
        finally:
            os.close(fd)

    def open_file(self, path: tuple[str, ...]) -> int:
        return self._open(path, 0)


class StandIn:
    """Every user has the servers of :data:`SERVERS`; the home of paused ones is the folder ``$PAGES_HOME``."""

    def __init__(self, hub_base: str = "/hub/") -> None:
        self.hub_base = hub_base
        self.states: dict[tuple[str, str], str] = {}
        self.changes = 0

    def change(self, user: str, server: str, state: str) -> None:
        self.states[(user, server)] = state
        self.changes += 1

    def state(self, user: str, server: str) -> str | None:
        return self.states.get((user, server), SERVERS.get(server))

    def view(self, user_name: str, server_name: str, handler: Any) -> dict[str, Any] | None:
        state = self.state(user_name, server_name)
        if state is None or handler.find_user(user_name) is None:
            return None
        return view(user_name, server_name, state, self.hub_base, revision=4 + self.changes)

    def views_for(self, handler: Any) -> list[dict[str, Any]]:
        user = handler.current_user.name
        own = [view(user, name, state, self.hub_base) for name in SERVERS if (state := self.state(user, name))]
        others = [view(HOSTILE, "", "paused", self.hub_base), view("bo", "train", "checkpointing", self.hub_base)]
        return own + (others if handler.has_scope("admin:servers") else [])

    def homes(self, user_name: str, server_name: str, handler: Any) -> DiskHome | None:
        return DiskHome(Path(os.environ["PAGES_HOME"])) if self.state(user_name, server_name) == "paused" else None


class StateHandler(APIHandler):  # type: ignore[misc]  # JupyterHub is untyped
    """What a test uses to move a server to another state; JupyterHub gets a row for a named one."""

    def post(self, user: str, server: str, state: str) -> None:
        self.settings[pages.SETTING].change(user, server, state)
        found = self.find_user(user)
        if found is not None:
            # JupyterHub 5 makes a row on the first look at it, JupyterHub 6 when it is asked to
            if hasattr(found, "get_or_create_spawner"):
                found.get_or_create_spawner(server, server)
            else:
                found.spawners.__getitem__(server)
            self.db.commit()


class VerbHandler(APIHandler):  # type: ignore[misc]
    """A stand-in for REST: does what the verb says to the stand-in's states, and refuses a pause that is not the open one."""

    STATES = {
        "pause": "checkpointing",
        "resume": "restoring",
        "fresh": "running",
        "retry": "retrying",
        "accept": "running",
        "cancel": "running",
        "discard": "stopped",
    }

    def act(self, user: str, server: str | None, pause: str | None, verb: str) -> None:
        if self.current_user is None or self.current_user.name != user:
            raise web.HTTPError(403)
        services = self.settings[pages.SETTING]
        now = services.view(user, server or "", self)
        if pause is not None and pause != now["pause"]["id"]:
            self.set_status(409)
            self.finish({"status": 409, "message": "That pause is over. <b>Look</b> again.", "reason": "wrong_pause"})
            return
        services.change(user, server or "", self.STATES[verb])
        self.set_status(202)
        self.finish(services.view(user, server or "", self))

    def post(self, user: str, server: str | None = None, pause: str | None = None, verb: str = "pause") -> None:
        self.act(user, server, pause, verb)

    def delete(self, user: str, server: str | None = None, pause: str | None = None) -> None:
        self.act(user, server, pause, "discard")


class NoProxy(Proxy):
    """Nothing between the test and the Hub."""

    should_start = False

    async def add_route(self, routespec: str, target: str, data: Any) -> None: ...
    async def delete_route(self, routespec: str) -> None: ...
    async def get_all_routes(self) -> dict[str, Any]:
        return {}


class PausedSpawner(SimpleLocalProcessSpawner):
    """Shows the Paused form, with an admin's own form for one user and without for the others."""

    async def get_options_form(self) -> str:
        handler = self.handler
        base = handler.hub.base_url
        admin_form = "<label>Memory <select name='memory' class='form-select'><option>4 GB</option><option>16 GB</option></select></label>"
        return str(
            await handler.render_template(
                "paused_form.html",
                view=view(self.user.name, self.name, SERVERS.get(self.name, "paused"), base),
                admin_form=admin_form if self.user.name == "ann" else "",
                follow_url=urls.follow(base, self.user.name, self.name),
            )
        )


def configure(c: Any) -> None:
    """What ``configure(c)`` of the product does for pages, with the stand-in behind them."""
    base = os.environ.get("PAGES_BASE", "/")
    c.JupyterHub.base_url = base
    c.JupyterHub.bind_url = f"http://127.0.0.1:{os.environ.get('PAGES_PORT', '8000')}{base}"
    c.JupyterHub.hub_port = int(os.environ["PAGES_HUB_PORT"])
    c.JupyterHub.authenticator_class = "dummy"
    c.DummyAuthenticator.password = os.environ["PAGES_PASSWORD"]
    c.Authenticator.admin_users = {"root"}
    c.Authenticator.allow_all = True
    c.Authenticator.username_pattern = ".*"
    c.JupyterHub.spawner_class = PausedSpawner
    c.JupyterHub.allow_named_servers = True
    c.JupyterHub.db_url = "sqlite:///:memory:"
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.cookie_secret = os.urandom(32)
    c.JupyterHub.load_roles = [{"name": "overseer", "scopes": ["admin:servers", "list:users"], "users": ["eve"]}]
    of_server = r"/api/users/(?P<user>[^/]+)/(?:server|servers/(?P<server>[^/]+))/pause"
    c.JupyterHub.extra_handlers = [
        *pages.handlers(),
        (r"/test/state/([^/]+)/([^/]*)/([^/]+)", StateHandler),
        (of_server, VerbHandler),
        (of_server + r"/(?P<pause>[^/]+)", VerbHandler),
        (of_server + r"/(?P<pause>[^/]+)/(?P<verb>[^/]+)", VerbHandler),
    ]
    c.JupyterHub.template_paths = [pages.template_path()]
    c.JupyterHub.template_vars = pages.template_vars()
    c.JupyterHub.tornado_settings = {pages.SETTING: StandIn(f"{base}hub/")}
    if not os.environ.get("PAGES_PROXY"):
        c.JupyterHub.proxy_class = NoProxy
    else:
        c.ConfigurableHTTPProxy.command = [os.environ["PAGES_PROXY"]]
        c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{int(os.environ['PAGES_PORT']) + 1}"


@dataclass
class RunningHub:
    """A Hub with the pages; ``url`` is its root (with a slash at its end)."""

    url: str
    password: str
    log: Path
    pid: int

    def browser(self, user: str | None = None) -> requests.Session:
        """A session as a browser's: logged in as ``user``, or not at all."""
        session = requests.Session()
        session.headers["Sec-Fetch-Mode"] = "navigate"
        if user is not None:
            login = session.get(self.url + "hub/login")
            token = next(cookie.value for cookie in session.cookies if cookie.name == "_xsrf")
            answer = session.post(
                login.url, params={"_xsrf": token}, data={"username": user, "password": self.password}, allow_redirects=False
            )
            assert answer.status_code == 302, answer.text
        return session

    def move(self, user: str, server: str, state: str) -> None:
        requests.post(f"{self.url}hub/test/state/{urls.segment(user)}/{urls.segment(server)}/{state}").raise_for_status()


@contextmanager
def started(folder: Path, home: Path, hub_port: int, python: str = sys.executable) -> Iterator[RunningHub]:
    """Run a Hub on 127.0.0.1 without a proxy; gives it when it answers, ends it afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "hub.log"
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("JUPYTERHUB_", "PAGES_"))},
        "PAGES_HUB_PORT": str(hub_port),
        "PAGES_PORT": str(hub_port),
        "PAGES_PASSWORD": "only-for-this-test",
        "PAGES_HOME": str(home),
        "PAGES_BASE": "/base/",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    process = subprocess.Popen(
        [python, "-m", "jupyterhub", "-f", __file__], cwd=folder, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    ready = threading.Event()

    def watch() -> None:
        assert process.stderr is not None
        with log.open("w") as out:
            for line in process.stderr:
                out.write(line)
                out.flush()
                if "JupyterHub is now running" in line:
                    ready.set()
        ready.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert ready.wait(60), log.read_text()
        assert process.poll() is None, log.read_text()
        yield RunningHub(f"http://127.0.0.1:{hub_port}/base/", "only-for-this-test", log, process.pid)
    finally:
        process.terminate()
        process.wait(20)
        watcher.join(20)
        assert process.stderr is not None
        process.stderr.close()


if "get_config" in globals():
    configure(get_config())  # type: ignore[name-defined]  # noqa: F821  # JupyterHub's own name
