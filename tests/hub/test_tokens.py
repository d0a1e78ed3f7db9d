"""Tokens and logins across pause and resume, with the real single-user server."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest

from .running import RunningHub, wait_for

GROUP = "readers"
SETTINGS: dict[str, Any] = {
    "light": False,
    "hub": {"load_groups": {GROUP: {"users": []}}},
    "roles": [{"name": GROUP, "scopes": ["list:users"], "groups": [GROUP]}],
    "spawner": {
        "oauth_client_allowed_scopes": ["read:users:name!user", "read:servers!user"],
        "server_token_scopes": ["users:activity!user", "access:servers!server", "custom:gke-workspaces:pause!server", "list:users"],
    },
}
WHO = {"kind", "name", "admin", "groups", "session_id", "scopes", "auth_state", "token_id", "user_info"}
"""All that a token without scopes may ask for: whose it is."""


def own_rows(hub: RunningHub, user: str) -> dict[str, Any]:
    """Token rows and OAuth client of a user's default server."""
    tokens = hub.rows(
        "SELECT t.id, t.scopes FROM api_tokens t JOIN users u ON u.id = t.user_id WHERE u.name = ? AND t.note LIKE 'Server at%'", user
    )
    clients = hub.rows("SELECT allowed_scopes, description FROM oauth_clients WHERE identifier = ?", f"jupyterhub-user-{user}")
    return {
        "ids": [row[0] for row in tokens],
        "scopes": [sorted(json.loads(row[1])) for row in tokens],
        "clients": [(sorted(json.loads(scopes)), description) for scopes, description in clients],
        "counts": hub.rows("SELECT (SELECT count(*) FROM api_tokens), (SELECT count(*) FROM oauth_clients)"),
    }


def activity(hub: RunningHub, user: str, token: str) -> int:
    now = datetime.now(timezone.utc).isoformat()
    return hub.call("POST", f"/users/{user}/activity", {"servers": {"": {"last_activity": now}}}, token=token)[0]


def test_ten_cycles_keep_one_token_row_one_client_and_every_login(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    token = hub.server_token(ann)
    old = hub.browser(ann)
    lab = old.get(f"{hub.url}/user/{ann}/lab", timeout=60)
    assert lab.status_code == 200
    assert "JupyterLab" in lab.text
    before = own_rows(hub, ann)
    assert len(before["ids"]) == 1
    assert "read:users:name" in str(before["clients"])
    for _ in range(10):
        hub.pause(ann)
        paused = own_rows(hub, ann)
        assert paused["ids"] == before["ids"]
        assert paused["scopes"] == [[]]
        hub.resume(ann)
        assert own_rows(hub, ann) == before
        assert hub.server_token(ann) == token
        assert activity(hub, ann, token) == 200
        assert old.get(f"{hub.url}/user/{ann}/api/status", timeout=60).status_code == 200

    new = hub.browser(ann)
    answer = new.get(f"{hub.url}/user/{ann}/lab", timeout=60)
    assert answer.status_code == 200
    assert "JupyterLab" in answer.text
    assert len(answer.history) <= 3


def test_tokens_of_a_paused_server_can_do_nothing(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    token = hub.server_token(ann)
    browser = hub.browser(ann)
    assert browser.get(f"{hub.url}/user/{ann}/lab", timeout=60).status_code == 200
    hub.pause(ann)
    for method, path in [
        ("GET", "/users"),
        ("GET", f"/users/{ann}/server/pause"),
        ("POST", f"/users/{ann}/server/pause"),
        ("POST", f"/users/{ann}/server"),
        ("DELETE", f"/users/{ann}/server"),
    ]:
        status, answer = hub.call(method, path, {} if method == "POST" else None, token=token)
        assert status in (403, 404), (method, path, answer)
    assert activity(hub, ann, token) in (403, 404)
    for path in ("/user", f"/users/{ann}"):
        status, me = hub.call("GET", path, token=token)
        assert status == 403 or set(me) <= WHO, me
    browsers = hub.rows("SELECT scopes FROM api_tokens WHERE client_id = ?", f"jupyterhub-user-{ann}")
    assert browsers
    assert {row[0] for row in browsers} == {"[]"}


def test_a_hub_restart_while_paused_keeps_the_token_and_lets_browsers_in_again(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    old = hub.browser(ann)
    assert old.get(f"{hub.url}/user/{ann}/lab", timeout=60).status_code == 200
    before = own_rows(hub, ann)
    hub.pause(ann)
    hub.restart()
    hub.resume(ann)
    after = own_rows(hub, ann)
    assert (after["ids"], after["scopes"], after["clients"]) == (before["ids"], before["scopes"], before["clients"])
    assert activity(hub, ann, hub.server_token(ann)) == 200
    for browser in (old, hub.browser(ann)):
        answer = browser.get(f"{hub.url}/user/{ann}/lab", timeout=60)
        assert answer.status_code == 200
        assert "JupyterLab" in answer.text
        assert len(answer.history) <= 3


def test_a_hub_restart_while_running_leaves_no_row_after_the_stop(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.pause(ann)
    hub.resume(ann)
    hub.restart()
    hub.wait_ready(ann)
    assert hub.ask("DELETE", ann)[0] in (202, 204)
    wait_for("a stopped server", lambda: not hub.workspace(ann)["hub"]["pending"])
    left = own_rows(hub, ann)
    assert left["ids"] == []
    assert left["clients"] == []
    assert not [pid for pids in hub.pids().values() for pid in pids if pid == 0]
    hub.start_server(ann)
    hub.pause(ann)
    hub.resume(ann)


def test_a_right_taken_away_during_the_pause_is_not_in_the_restored_token(hub: RunningHub, ann: str) -> None:
    hub.user(ann)
    assert hub.call("POST", f"/groups/{GROUP}/users", {"users": [ann]})[0] == 200
    hub.start_server(ann)
    token = hub.server_token(ann)
    assert hub.call("GET", "/users", token=token)[0] == 200
    hub.pause(ann)
    assert hub.call("DELETE", f"/groups/{GROUP}/users", {"users": [ann]})[0] == 200
    hub.resume(ann)
    assert hub.call("GET", "/users", token=token)[0] == 403
    assert "list:users" not in str(own_rows(hub, ann)["scopes"])
    assert activity(hub, ann, token) == 200


def test_a_token_revoked_during_the_pause_leaves_only_a_fresh_start(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.pause(ann)
    (token_id,) = own_rows(hub, ann)["ids"]
    assert hub.call("DELETE", f"/users/{ann}/tokens/a{token_id}")[0] == 204
    before = own_rows(hub, ann)
    for _ in range(2):
        status, answer = hub.ask("POST", ann)
        assert status == 409
        assert "revoked" in answer["message"]
        status, answer = hub.verb("resume", ann)
        assert (status, answer["reason"]) == (409, "token_revoked")
        assert own_rows(hub, ann)["ids"] == []
        assert own_rows(hub, ann)["counts"] == before["counts"]
    view = hub.workspace(ann)
    assert view["phase"] == "paused"
    assert len(view["snapshots"]) == 1
    assert hub.verb("fresh", ann)[0] == 202
    hub.wait_phase("running", ann)
    hub.wait_ready(ann)
    after = own_rows(hub, ann)
    assert len(after["ids"]) == 1
    assert activity(hub, ann, hub.server_token(ann)) == 200
    assert [s["state"] for s in hub.workspace(ann)["snapshots"]] == ["superseded"]


def test_a_discarded_server_leaves_no_token_and_no_client(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    assert hub.browser(ann).get(f"{hub.url}/user/{ann}/lab", timeout=60).status_code == 200
    hub.pause(ann)
    assert hub.ask("DELETE", ann, path=f"/pause/{hub.pause_id(ann)}")[0] == 200
    left = own_rows(hub, ann)
    assert (left["ids"], left["clients"]) == ([], [])
    assert hub.rows("SELECT id FROM api_tokens WHERE client_id = ?", f"jupyterhub-user-{ann}") == []
    view = hub.workspace(ann)
    assert (view["phase"], view["actions"], view["snapshots"]) == ("running", ["start"], [])


@pytest.mark.parametrize("how", ["stop", "fresh"])
def test_the_end_of_a_lineage_ends_its_token(hub: RunningHub, ann: str, how: str) -> None:
    hub.start_server(ann)
    token = hub.server_token(ann)
    hub.pause(ann)
    if how == "fresh":
        assert hub.verb("fresh", ann)[0] == 202
        hub.wait_phase("running", ann)
        hub.wait_ready(ann)
    else:
        hub.resume(ann)
        hub.ask("DELETE", ann)
        wait_for("a stopped server", lambda: not hub.workspace(ann)["hub"]["pending"])
    assert hub.call("GET", "/user", token=token)[0] == 403


def test_nothing_of_all_this_was_an_unhandled_error(light_hub: RunningHub) -> None:
    assert "Traceback" not in light_hub.log
