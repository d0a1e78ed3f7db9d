"""Login with a ticket at a real Hub: the page, the one POST, its races."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gke_workspaces_spawner.cli.login import POLICY
from gke_workspaces_spawner.cli.tickets import Tickets

from .running import running_hub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Tickets, Path]]:
    """A Hub with the demo's login: its URL, its tickets, its log."""
    folder = tmp_path_factory.mktemp("login")
    with running_hub(folder, Path(__file__).with_name("login_config.py"), {"tickets": str(folder / "tickets.sqlite")}) as hub:
        yield f"{hub.url}/hub", Tickets(folder / "tickets.sqlite"), folder / "hub.log"


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
