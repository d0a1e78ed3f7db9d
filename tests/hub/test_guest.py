"""What the Hub makes of answers on a server's port that are not signed by the server."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from gke_workspaces_spawner.hub.clock import WallClock
from gke_workspaces_spawner.hub.guest import HubGuest
from gke_workspaces_spawner.lifecycle.model import Key
from gke_workspaces_spawner.lifecycle.ports import Absent
from gke_workspaces_spawner.lifecycle.reasons import Refused
from tests.ports import free_port

KEY = Key("ann")


class Answer(RequestHandler):
    """Says to everything what the test put here."""

    status = 404
    body = ""

    def prepare(self) -> None:
        self.set_status(self.status)
        self.finish(self.body)


@pytest_asyncio.fixture
async def guest() -> AsyncIterator[HubGuest]:
    port = free_port()
    server = HTTPServer(Application([(r".*", Answer)]))
    server.listen(port, "127.0.0.1")
    yield HubGuest(lambda _key: f"http://127.0.0.1:{port}/user/ann/", lambda _key: "00" * 32, WallClock(), logging.getLogger(__name__))
    server.stop()


@pytest.mark.parametrize("status", [403, 404, 405])
async def test_a_server_without_the_extension_is_told_from_one_that_does_not_answer(
    guest: HubGuest, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answer, "status", status)
    monkeypatch.setattr(Answer, "body", "<html>no such page</html>")
    assert isinstance(await guest.prepare(KEY, "p1", 0), Absent)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (403, {"reason": "bad_signature", "message": "This request is not from the hub."}),
        (200, {"identity": {"boot_id": "b", "server_pid": 1, "kernels": []}}),
        (302, {}),
        (500, {}),
    ],
)
async def test_an_extension_that_does_not_take_our_signature_is_not_taken_for_absent(
    guest: HubGuest, status: int, body: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is anything unsigned believed: with "absent" a pause would go on with a weaker proof."""
    monkeypatch.setattr(Answer, "status", status)
    monkeypatch.setattr(Answer, "body", json.dumps(body))
    with pytest.raises(Refused) as error:
        await guest.prepare(KEY, "p1", 0)
    assert error.value.code == "guest_unreachable"
