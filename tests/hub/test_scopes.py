"""Who may do what: scope by route; and what every route says to bad input."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from .running import RunningHub

LOOKER, OTHER = "1" * 32, "2" * 32
SETTINGS: dict[str, Any] = {
    "services": [{"name": "looker", "api_token": LOOKER}, {"name": "other", "api_token": OTHER}],
    "roles": [
        {"name": "looker", "scopes": ["admin:servers"], "services": ["looker"]},
        {"name": "other", "scopes": ["list:users"], "services": ["other"]},
    ],
}
SECRET = "train-of-thought.ipynb"
VERBS = ("cancel", "resume", "fresh", "retry", "accept")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/pause", True),
        ("POST", "/pause/preflight", True),
        ("POST", "/pause/p1/cancel", True),
        ("POST", "/pause/p1/resume", False),
        ("POST", "/pause/p1/fresh", False),
        ("POST", "/pause/p1/retry", False),
        ("POST", "/pause/p1/accept", False),
        ("DELETE", "/pause/p1", False),
        ("POST", "", False),
        ("DELETE", "", False),
        ("POST", "/pause", True),
    ],
)
def test_a_server_s_own_token_may_pause_look_and_cancel_and_no_more(
    hub: RunningHub, ann: str, method: str, path: str, allowed: bool
) -> None:
    hub.start_server(ann)
    hub.start_server(ann, "lab")
    bob = f"{ann}-bob"
    hub.start_server(bob)
    token = hub.server_token(ann)
    body: dict[str, object] | None = {} if method == "POST" else None
    for user, server in ((ann, "lab"), (bob, "")):
        status, answer = hub.call(method, hub.path(user, server) + path, body, token=token)
        assert status in (403, 404), answer
        assert hub.workspace(user, server)["phase"] == "running"
    status, answer = hub.call(method, hub.path(ann) + path, body, token=token)
    assert (status not in (403, 404)) is allowed, answer
    if path.startswith("/pause") and not allowed:
        assert answer["reason"] in ("not_allowed", "unknown_server")
    if path == "/pause" and method == "POST":
        assert status == 202
        hub.wait_phase("paused", ann)
    assert hub.call("GET", "/workspaces", token=token)[0] == 403


def test_who_may_not_enter_a_server_sees_phase_bytes_and_times_but_no_names(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.call("POST", f"/users/{ann}/server/pause/preflight", {"kernels": [{"name": SECRET}]}, token=hub.user(ann))
    hub.pause(ann)
    mine = hub.workspace(ann)
    assert mine["holds"]["kernels"]
    status, theirs = hub.call("GET", f"/users/{ann}/server/pause", token=LOOKER)
    assert status == 200
    assert theirs["phase"] == "paused"
    assert theirs["snapshot"]["bytes"] == mine["snapshot"]["bytes"]
    assert theirs["pause"]["clocks"]["freed"]
    assert theirs["holds"] is None
    assert theirs["receipt"] is None
    assert {k: v for k, v in theirs.items() if k not in ("age", "holds", "receipt")} == {
        k: v for k, v in mine.items() if k not in ("age", "holds", "receipt")
    }
    assert SECRET not in json.dumps(hub.call("GET", "/workspaces", token=LOOKER)[1])


def test_who_has_no_right_to_a_server_does_not_learn_that_it_exists(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.pause(ann)
    pause_id = hub.pause_id(ann)
    stranger = hub.user(f"{ann}-stranger")
    for token in (stranger, OTHER):
        for method, path in [("GET", ""), ("POST", ""), ("POST", "/preflight"), ("DELETE", f"/{pause_id}")] + [
            ("POST", f"/{pause_id}/{verb}") for verb in VERBS
        ]:
            here = hub.call(method, f"/users/{ann}/server/pause{path}", {} if method == "POST" else None, token=token)
            gone = hub.call(method, f"/users/nobody/server/pause{path}", {} if method == "POST" else None, token=token)
            assert here[0] in (403, 404)
            assert here == gone
            assert here[1]["reason"] in ("not_allowed", "unknown_server")
        assert hub.call("GET", "/workspaces", token=token)[0] == 403


def test_a_cookie_needs_the_token_of_the_page(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    browser = hub.browser(ann)
    url = f"{hub.url}/hub/api/users/{ann}/server/pause"
    for method in ("GET", "POST"):
        script = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "empty"}
        answer = browser.request(method, url, json={} if method == "POST" else None, headers=script, timeout=30)
        assert answer.status_code == 403
        assert answer.json()["reason"] in ("not_allowed", "not_logged_in")
    assert hub.workspace(ann)["phase"] == "running"
    headers = {"X-XSRFToken": browser.cookies.get("_xsrf", path="/hub/") or ""}
    assert browser.get(url, headers=headers, timeout=30).status_code == 200
    assert browser.post(url, json={}, headers=headers, timeout=30).status_code == 202
    hub.wait_phase("paused", ann)


def test_nobody_is_told_403_with_a_reason(hub: RunningHub, ann: str) -> None:
    hub.user(ann)
    for token in ("wrong", ""):
        answer = requests.get(
            f"{hub.url}/hub/api/users/{ann}/server/pause", headers={"Authorization": f"token {token}"} if token else {}, timeout=30
        )
        assert answer.status_code == 403
        assert answer.json()["reason"] == "not_logged_in"
        assert answer.json()["message"]


def test_only_the_service_may_kick(hub: RunningHub, ann: str) -> None:
    assert hub.call("POST", "/workspaces/kick", token=hub.user(ann))[0] == 403
    assert hub.call("POST", "/workspaces/kick", token=LOOKER)[0] == 403


BODIES = [
    b"{",
    b"[]",
    b'"text"',
    b"\xff\xfe\x00",
    b"[" * 50_000,
    b'{"a": NaN}',
    b'{"a": ' + b"9" * 5000 + b"}",
    b'{"a": "' + b"x" * 70_000 + b'"}',
    b"\x00",
]


@pytest.fixture(scope="module")
def paused_user(light_hub: RunningHub) -> str:
    light_hub.start_server("nasty")
    light_hub.pause("nasty")
    return "nasty"


@pytest.mark.parametrize("body", BODIES, ids=lambda b: repr(b[:14]))
def test_a_bad_body_is_answered_with_a_sentence_and_a_reason(hub: RunningHub, paused_user: str, body: bytes) -> None:
    pause_id = hub.pause_id(paused_user)
    before = hub.workspace(paused_user)["revision"]
    paths = ["", "/preflight", *(f"/{pause_id}/{verb}" for verb in VERBS)]
    for path in paths:
        answer = requests.post(
            f"{hub.url}/hub/api/users/{paused_user}/server/pause{path}",
            data=body,
            headers={"Authorization": f"token {hub.user(paused_user)}", "Content-Type": "application/json"},
            timeout=30,
        )
        assert 400 <= answer.status_code < 500, (path, answer.text)
        assert answer.json()["reason"] in ("bad_request", "not_running", "not_unproven", "nothing_to_cancel"), (path, answer.text)
        assert answer.json()["message"]
    assert hub.workspace(paused_user)["revision"] == before


@pytest.mark.parametrize("options", [5, [], "text", True])
def test_options_that_are_no_object_are_refused_and_nothing_starts(hub: RunningHub, paused_user: str, options: object) -> None:
    status, answer = hub.verb("fresh", paused_user, body={"user_options": options})
    assert (status, answer["reason"]) == (400, "bad_request")
    assert hub.workspace(paused_user)["phase"] == "paused"
    assert hub.workspace(paused_user)["intent"] == "none"


@pytest.mark.parametrize(
    "path",
    [
        "/users/nasty/server/pause/p1/explode",
        "/users/nasty/server/pause/p1",
        "/users/nasty/server/pause/" + "p" * 64 + "/resume",
        "/users/nasty/server/pause/" + "p" * 65 + "/resume",
        "/users/nasty/server/pause/%00/resume",
        "/users/nasty/server/pause/..%2f..%2f/resume",
        "/users/nasty/servers/%2e%2e/pause",
        "/users/nasty/servers/none/pause",
        "/users/nasty/servers/%00/pause",
        "/users/%00/server/pause",
        "/users/%ff%fe/server/pause",
        "/users/" + "n" * 5000 + "/server/pause",
        "/users/%F0%9F%92%A9/servers/%3Cscript%3E/pause",
        "/users/nasty/server/pause/",
        "/workspaces/kick/more",
        "/workspaces?offset=%ff",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
def test_a_bad_address_or_method_is_a_refusal(hub: RunningHub, paused_user: str, method: str, path: str) -> None:
    answer = requests.request(
        method,
        f"http://127.0.0.1:{hub.settings['hub_port']}/hub/api{path}",  # the proxy itself fails on some of them
        data="{}" if method in ("POST", "PUT", "PATCH") else None,
        headers={"Authorization": f"token {hub.admin_token}", "Content-Type": "application/json"},
        timeout=30,
    )
    assert answer.status_code < 500
    assert hub.workspace(paused_user)["phase"] == "paused"


def test_nothing_of_all_this_was_an_unhandled_error(light_hub: RunningHub) -> None:
    assert "Traceback" not in light_hub.log
