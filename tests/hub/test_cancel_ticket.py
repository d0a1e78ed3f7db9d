"""The ticket with which the JupyterLab tab that asked for a pause cancels it: that pause, nothing else, and no cookie helps."""

from __future__ import annotations

from typing import Any

import requests

from .running import RunningHub


def pause(hub: RunningHub, user: str, server: str = "", phase: str = "checkpointing") -> dict[str, Any]:
    """A pause that is held in that phase, as its POST was answered."""
    hub.fault(hold=phase)
    status, answer = hub.ask("POST", user, server, "/pause", {})
    assert status == 202
    hub.wait_phase(phase, user, server)
    cancel: dict[str, Any] = answer["cancel"]
    return cancel


def hand_in(hub: RunningHub, url: str, ticket: object, session: requests.Session | None = None) -> requests.Response:
    return (session or requests.Session()).post(hub.url + url, json={"ticket": ticket}, timeout=30)


def test_a_tab_without_any_login_cancels_its_own_pause(hub: RunningHub, ann: str) -> None:
    for server in ("", "lab-two"):
        hub.start_server(ann, server)
        cancel = pause(hub, ann, server)
        answer = hand_in(hub, cancel["url"], cancel["ticket"])
        assert (answer.status_code, answer.json()) == (202, {"status": 202})
        assert answer.headers["Cache-Control"] == "no-store"
        hub.fault()
        assert hub.wait_phase("running", ann, server)["reason"]["code"] == "cancelled"


def test_only_the_ticket_of_that_very_pause_fits(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.start_server(ann, "lab")
    first, other = pause(hub, ann), pause(hub, ann, "lab")
    nobody = first["url"].replace(f"/{ann}/", "/nobody/")
    owner = hub.browser(ann)
    for url, ticket in (
        (first["url"], other["ticket"]),
        (other["url"], first["ticket"]),
        (first["url"], ""),
        (first["url"], None),
        (first["url"], "é" * 64),
        (nobody, first["ticket"]),
        (first["url"].replace(hub.pause_id(ann), "p1"), first["ticket"]),
    ):
        for session in (None, owner):
            answer = hand_in(hub, url, ticket, session)
            assert (answer.status_code, answer.json()["reason"]) == (403, "not_allowed")
    assert hub.call("POST", first["url"].removeprefix("/hub/api"), {"ticket": "x"})[0] == 403, "not by a token of an admin either"
    assert [hub.workspace(ann, server)["intent"] for server in ("", "lab")] == ["none", "none"]
    hub.fault()
    hub.wait_phase("paused", ann)
    hub.wait_phase("paused", ann, "lab")


def test_the_ticket_is_worthless_when_its_pause_is_over(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    cancel = pause(hub, ann)
    hub.fault()
    hub.wait_phase("paused", ann)
    late = hand_in(hub, cancel["url"], cancel["ticket"])
    assert (late.status_code, late.json()["reason"]) == (409, "nothing_to_cancel")
    assert "too late to cancel" in late.json()["message"]
    hub.fault(hold="restoring")
    assert hub.verb("resume", ann)[0] == 202
    hub.wait_phase("restoring", ann)
    assert hand_in(hub, cancel["url"], cancel["ticket"]).json()["reason"] == "nothing_to_cancel", "a resume is not the tab's to stop"
    hub.fault()
    hub.wait_phase("running", ann)
    hub.wait_ready(ann)
    again = pause(hub, ann)
    assert again["ticket"] != cancel["ticket"]
    assert hand_in(hub, cancel["url"], cancel["ticket"]).json()["reason"] == "wrong_pause"
    hub.fault()
    hub.wait_phase("paused", ann)


def test_the_ticket_stands_in_the_answer_to_the_pause_and_nowhere_else(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    cancel = pause(hub, ann)
    assert "cancel" not in hub.workspace(ann)
    followed = hub.browser(ann).get(f"{hub.url}/hub/workspaces/follow/{ann}", timeout=30)
    assert followed.json()["phase"] == "checkpointing"
    assert cancel["ticket"] not in followed.text
    assert cancel["ticket"] not in hub.log
    assert hub.ask("POST", ann, "", "/pause", {})[1]["cancel"] == cancel, "who joins the pause may cancel it"
    hub.fault()
    hub.wait_phase("paused", ann)
    assert "cancel" not in hub.ask("POST", ann, "", "/pause", {})[1]
    assert cancel["ticket"] not in hub.log
