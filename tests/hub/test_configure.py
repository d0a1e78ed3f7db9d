"""``configure(c)`` adds to a deployment's own configuration and replaces nothing of it: with pytest-jupyterhub's Hub in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from jupyterhub import orm
from jupyterhub.handlers.base import BaseHandler
from traitlets.config import Config

import gke_workspaces_spawner
from gke_workspaces_spawner.cli import bring
from gke_workspaces_spawner.cli.places import cache
from gke_workspaces_spawner.hubapi.scopes import KICK, PAUSE
from tests.fakes.process_spawner import ProcessWorkspaceSpawner

# What JupyterHub 5 ships of its own.
pytestmark = pytest.mark.filterwarnings("ignore:The .version. property of an event schema must be a string")

Start = Callable[[Config], Awaitable[Any]]


class Hello(BaseHandler):  # type: ignore[misc]  # JupyterHub is untyped
    """A deployment's own page."""

    def get(self) -> None:
        self.finish("hello")


@pytest.fixture
async def start(hub_app: Callable[..., Awaitable[Any]], tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a Hub with a configuration that ``configure`` has been called on; ends what it started: its proxy and its service."""
    apps = []

    async def started(c: Config) -> Any:
        c.JupyterHub.spawner_class = ProcessWorkspaceSpawner
        c.ProcessWorkspaceSpawner.state_dir = str(tmp_path)
        c.ConfigurableHTTPProxy.command = [str(bring.node()), str(bring.proxy(cache()))]
        c.ConfigurableHTTPProxy.pid_file = str(tmp_path / "proxy.pid")
        gke_workspaces_spawner.configure(c)
        apps.append(await hub_app(config=c))
        return apps[-1]

    yield started
    for app in apps:
        proxy = app.proxy.proxy_process
        await app.cleanup()
        proxy.wait(20)  # the Hub ends it and looks no more


def scopes(app: Any, role: str) -> set[str]:
    """Of a role, as the Hub's database has them."""
    return set(orm.Role.find(app.db, role).scopes)


async def test_on_a_stock_hub_users_and_servers_may_pause_and_nothing_else_changes(start: Start) -> None:
    app = await start(Config())
    assert scopes(app, "user") == {"self", f"{PAUSE}!user"}
    assert scopes(app, "server") == {"users:activity!user", "access:servers!server", f"{PAUSE}!server"}
    assert scopes(app, "gke-workspaces") == {KICK}
    assert set(app._service_map) == {"gke-workspaces"}


async def test_what_a_deployment_has_set_is_kept(start: Start, tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    templates.mkdir()
    (templates / "workspaces.html").write_text("ours")
    c = Config()
    c.JupyterHub.extra_handlers = [(r"/hello", Hello)]
    c.JupyterHub.template_paths = [str(templates)]
    c.JupyterHub.template_vars = {"announcement": "hello"}
    c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 3}
    c.JupyterHub.services = [{"name": "mine", "api_token": "a" * 32}]
    c.JupyterHub.load_roles = [
        {"name": "user", "scopes": ["read:users!user"]},
        {"name": "mine", "scopes": ["list:users"], "services": ["mine"]},
    ]
    app = await start(c)
    assert scopes(app, "user") == {"read:users!user", f"{PAUSE}!user"}
    assert scopes(app, "mine") == {"list:users"}
    assert set(app._service_map) == {"mine", "gke-workspaces"}
    assert app.template_vars["announcement"] == "hello"
    assert app.tornado_settings["slow_spawn_timeout"] == 3
    environment = app.tornado_settings["jinja2_env_sync"]
    assert environment.get_template("workspaces.html").filename == str(templates / "workspaces.html")
    async with httpx.AsyncClient(base_url=app.hub.url, headers={"Authorization": "token " + "a" * 32}) as client:
        assert (await client.get("hello")).text == "hello"
        assert (await client.get("api/workspaces")).status_code == 403
        assert (await client.get("api/users")).status_code == 200
