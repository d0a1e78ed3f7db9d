"""Login with a ticket at a real Hub: the page, the one POST, its races."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from gke_workspaces_spawner.cli.login import POLICY
from gke_workspaces_spawner.cli.tickets import Tickets
from tests.ports import free_port

CONFIG = """
c.JupyterHub.authenticator_class = "gke_workspaces_spawner.cli.login.TicketAuthenticator"
c.TicketAuthenticator.tickets_file = {tickets!r}
c.Authenticator.allowed_users = {{"ann", "Bö@x.org"}}
c.JupyterHub.bind_url = "http://127.0.0.1:{port}/"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.JupyterHub.proxy_class = "jupyterhub.proxy.ConfigurableHTTPProxy"
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.auth_token = "x"
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret = b"0" * 32
"""


class AnyRoute(BaseHTTPRequestHandler):
    """A proxy's API that knows no routes and takes all."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b"{}" if self.command == "GET" else b""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Tickets, Path]]:
    """A Hub with the demo's login, asked directly."""
    folder = tmp_path_factory.mktemp("hub")
    hub_port = free_port()
    tickets, log, config = folder / "tickets.sqlite", folder / "hub.log", folder / "config.py"
    with ThreadingHTTPServer(("127.0.0.1", 0), AnyRoute) as api:
        thread = threading.Thread(target=api.serve_forever)
        thread.start()
        config.write_text(
            CONFIG.format(tickets=str(tickets), port=free_port(), hub_port=hub_port, folder=folder)
            + f"c.ConfigurableHTTPProxy.api_url = 'http://127.0.0.1:{api.server_address[1]}'\n"
        )
        with log.open("wb") as out:
            process = subprocess.Popen([sys.executable, "-m", "jupyterhub", "-f", str(config)], cwd=folder, stdout=out, stderr=out)
        url = f"http://127.0.0.1:{hub_port}/hub"
        try:
            for _ in range(900):
                assert process.poll() is None, log.read_text()
                try:
                    if httpx.get(f"{url}/health").status_code == 200:
                        break
                except httpx.TransportError:
                    time.sleep(0.1)
            yield url, Tickets(tickets), log
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            api.shutdown()
            thread.join()


async def open_page(client: httpx.AsyncClient, url: str) -> str:
    page = await client.get(f"{url}/login?next=%2Fhub%2Fhome")
    found = re.search(r'name="_xsrf" value="([^"]+)"', page.text)
    assert found
    return found[1]


def logged_in(client: httpx.AsyncClient) -> bool:
    return any(cookie.name == "jupyterhub-hub-login" for cookie in client.cookies.jar)


async def test_a_link_logs_in_once_and_its_ticket_is_in_no_log(hub: tuple[str, Tickets, Path]) -> None:
    url, tickets, log = hub
    for name in ("ann", "Bö@x.org"):
        ticket = tickets.issue(name)
        async with httpx.AsyncClient() as client:
            xsrf = await open_page(client, url)
            answer = await client.post(f"{url}/login?next=%2Fhub%2Fhome", data={"_xsrf": xsrf, "ticket": ticket})
            assert (answer.status_code, answer.headers["location"]) == (302, "/hub/home")
            assert logged_in(client)
        async with httpx.AsyncClient() as other:
            xsrf = await open_page(other, url)
            answer = await other.post(f"{url}/login", data={"_xsrf": xsrf, "ticket": ticket})
            assert answer.status_code == 403
            assert "used already" in answer.text
            assert not logged_in(other)
        assert ticket not in log.read_text()


async def test_twenty_posts_at_once_give_one_session(hub: tuple[str, Tickets, Path]) -> None:
    url, tickets, _ = hub
    ticket = tickets.issue("ann")
    clients = [httpx.AsyncClient(timeout=60) for _ in range(20)]
    try:
        pages = [await open_page(client, url) for client in clients]
        posts = [client.post(f"{url}/login", data={"_xsrf": x, "ticket": ticket}) for client, x in zip(clients, pages, strict=True)]
        answers = await asyncio.gather(*posts)
        assert sorted(answer.status_code for answer in answers) == [302] + [403] * 19
        assert sum(map(logged_in, clients)) == 1
    finally:
        for client in clients:
            await client.aclose()


async def test_a_post_without_xsrf_uses_no_ticket(hub: tuple[str, Tickets, Path]) -> None:
    url, tickets, _ = hub
    ticket = tickets.issue("ann")
    async with httpx.AsyncClient() as client:
        await open_page(client, url)
        for data in ({"ticket": ticket}, {"ticket": ticket, "_xsrf": "wrong"}):
            answer = await client.post(f"{url}/login", data=data, headers={"Sec-Fetch-Mode": "navigate"})
            assert answer.status_code == 403
            assert not logged_in(client)
    assert tickets.take(ticket) == "ann"


@pytest.mark.parametrize("data", [{}, {"ticket": ""}, {"username": "ann", "password": "x"}, {"ticket": "ann"}, {"ticket": "\u202e\x00"}])
async def test_what_is_no_ticket_is_refused_with_a_sentence(hub: tuple[str, Tickets, Path], data: dict[str, str]) -> None:
    url, _, _ = hub
    async with httpx.AsyncClient() as client:
        xsrf = await open_page(client, url)
        answer = await client.post(f"{url}/login", data={"_xsrf": xsrf, **data})
        assert answer.status_code == 403
        assert not logged_in(client)


async def test_the_page_runs_only_our_own_script(hub: tuple[str, Tickets, Path]) -> None:
    url, _, _ = hub
    async with httpx.AsyncClient() as client:
        page = await client.get(f'{url}/login?next="><script>alert(1)</script>')
        assert page.headers["content-security-policy"] == POLICY
        assert page.headers["cache-control"] == "no-store"
        assert "<script>alert" not in page.text
        for name, kind in (("js", "text/javascript"), ("css", "text/css")):
            file = await client.get(f"{url}/ticket.{name}")
            assert (file.status_code, file.headers["content-type"]) == (200, f"{kind}; charset=utf-8")
        assert (await client.get(f"{url}/ticket.html")).status_code == 404
