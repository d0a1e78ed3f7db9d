"""What the JupyterLab tab asks of the server extension, and what the extension asks of the Hub (a small real one)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tornado.web import RequestHandler

from .ext_server import HUB_TOKEN, TOKEN, Hub, Server, in_its_own_home, playing_hub, read, running

USER, NAME = "Bö.x+y@ex ample~", "gpu/1"
CANCEL = {"url": "/hub/api/x/cancel-ticket", "ticket": "0f" * 32}
PAUSE = "/hub/api/users/B%C3%B6.x%2By@ex%20ample~/servers/gpu%2F1/pause"


@pytest_asyncio.fixture
async def hub() -> AsyncIterator[Hub]:
    async with playing_hub() as playing:
        yield playing


@pytest_asyncio.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub) -> AsyncIterator[Server]:
    in_its_own_home(tmp_path, monkeypatch)
    monkeypatch.setenv("JUPYTERHUB_API_URL", hub.api_url)
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", HUB_TOKEN)
    monkeypatch.setenv("JUPYTERHUB_USER", USER)
    monkeypatch.setenv("JUPYTERHUB_SERVER_NAME", NAME)
    monkeypatch.setenv("JUPYTERHUB_BASE_URL", "/")
    async with running(tmp_path) as running_server:
        yield running_server


@pytest_asyncio.fixture
async def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    in_its_own_home(tmp_path, monkeypatch)
    async with running(tmp_path, secret=None, base_url="/") as running_server:
        yield running_server


def say(status: int, body: Any, **headers: str) -> Any:
    def answer(handler: RequestHandler) -> None:
        handler.set_status(status)
        for name, value in headers.items():
            handler.set_header(name, value)
        handler.finish(body if isinstance(body, (str, bytes)) else json.dumps(body))

    return answer


async def test_without_a_hub_it_says_that_it_is_not_available(plain: Server) -> None:
    status = read(await plain.tab("jupyter-pause/v1/status"))
    assert (status["available"], status["hub_prefix"], status["follow_url"]) == (False, None, None)
    for path, method in (("pause", "POST"), ("preflight", "POST"), ("receipt", "GET")):
        answer = await plain.tab(f"jupyter-pause/v1/{path}", method)
        assert (answer.code, read(answer)["reason"]) == (409, "unavailable")


async def test_status_names_the_server_and_where_to_follow_it(server: Server) -> None:
    status = read(await server.tab("jupyter-pause/v1/status"))
    assert status == {
        "available": True,
        "api": 1,
        "user": USER,
        "server_name": NAME,
        "hub_prefix": "/hub/",
        "follow_url": "/hub/workspaces/follow/B%C3%B6.x%2By@ex%20ample~/gpu%2F1",
        "boot_id": server.ext.boot_id,
        "paused_count": 0,
        "restored": None,
        "receipt": None,
    }


async def test_pause_asks_the_hub_with_the_servers_own_token_and_passes_its_record_on(server: Server, hub: Hub) -> None:
    hub.answer = say(
        202,
        {
            "phase": "preparing",
            "follow_url": "/hub/workspaces/follow/x",
            "launch": {"env": "secret"},
            "sentence": "Saving.",
            "cancel": CANCEL,
        },
    )
    answer = await server.tab("jupyter-pause/v1/pause", "POST")
    assert answer.code == 202
    assert read(answer) == {"phase": "preparing", "follow_url": "/hub/workspaces/follow/x", "sentence": "Saving.", "cancel": CANCEL}
    ((method, path, authorization, body),) = hub.asked
    assert (method, path, authorization) == ("POST", PAUSE, f"token {HUB_TOKEN}")
    assert body["facts"]["terminals"] == 0


async def test_preflight_sends_facts_and_passes_on_what_a_tab_may_see(server: Server, hub: Hub) -> None:
    kernel_id = await server.kernel("deep/train.ipynb")
    hub.answer = say(200, {"bytes": 5, "seconds_pause": 0.5, "will_not_return": ["x" * 9000], "token": "no", "refusal": None})
    answer = read(await server.tab("jupyter-pause/v1/preflight", "POST"))
    assert hub.asked[0][:2] == ("POST", PAUSE + "/preflight")
    (kernel,) = hub.asked[0][3]["facts"]["kernels"]
    assert (kernel["kernel_id"], kernel["path"]) == (kernel_id, "deep/train.ipynb")
    assert answer["bytes"] == 5
    assert answer["facts"]["kernels"][0]["path"] == "deep/train.ipynb"
    assert [len(sentence) for sentence in answer["will_not_return"]] == [4000]
    assert "token" not in answer


async def test_receipt_is_remembered_for_status(server: Server, hub: Hub) -> None:
    hub.answer = say(200, {"phase": "running", "receipt": {"verdict": "resumed", "seconds": 1.5}})
    assert read(await server.tab("jupyter-pause/v1/receipt"))["receipt"] == {"verdict": "resumed", "seconds": 1.5}
    assert read(await server.tab("jupyter-pause/v1/status"))["receipt"] == {"verdict": "resumed", "seconds": 1.5}
    assert hub.asked[0][:2] == ("GET", PAUSE)


@pytest.mark.parametrize(
    ("status", "body", "expected", "reason"),
    [
        (409, {"reason": "phase", "message": "A pause is under way."}, 409, "phase"),
        (403, {"status": 403, "message": "no scope"}, 403, "hub_refused"),
        (404, {"status": 404, "message": "Not Found"}, 409, "hub_cannot_pause"),
        (400, "<html>", 502, "hub_error"),
        (500, {"reason": "x", "message": "y"}, 502, "hub_error"),
        (200, "[1]", 502, "hub_error"),
        (200, b"{" + b" " * 70000 + b"}", 502, "hub_unreachable"),
    ],
)
async def test_what_the_hub_refuses_or_garbles_is_a_sentence(
    server: Server, hub: Hub, status: int, body: Any, expected: int, reason: str
) -> None:
    hub.answer = say(status, body)
    answer = await server.tab("jupyter-pause/v1/pause", "POST")
    assert (answer.code, read(answer)["reason"]) == (expected, reason)
    assert read(answer)["message"].endswith(".")


async def test_the_token_follows_no_redirect(server: Server, hub: Hub) -> None:
    hub.answer = say(302, "", Location=f"{hub.api_url}/elsewhere")
    answer = await server.tab("jupyter-pause/v1/pause", "POST")
    assert answer.code == 502
    assert [asked[1] for asked in hub.asked] == [PAUSE]


async def test_an_address_that_is_not_the_hubs_is_dropped(server: Server, hub: Hub) -> None:
    for url in ("https://evil.example/", "//evil.example/", "javascript:alert(1)", "/\\evil.example", 5):
        hub.answer = say(202, {"phase": "preparing", "follow_url": url})
        answer = read(await server.tab("jupyter-pause/v1/pause", "POST"))
        assert answer["follow_url"] == "/hub/workspaces/follow/B%C3%B6.x%2By@ex%20ample~/gpu%2F1"


async def test_a_hub_that_does_not_answer_is_a_sentence(server: Server, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_URL", "http://127.0.0.1:1/hub/api")
    answer = await server.tab("jupyter-pause/v1/pause", "POST")
    assert (answer.code, read(answer)["reason"]) == (502, "hub_unreachable")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "")
    answer = await server.tab("jupyter-pause/v1/receipt")
    assert (answer.code, read(answer)["reason"]) == (503, "hub_unreachable")


ROUTES = [("status", "GET"), ("preflight", "POST"), ("pause", "POST"), ("receipt", "GET"), ("journal", "GET")]


@pytest.mark.parametrize(("path", "method"), ROUTES)
async def test_every_route_wants_the_authenticated_user(server: Server, hub: Hub, path: str, method: str) -> None:
    for headers in ({}, {"Authorization": "token wrong"}):
        answer = await server.fetch(f"jupyter-pause/v1/{path}", method, None if method == "GET" else "{}", **headers)
        assert (answer.code, read(answer)["reason"]) == (403, "not_allowed")
    assert hub.asked == []


@pytest.mark.parametrize(("path", "method"), ROUTES)
async def test_no_other_origin_and_no_other_method(server: Server, hub: Hub, path: str, method: str) -> None:
    server.app.allow_origin = "*"
    hub.answer = say(200, {})
    answer = await server.tab(f"jupyter-pause/v1/{path}?kernel_id=x", method, Origin="http://evil.example")
    assert "Access-Control-Allow-Origin" not in answer.headers
    preflight = await server.fetch(
        f"jupyter-pause/v1/{path}", "OPTIONS", Origin="http://evil.example", Access_Control_Request_Method="POST"
    )
    assert (preflight.code, read(preflight)["reason"]) == (405, "method_not_allowed")
    assert not [name for name in preflight.headers if name.startswith("Access-Control")]
    for other in {"GET", "POST", "PUT", "DELETE", "PATCH"} - {method}:
        answer = await server.tab(f"jupyter-pause/v1/{path}", other, {})
        assert (answer.code, read(answer)["reason"]) == (405, "method_not_allowed")


async def test_a_cookie_alone_does_not_pause(server: Server, hub: Hub) -> None:
    login = await server.fetch(
        "login", "POST", f"password={TOKEN}", Content_Type="application/x-www-form-urlencoded", Authorization=f"token {TOKEN}"
    )
    cookies = SimpleCookie()
    for line in (await server.fetch(f"tree?token={TOKEN}")).headers.get_list("Set-Cookie") + login.headers.get_list("Set-Cookie"):
        cookies.load(line)
    cookie = "; ".join(f"{name}={morsel.value}" for name, morsel in cookies.items())
    hub.answer = say(202, {"phase": "preparing"})
    assert (await server.fetch("jupyter-pause/v1/status", Cookie=cookie)).code == 200
    refused = await server.fetch("jupyter-pause/v1/pause", "POST", "{}", Cookie=cookie, Content_Type="application/json")
    assert (refused.code, read(refused)["reason"]) == (403, "not_allowed")
    assert hub.asked == []
    xsrf = cookies["_xsrf"].value
    allowed = await server.fetch("jupyter-pause/v1/pause", "POST", "{}", Cookie=cookie, Content_Type="application/json", X_XSRFToken=xsrf)
    assert allowed.code == 202


@pytest.mark.parametrize(
    ("path", "method", "body", "kind", "status", "reason"),
    [
        ("pause", "POST", "{}", "text/plain", 415, "not_json"),
        ("pause", "POST", "{", "application/json", 400, "bad_json"),
        ("preflight", "POST", "[]", "application/json", 400, "bad_json"),
        ("pause", "POST", " " * 70000, "application/json", 413, "too_large"),
        ("journal", "GET", None, "", 400, "bad_kernel_id"),
        ("journal?kernel_id=../x", "GET", None, "", 400, "bad_kernel_id"),
        ("journal?kernel_id=%ff", "GET", None, "", 400, "bad_request"),
        ("journal?kernel_id=abc", "GET", None, "", 404, "kernel_unknown"),
        ("journal?kernel_id=abc&since=-1", "GET", None, "", 400, "bad_since"),
        ("journal?kernel_id=abc&since=99999999999999999", "GET", None, "", 400, "bad_since"),
    ],
)
async def test_bad_input_is_refused_with_a_sentence(
    server: Server, hub: Hub, path: str, method: str, body: str | None, kind: str, status: int, reason: str
) -> None:
    answer = await server.fetch(f"jupyter-pause/v1/{path}", method, body, Authorization=f"token {TOKEN}", Content_Type=kind)
    assert (answer.code, read(answer)["reason"]) == (status, reason)
    assert read(answer)["message"].endswith(".")
    assert hub.asked == []
