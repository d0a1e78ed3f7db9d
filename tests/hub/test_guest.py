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
from gke_workspaces_spawner.hub.guest import HubGuest, sign_response
from gke_workspaces_spawner.lifecycle.model import Key
from gke_workspaces_spawner.lifecycle.ports import Absent, Prepared
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


class Extension(RequestHandler):
    """Signs what the test put here, and keeps what it was asked."""

    status = 200
    answer: dict[str, object] = {}
    asked: list[tuple[str, dict[str, object]]] = []

    def post(self, verb: str) -> None:
        body = json.dumps(self.answer).encode()
        self.asked.append((verb, json.loads(self.request.body)))
        self.set_status(self.status)
        self.set_header("X-Pause-Signature", sign_response("00" * 32, self.request.headers["X-Pause-Nonce"], self.status, body))
        self.finish(body)


@pytest_asyncio.fixture
async def signed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HubGuest]:
    monkeypatch.setattr(Extension, "asked", [])
    port = free_port()
    server = HTTPServer(Application([(r"/user/ann/jupyter-pause/v1/(.*)", Extension)]))
    server.listen(port, "127.0.0.1")
    yield HubGuest(lambda _key: f"http://127.0.0.1:{port}/user/ann/", lambda _key: "00" * 32, WallClock(), logging.getLogger(__name__))
    server.stop()


IDENTITY = {"boot_id": "b", "server_pid": 1, "kernels": []}


@pytest.mark.parametrize(
    ("frozen", "held"), [({"at": 1.0, "until": 2.0, "processes": 3}, True), (None, False), (True, False), ("yes", False)]
)
async def test_only_an_extension_that_says_what_it_holds_is_taken_to_hold_it(
    signed: HubGuest, frozen: object, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Extension, "answer", {"identity": IDENTITY, "frozen": frozen})
    prepared = await signed.prepare(KEY, "p1", 10.0, 60.0)
    assert isinstance(prepared, Prepared)
    assert prepared.frozen is held
    assert Extension.asked == [("prepare", {"pause_id": "p1", "deadline": 10.0, "freeze": True, "frozen_for": 60.0})]


async def test_where_the_engine_freezes_the_extension_is_not_asked_to(signed: HubGuest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Extension, "answer", {"identity": IDENTITY})
    prepared = await signed.prepare(KEY, "p1", 10.0)
    assert isinstance(prepared, Prepared)
    assert not prepared.frozen
    assert Extension.asked[0][1]["freeze"] is False


@pytest.mark.parametrize("code", ["freeze_unavailable", "freeze_incomplete"])
async def test_a_freeze_that_is_refused_is_told_from_any_other_refusal(
    signed: HubGuest, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Extension, "status", 409)
    monkeypatch.setattr(Extension, "answer", {"reason": code, "message": "a process of root"})
    with pytest.raises(Refused) as error:
        await signed.prepare(KEY, "p1", 10.0, 60.0)
    assert error.value.code == code


@pytest.mark.parametrize(("said", "held"), [(True, True), (False, False), (None, False), ("true", False), (1, False)])
async def test_a_hold_is_believed_only_in_plain_words(signed: HubGuest, said: object, held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Extension, "answer", {"frozen": said, "until": 5.0, "since": 1.0})
    assert await signed.frozen(KEY, "p1", 60.0) is held
    assert Extension.asked == [("frozen", {"pause_id": "p1", "seconds": 60.0})]


@pytest.mark.parametrize("status", [403, 404, 405])
async def test_a_server_that_knows_no_such_verb_holds_nothing(guest: HubGuest, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answer, "status", status)
    assert await guest.frozen(KEY, "p1", 60.0) is False
