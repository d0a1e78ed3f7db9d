"""The extension inside a real ``jupyterhub-singleuser`` process, whose Hub is a small tornado server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jupyterhub
import pytest
import pytest_asyncio
from jupyterhub import __version__ as hub_version
from tornado.web import RequestHandler

import jupyter_pause_ext
from tests.ports import free_port

from .ext_server import HUB_TOKEN, SECRET, Client, Hub, in_its_own_home, playing_hub, read

BROWSER_TOKEN = "browser-token"
BASE = "/user/ada@x.org/"


def answer(handler: RequestHandler) -> None:
    """The part of JupyterHub's API that a single-user server needs."""
    path, token = handler.request.path, handler.request.headers.get("Authorization", "").partition(" ")[2]
    handler.set_header("X-JupyterHub-Version", hub_version)
    if path.endswith("/user") and token == BROWSER_TOKEN:
        scopes = ["access:servers!server=ada@x.org/"]
        handler.finish({"kind": "user", "name": "ada@x.org", "admin": False, "groups": [], "scopes": scopes, "session_id": None})
    elif path.endswith("/user"):
        handler.send_error(403)
    elif path.endswith("/pause"):
        handler.set_status(202)
        handler.finish({"phase": "preparing"})
    else:
        handler.finish({})


@pytest_asyncio.fixture
async def hub() -> AsyncIterator[Hub]:
    async with playing_hub() as playing:
        playing.answer = answer
        yield playing


@pytest.fixture(params=[["-m", "jupyterhub.singleuser"], ["-m", "jupyter_pause_ext.singleuser"]], ids=["stock loop", "poll loop"])
def process(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub) -> Iterator[Client]:
    in_its_own_home(tmp_path, monkeypatch)
    monkeypatch.delenv("JUPYTER_NO_CONFIG")
    port = free_port()
    environment = os.environ | {
        "JUPYTER_CONFIG_PATH": str(Path(jupyter_pause_ext.__file__).parent / "jupyter-config"),
        "JUPYTERHUB_API_URL": hub.api_url,
        "JUPYTERHUB_API_TOKEN": HUB_TOKEN,
        "JUPYTERHUB_ACTIVITY_URL": f"{hub.api_url}/users/ada@x.org/activity",
        "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_CLIENT_ID": "jupyterhub-user-ada",
        "JUPYTERHUB_USER": "ada@x.org",
        "JUPYTERHUB_SERVER_NAME": "",
        "JUPYTERHUB_SERVICE_PREFIX": BASE,
        "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}{BASE}",
        "JUPYTERHUB_OAUTH_ACCESS_SCOPES": json.dumps(["access:servers!server=ada@x.org/"]),
        "GKE_WORKSPACES_GUEST_SECRET": SECRET,
    }
    command = [sys.executable, *request.param, "--allow-root"]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(command, env=environment, cwd=tmp_path / "home", stdout=log, stderr=log)
    try:
        yield Client(port, BASE, token=BROWSER_TOKEN)
    finally:
        running.kill()
        running.wait()
        print((tmp_path / "log").read_text())


async def up(process: Client) -> None:
    while True:
        try:
            assert (await process.fetch("api")).code == 200
            return
        except OSError:
            await asyncio.sleep(0.1)


def reports(hub: Hub) -> list[Any]:
    return [asked for asked in hub.asked if asked[1].endswith("/activity")]


async def test_it_works_behind_the_hubs_own_login_and_repairs_what_the_hubs_code_keeps(process: Client, hub: Hub) -> None:
    await up(process)
    status = read(await process.tab("jupyter-pause/v1/status"))
    assert (status["available"], status["user"], status["hub_prefix"]) == (True, "ada@x.org", "/hub/")
    assert (await process.tab("jupyter-pause/v1/status", token="somebody-else")).code == 403
    assert (await process.fetch("jupyter-pause/v1/pause", "POST", "{}")).code == 403
    paused = await process.tab("jupyter-pause/v1/pause", "POST")
    assert (paused.code, read(paused)["phase"]) == (202, "preparing")
    assert ("POST", "/hub/api/users/ada@x.org/server/pause", f"token {HUB_TOKEN}") in [asked[:3] for asked in hub.asked]

    while not reports(hub):
        await asyncio.sleep(0.01)
    before = len(reports(hub))
    assert (await process.hub("prepare", {"pause_id": "p1", "deadline": process.clock() + 60})).code == 200
    assert read(await process.tab("jupyter-pause/v1/status"))["reason"] == "pause_under_way"
    repaired = read(await process.hub("restored", {"pause_id": "p1"}))["repaired"]
    assert repaired["hub_caches"] == 2
    assert (repaired["hub_connections"] >= 1) is (jupyterhub.version_info[0] >= 6)  # the one that keeps connections
    assert repaired["activity_report"] is True
    while len(reports(hub)) == before:
        await asyncio.sleep(0.01)

    users = len([asked for asked in hub.asked if asked[1].endswith("/user")])
    assert (await process.tab("jupyter-pause/v1/status")).code == 200
    assert len([asked for asked in hub.asked if asked[1].endswith("/user")]) == users + 1
