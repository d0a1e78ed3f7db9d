"""A cold start is not under the lock of drives: the Hub ends one that it gives up, and nothing of it comes up later or beside the next."""

from __future__ import annotations

import pytest

from gke_workspaces_spawner.hubapi.scopes import KICK

from .running import RunningHub, wait_for

START_SECONDS = 4
SETTINGS = {
    "spawner": {"start_timeout": START_SECONDS, "consecutive_failure_limit": 0},
    "roles": [{"name": "kicker", "scopes": [KICK], "services": ["test"]}],
}


def begin_held(hub: RunningHub, user: str) -> None:
    """A start that stands still just before its server comes up."""
    hub.user(user)
    hub.fault(hold="starting")
    hub.in_background(lambda: hub.ask("POST", user))
    wait_for("a start under way", lambda: hub.model(user).get("pending") == "spawn")


def one_server(hub: RunningHub, user: str) -> None:
    """After a start that nobody disturbs there is one process of it, which the Hub knows and whose token works."""
    hub.start_server(user)
    assert hub.call("GET", "/user", token=hub.server_token(user))[0] == 200
    first = hub.count(user)
    lineage = hub.record(user)["owner"]["lineage"]
    assert hub.pids() == {lineage: [first["pid"]]}


@pytest.mark.parametrize("ended_by", ["a stop", "the limit", "the user's removal"])
def test_a_start_that_was_given_up_leaves_no_server_and_no_second_one(hub: RunningHub, ann: str, ended_by: str) -> None:
    begin_held(hub, ann)
    if ended_by == "a stop":
        assert hub.ask("DELETE", ann)[0] in (202, 204)
    elif ended_by == "the limit":
        wait_for("the Hub to give up", lambda: not hub.model(ann).get("pending"), START_SECONDS + 30)
    else:
        assert hub.ask("DELETE", ann)[0] in (202, 204)
        wait_for("a stop", lambda: not hub.model(ann).get("pending"))
        assert hub.call("DELETE", f"/users/{ann}")[0] == 204
        hub.forget_user(ann)
    wait_for("a stop", lambda: not hub.model(ann).get("pending") if ended_by != "the user's removal" else True)
    hub.fault()
    one_server(hub, ann)  # it takes longer than what was given up would need to come up
    assert hub.ask("DELETE", ann)[0] in (202, 204)
    wait_for("no process", lambda: not hub.pids())


def test_a_kick_in_the_middle_of_a_start_changes_nothing(hub: RunningHub, ann: str) -> None:
    begin_held(hub, ann)
    assert hub.call("POST", "/workspaces/kick", {})[0] < 300
    assert hub.model(ann).get("pending") == "spawn"
    hub.fault()
    hub.wait_ready(ann)
    first = hub.count(ann)
    assert hub.call("POST", "/workspaces/kick", {})[0] < 300
    assert hub.count(ann)["pid"] == first["pid"]
    assert hub.pids() == {hub.record(ann)["owner"]["lineage"]: [first["pid"]]}
    assert hub.ask("DELETE", ann)[0] in (202, 204)
