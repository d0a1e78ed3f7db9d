"""A server that ends by itself: what is kept of it is said, and a snapshot of its own is offered for a resume."""

from __future__ import annotations

import os
import signal
from typing import Any

from .running import RunningHub, wait_for


def end(hub: RunningHub, user: str) -> None:
    """The server's process ends, and the Hub learns of it by its own poll."""
    os.kill(hub.pid(user), signal.SIGKILL)


def test_a_server_that_ends_by_itself_is_paused_again_with_its_last_snapshot(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    token = hub.server_token(ann)
    hub.pause(ann)
    first = hub.resume(ann)
    assert hub.call("GET", f"{hub.path(ann)}/pause", token=token)[0] == 200
    end(hub, ann)
    view = hub.wait_phase("paused", ann)
    assert view["reason"]["code"] == "ended_by_itself"
    assert view["actions"] == ["resume", "fresh", "discard"]
    assert view["snapshot"]["id"] == first["snapshots"][0]["id"]
    assert hub.call("GET", f"{hub.path(ann)}/pause", token=token)[0] in (403, 404), "the tokens of its memory are powerless"
    assert hub.server_token(ann) == token, "and kept for the resume"
    wait_for("a Hub that knows it", lambda: not hub.model(ann).get("ready") and not hub.model(ann).get("pending"))
    assert hub.rows("SELECT id FROM api_tokens WHERE id = ?", hub.record(ann)["extra"]["token_id"])
    assert hub.verb("fresh", ann)[0] == 202
    hub.wait_ready(ann)
    assert kept(hub.workspace(ann)) == ["superseded"]


def test_a_hub_that_was_away_when_its_server_ended_offers_the_same(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.pause(ann)
    hub.resume(ann)
    pid = hub.pid(ann)
    hub.kill()
    os.kill(pid, signal.SIGKILL)
    hub.start()
    assert hub.wait_phase("paused", ann)["reason"]["code"] == "ended_by_itself"
    hub.restart()
    assert hub.workspace(ann)["phase"] == "paused"


def kept(view: dict[str, Any]) -> list[str]:
    return [snapshot["state"] for snapshot in view["snapshots"]]


def test_what_is_kept_of_a_server_that_was_stopped_or_discarded_is_not_offered(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.pause(ann)
    hub.resume(ann)
    assert hub.ask("DELETE", ann)[0] in (202, 204)
    wait_for("a stopped server", lambda: hub.workspace(ann)["actions"] == ["start"])
    assert kept(hub.workspace(ann)) == ["current"]
    hub.start_server(ann)
    end(hub, ann)
    wait_for("a stopped server", lambda: hub.workspace(ann)["actions"] == ["start"])
    assert hub.workspace(ann)["phase"] == "running"

    hub.start_server(ann)
    hub.pause(ann)
    hub.resume(ann)
    hub.pause(ann)
    assert hub.ask("DELETE", ann, "", f"/pause/{hub.pause_id(ann)}")[0] == 200
    view = hub.workspace(ann)
    assert (view["phase"], view["actions"]) == ("running", ["start"])
    assert kept(view) == ["current"]


def test_a_server_that_was_never_paused_is_an_ordinary_stopped_one(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    end(hub, ann)
    wait_for("a stopped server", lambda: hub.workspace(ann)["actions"] == ["start"])
    assert hub.workspace(ann)["phase"] == "running"
