"""The demo's ``jupyterhub_config.py``, as a function: the state folder holds three lines that call it."""

from __future__ import annotations

import asyncio
import ctypes
import shlex
import signal
import sqlite3
import sys
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

import gke_workspaces_spawner

from ..sandbox import homes
from .settings import Settings, load

PR_SET_PDEATHSIG = 1
START_HERE = "Start here.ipynb"
COMMAND = "gke-workspaces-demo"
"""Name of the demo command among the Hub's services, and note of every token that it makes."""


def write_config(settings: Settings) -> Path:
    """The file for ``jupyterhub -f``."""
    path = settings.hub / "jupyterhub_config.py"
    path.write_text(
        '"""Made by `gke-workspaces demo` at each start."""\n\n'
        "from gke_workspaces_spawner.cli.hub_config import configure_demo\n\n"
        f"configure_demo(c, {settings.state!r})  # noqa: F821\n",
        encoding="utf-8",
    )
    return path


def database(path: Path) -> str:
    """URL of a SQLite file whose commits hold the Hub's event loop for 4 ms in place of 14 (measured; as durable as before).

    Every phase of a pause is committed, and SQLite's write-ahead log needs one fsync for that, its default journal three. The file
    remembers the mode.
    """
    with closing(sqlite3.connect(path, timeout=20)) as file:
        file.execute("PRAGMA journal_mode=WAL")
    return f"sqlite:///{path}"


def configure_demo(c: Any, state: str) -> None:
    """Everything that the demo's Hub is told."""
    settings = load(Path(state))
    if settings is None:
        raise FileNotFoundError(f"{state} is not the state folder of a demo")
    _end_with_the_command()

    hub = c.JupyterHub
    hub.bind_url = settings.url
    hub.hub_bind_url = f"http://{settings.hub_host}:{settings.hub_port}"
    hub.db_url = database(settings.database)
    hub.upgrade_db = True
    hub.cookie_secret = bytes.fromhex(settings.cookie_secret)
    hub.cleanup_servers = False  # servers live through a restart of the Hub
    hub.allow_named_servers = True
    hub.load_roles = [{"name": COMMAND, "services": [COMMAND], "scopes": ["tokens", "admin:users", "read:hub"]}]
    hub.services = [{"name": COMMAND, "api_token": settings.command_token}]
    c.CryptKeeper.keys = [bytes.fromhex(settings.crypt_key)]

    hub.proxy_class = "configurable-http-proxy"
    c.ConfigurableHTTPProxy.command = list(settings.proxy_command)
    c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{settings.proxy_api_port}"
    c.ConfigurableHTTPProxy.auth_token = settings.proxy_token
    c.ConfigurableHTTPProxy.pid_file = str(settings.hub / "proxy.pid")

    hub.authenticator_class = "gke_workspaces_spawner.cli.login.TicketAuthenticator"
    c.TicketAuthenticator.tickets_file = str(settings.tickets)
    command = Path(sys.executable).with_name("gke-workspaces")  # by its path: a shell need not know the environment
    c.TicketAuthenticator.login_command = shlex.join([str(command), "login", "NAME", "--state", settings.state])
    c.Authenticator.allowed_users = set(settings.users)
    c.Authenticator.admin_users = {"admin"}

    hub.spawner_class = "gke_workspaces_spawner.LocalWorkspaceSpawner"
    c.LocalWorkspaceSpawner.state_dir = settings.state
    c.LocalWorkspaceSpawner.runsc = settings.runsc
    c.LocalWorkspaceSpawner.outbound = settings.outbound
    c.Spawner.default_url = "/lab"
    c.Spawner.args = ["--LabApp.news_url=None"]  # no question about news in front of the notebook that is there to be read
    c.Spawner.start_timeout = 180
    c.Spawner.http_timeout = 120  # a laptop that is busy, with cold caches
    c.Spawner.pre_spawn_hook = StartHere()
    gke_workspaces_spawner.configure(c)


def _end_with_the_command() -> None:
    """Ask the kernel for a SIGTERM when the demo command is killed: the Hub then ends in order, servers go on."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class StartHere:
    """Puts the notebook into a home that is empty, when its user first starts a server in this life of the Hub."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    async def __call__(self, spawner: Any) -> None:
        """Called by the Hub before each start; no more than a look in a set after the first."""
        user = spawner.user.orm_user
        if user.id in self._seen:
            return
        self._seen.add(user.id)
        home = spawner.workspaces.homes.of(user)
        notebook = files(__package__).joinpath("start_here.ipynb").read_bytes()
        await asyncio.get_running_loop().run_in_executor(None, _furnish, home.path, home.uid, notebook)


def _furnish(path: Path, uid: int, notebook: bytes) -> None:
    if not homes.listing(path, uid, uid, limit=1).entries:
        homes.put_new(path, uid, uid, (START_HERE,), notebook)
