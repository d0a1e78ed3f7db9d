"""A resume is today's right, also one that was asked for while the right was there."""

from __future__ import annotations

from typing import Any

from .running import RunningHub

GROUP = "starters"
SETTINGS: dict[str, Any] = {
    "hub": {"load_groups": {GROUP: {"users": []}}},
    "roles": [
        {
            "name": "user",
            "scopes": ["read:users!user", "access:servers!user", "read:servers!user", "delete:servers!user", "users:activity!user"],
        },
        {"name": GROUP, "scopes": ["servers!user"], "groups": [GROUP]},
    ],
}


def test_a_right_that_is_taken_away_after_the_resume_was_asked_for_ends_it(hub: RunningHub, ann: str) -> None:
    hub.user(ann)
    assert hub.call("POST", f"/groups/{GROUP}/users", {"users": [ann]})[0] == 200
    hub.start_server(ann)
    first = hub.count(ann)
    rows = hub.rows("SELECT id FROM api_tokens ORDER BY id")
    hub.fault(hold="checkpointing")
    assert hub.ask("POST", ann, path="/pause", body={})[0] == 202
    hub.wait_phase("checkpointing", ann)
    assert hub.verb("resume", ann)[0] == 202
    assert hub.call("DELETE", f"/groups/{GROUP}/users", {"users": [ann]})[0] == 200
    hub.fault()
    view = hub.wait_phase("paused", ann)
    assert hub.verb("resume", ann, pause_id=view["pause"]["id"])[0] == 403

    status, answer = hub.call("POST", hub.path(ann))  # an admin cannot resume it for somebody who may not
    assert status == 403, answer
    view = hub.wait_phase("paused", ann)
    assert view["reason"]["code"] == "not_allowed"
    assert len(view["snapshots"]) == 1
    assert hub.rows("SELECT id FROM api_tokens ORDER BY id") == rows

    assert hub.call("POST", f"/groups/{GROUP}/users", {"users": [ann]})[0] == 200
    hub.resume(ann)
    assert hub.count(ann)["pid"] == first["pid"]


def test_a_server_can_be_paused_for_somebody_who_may_start_none(hub: RunningHub, ann: str) -> None:
    hub.user(ann)
    assert hub.call("POST", f"/groups/{GROUP}/users", {"users": [ann]})[0] == 200
    hub.start_server(ann)
    assert hub.call("DELETE", f"/groups/{GROUP}/users", {"users": [ann]})[0] == 200
    assert hub.call("POST", f"{hub.path(ann)}/pause", {})[0] == 202
    assert hub.wait_phase("paused", ann)["reason"] is None
