"""A resume without room at once waits outside of the Hub's start: it takes no place of another's, and comes back by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import requests

from gke_workspaces_spawner.lifecycle.reasons import reason

from .running import RunningHub, wait_for

SETTINGS = {
    "hub": {"concurrent_spawn_limit": 1},
    "spawner": {"wait_timeout": 600, "consecutive_failure_limit": 2},
}
NO_ROOM = {"capacity": "not_enough_memory"}
SCOPES = "SELECT t.scopes FROM api_tokens t JOIN users u ON u.id = t.user_id WHERE u.name = ? AND t.note LIKE 'Server at%'"
TOKENS = "SELECT t.id FROM api_tokens t JOIN users u ON u.id = t.user_id WHERE u.name = ? AND t.note LIKE 'Server at%'"


def paused(hub: RunningHub, user: str, server: str = "") -> dict[str, Any]:
    """A paused server; what it counted before."""
    hub.start_server(user, server)
    first = hub.count(user, server)
    hub.pause(user, server)
    return first


def outside(hub: RunningHub, user: str, server: str = "") -> dict[str, Any]:
    """Its resume, asked for and out of the Hub's start again."""
    assert hub.ask("POST", user, server)[0] == 202
    view = hub.wait_phase("waiting", user, server)
    wait_for("the start to have ended", lambda: not hub.workspace(user, server)["hub"]["pending"])
    return view


def came_back(hub: RunningHub, user: str, first: dict[str, Any], server: str = "") -> dict[str, Any]:
    """It is the paused process, and its receipt says so."""
    hub.wait_ready(user, server)
    view = hub.wait_phase("running", user, server)
    assert view["receipt"]["resumed"] is True
    assert {**hub.count(user, server), "count": 0} == {**first, "count": 0}
    return view


def test_who_waits_for_room_takes_no_place_of_another_and_comes_back_by_itself(hub: RunningHub, ann: str) -> None:
    first = paused(hub, ann)
    rows = hub.rows(TOKENS, ann)
    hub.fault(**NO_ROOM)
    asked = time.time()
    outside(hub, ann)
    view = hub.workspace(ann)
    assert reason("not_enough_memory").sentence in view["sentence"]
    assert view["detail"] == "1 byte is free"
    assert (view["hub"]["ready"], view["hub"]["pending"]) == (False, None)
    assert "cancel" in view["actions"]
    assert hub.model(ann).get("ready") is not True
    assert hub.model(ann).get("pending") is None
    assert hub.rows(TOKENS, ann) == rows, "no token of the start is left"
    assert hub.rows(SCOPES, ann) == [("[]",)], "the token of what is paused is asleep"

    other = f"{ann}-other"
    hub.start_server(other)  # there is one place for all starts
    assert hub.workspace(ann)["phase"] == "waiting"
    hub.fault()
    view = came_back(hub, ann, first)
    assert view["receipt"]["seconds"]["waiting"] >= 5 - 1
    assert view["receipt"]["seconds"]["waiting"] <= time.time() - asked
    assert hub.rows(TOKENS, ann) == rows
    assert hub.record(ann)["extra"].keys() == {"token_id", "address", "options"}


def test_each_start_call_during_the_wait_is_told_so_and_begins_nothing(hub: RunningHub, ann: str) -> None:
    first = paused(hub, ann)
    hub.fault(**NO_ROOM)
    outside(hub, ann)
    before = hub.workspace(ann)
    rows = hub.rows("SELECT id FROM api_tokens ORDER BY id")
    for _ in range(4):
        answer = requests.post(f"{hub.url}/hub/api{hub.path(ann)}", headers={"Authorization": f"token {hub.user(ann)}"}, timeout=30)
        assert answer.status_code == 202
        assert answer.headers["X-Gke-Workspaces-Reason"] == "waiting_for_room"
        assert "comes back by itself" in answer.json()["message"]
        assert hub.verb("resume", ann)[0] == 202
    status, answer = hub.ask("POST", ann, body={"something": "else"})
    assert status == 202, answer
    after = hub.workspace(ann)
    assert {k: after[k] for k in ("phase", "since", "revision", "pause")} == {k: before[k] for k in ("phase", "since", "revision", "pause")}
    assert hub.rows("SELECT id FROM api_tokens ORDER BY id") == rows
    hub.fault()
    came_back(hub, ann, first)
    assert "something" not in hub.model(ann)["user_options"]


def test_a_hub_that_starts_as_many_as_it_may_is_asked_again(hub: RunningHub, ann: str) -> None:
    first = paused(hub, ann)
    hub.fault(**NO_ROOM)
    outside(hub, ann)
    other = f"{ann}-other"
    hub.fault(hold="starting", **NO_ROOM)
    hub.user(other)
    hub.in_background(lambda: hub.ask("POST", other))
    wait_for("another's start", lambda: hub.model(other).get("pending") == "spawn")
    hub.fault(hold="starting")
    wait_for("the reason", lambda: reason("too_many").sentence in hub.workspace(ann)["sentence"])
    assert hub.workspace(ann)["phase"] == "waiting"
    hub.fault()
    hub.wait_ready(other)
    came_back(hub, ann, first)


def ended(hub: RunningHub, user: str, first: dict[str, Any], codes: set[str]) -> None:
    """The wait has come to nothing, nothing is lost, and nothing comes back by itself later."""
    view = hub.wait_phase("paused", user)
    assert view["reason"]["code"] in codes
    assert len(view["snapshots"]) == 1
    hub.fault()
    hub.call("POST", "/workspaces/kick", raw=True)
    time.sleep(2.5)  # longer than the wait looks for room
    assert hub.workspace(user)["phase"] == "paused"
    assert not hub.workspace(user)["hub"]["pending"]
    hub.resume(user)
    came_back(hub, user, first)


def test_a_cancel_ends_the_wait(hub: RunningHub, ann: str) -> None:
    first = paused(hub, ann)
    hub.fault(**NO_ROOM)
    outside(hub, ann)
    assert hub.verb("cancel", ann)[0] == 202
    ended(hub, ann, first, {"cancelled"})


def test_a_cancel_while_the_hub_is_about_to_start_it_restores_nothing(hub: RunningHub, ann: str) -> None:
    first = paused(hub, ann)
    rows = hub.rows(TOKENS, ann)
    hub.fault(**NO_ROOM)
    outside(hub, ann)
    hub.fault(hold="hook")
    wait_for("the Hub's start", lambda: hub.workspace(ann)["hub"]["pending"] == "spawn")
    assert hub.workspace(ann)["phase"] == "waiting"
    assert hub.verb("cancel", ann)[0] == 202
    hub.wait_phase("paused", ann)
    assert hub.workspace(ann)["hub"]["pending"] == "spawn", "the hook still holds it"
    hub.fault()
    wait_for("the start to have ended", lambda: not hub.workspace(ann)["hub"]["pending"])
    assert hub.rows(TOKENS, ann) == rows
    ended(hub, ann, first, {"cancelled"})


def test_a_stop_ends_the_wait_though_there_is_nothing_to_stop(hub: RunningHub, ann: str) -> None:
    first = paused(hub, ann)
    hub.fault(**NO_ROOM)
    outside(hub, ann)
    assert hub.ask("DELETE", ann)[0] == 204
    ended(hub, ann, first, {"cancelled"})


def test_a_stop_in_the_first_seconds_ends_the_start_and_the_wait(hub: RunningHub, ann: str) -> None:
    first = paused(hub, ann)
    hub.fault(**NO_ROOM)
    assert hub.verb("resume", ann)[0] == 202
    assert hub.wait_phase("waiting", ann)["hub"]["pending"] == "spawn"
    assert hub.ask("DELETE", ann)[0] in (202, 204)
    ended(hub, ann, first, {"resume_stopped", "cancelled"})


def test_a_hub_that_is_killed_during_the_wait_finds_it_paused(hub: RunningHub, ann: str) -> None:
    first = paused(hub, ann)
    rows = hub.rows(TOKENS, ann)
    hub.fault(**NO_ROOM)
    outside(hub, ann)
    hub.restart()
    ended(hub, ann, first, {"hub_restarted"})
    assert hub.rows(TOKENS, ann) == rows


def test_a_start_that_is_refused_when_there_is_room_leaves_it_paused_with_the_reason(hub: RunningHub, ann: str) -> None:
    first = paused(hub, ann)
    rows = hub.rows("SELECT id FROM api_tokens ORDER BY id")
    for _ in range(3):  # more often than the Hub lets itself fail
        hub.fault(**NO_ROOM)
        outside(hub, ann)
        hub.fault(refuse_start="yes")
        view = hub.wait_phase("paused", ann)
        assert view["reason"]["code"] == "not_allowed"
        wait_for("nothing to be pending", lambda: not hub.workspace(ann)["hub"]["pending"])
        assert hub.rows("SELECT id FROM api_tokens ORDER BY id") == rows
    hub.fault()
    hub.resume(ann)
    came_back(hub, ann, first)


def gone(hub: RunningHub, user: str, server: str, remove: Callable[[], Any]) -> None:
    pause_id = hub.pause_id(user, server)
    remove()
    wait_for("its snapshot to be gone", lambda: not list((hub.folder / "state" / "snapshots").glob(f"*{pause_id}*")))


def test_a_server_that_waits_can_be_deleted_and_so_can_its_user(hub: RunningHub, ann: str) -> None:
    paused(hub, ann, "lab")
    hub.fault(**NO_ROOM)
    outside(hub, ann, "lab")
    gone(hub, ann, "lab", lambda: hub.ask("DELETE", ann, "lab", "", {"remove": True}))
    assert not hub.model(ann, "lab")
    hub.fault()
    paused(hub, ann)
    hub.fault(**NO_ROOM)
    outside(hub, ann)
    gone(hub, ann, "", lambda: hub.call("DELETE", f"/users/{ann}"))
    hub.forget_user(ann)
    assert hub.call("GET", f"/users/{ann}")[0] == 404


# ---------------------------------------------------------------- browsers


def press_resume(hub: RunningHub, browser: requests.Session) -> requests.Response:
    """The Paused form's button, as a browser without scripts presses it."""
    browser.get(f"{hub.url}/hub/spawn", timeout=30)
    xsrf = browser.cookies.get("_xsrf", path="/hub/")
    return browser.post(
        f"{hub.url}/hub/spawn", params={"_xsrf": xsrf}, data={"gke_workspaces": "resume"}, allow_redirects=False, timeout=30
    )


def test_who_presses_resume_lands_on_the_servers_page(hub: RunningHub, ann: str) -> None:
    first = paused(hub, ann)
    hub.fault(**NO_ROOM)
    browser = hub.browser(ann)
    answer = press_resume(hub, browser)
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith(f"/hub/spawn-pending/{ann}")
    page = browser.get(f"{hub.url}/hub/spawn-pending/{ann}", timeout=30)
    assert 'data-gke-workspaces="starting"' in page.text
    wait_for("the start to have ended", lambda: not hub.workspace(ann)["hub"]["pending"])
    page = browser.get(f"{hub.url}/hub/spawn-pending/{ann}", timeout=30)
    assert f'http-equiv="refresh" content="0; url=/hub/workspaces/{ann}"' in page.text

    answer = press_resume(hub, browser)
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/hub/workspaces/{ann}")
    assert browser.get(f"{hub.url}{answer.headers['Location']}", timeout=30).status_code == 200
    hub.fault()
    came_back(hub, ann, first)


def test_nothing_of_all_this_was_an_unhandled_error(light_hub: RunningHub) -> None:
    assert "Uncaught exception" not in light_hub.log
    assert " 500 " not in light_hub.log
