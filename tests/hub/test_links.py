"""No start by navigation, no start by logging in: only a form that was posted or a call with a token resumes or replaces a server."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from .running import RunningHub, wait_for

OPTIONS = {"profile": "large"}
SETTINGS: dict[str, Any] = {"spawner": {"options_form": "<input name='profile'>"}}


def paused(hub: RunningHub, user: str, server: str = "") -> dict[str, Any]:
    """A paused server that was started with :data:`OPTIONS`."""
    assert hub.ask("POST", user, server, body={"user_options": OPTIONS} if hub.renames else OPTIONS)[0] in (201, 202)
    hub.wait_ready(user, server)
    first = hub.count(user, server)
    hub.pause(user, server)
    return first


def saved_options(hub: RunningHub, user: str) -> str:
    query = "SELECT user_options FROM spawners JOIN users ON users.id = spawners.user_id WHERE users.name = ? AND spawners.name = ''"
    return str(hub.rows(query, user)[0][0])


def post_form(hub: RunningHub, browser: requests.Session, path: str, fields: dict[str, str]) -> requests.Response:
    """Post the Hub's spawn form as a browser does, with the XSRF token of its page."""
    page = browser.get(hub.url + path, timeout=30)
    assert page.status_code == 200
    token = browser.cookies.get("_xsrf", path="/hub/")
    return browser.post(f"{hub.url}{path}?_xsrf={token}", data=fields, timeout=60)


@pytest.mark.parametrize("query", ["", "?opt-x=1", "?x=1", "?opt-gke_workspaces=fresh", "?gke_workspaces=resume", "?next=/hub/home"])
def test_a_link_never_starts_a_paused_server_nor_replaces_its_options(hub: RunningHub, ann: str, query: str) -> None:
    first = paused(hub, ann)
    before, options = hub.workspace(ann), saved_options(hub, ann)
    browser = hub.browser(ann)
    for path in (f"/hub/spawn/{ann}{query}", f"/hub/spawn{query}", f"/user/{ann}/lab{query}", f"/hub/user/{ann}/{query}"):
        answer = browser.get(hub.url + path, timeout=60)
        assert answer.status_code < 500, path
        after = hub.workspace(ann)
        assert {k: after[k] for k in ("phase", "intent", "pause", "snapshots")} == {
            k: before[k] for k in ("phase", "intent", "pause", "snapshots")
        }, path
        assert saved_options(hub, ann) == options, path
        assert not after["hub"]["pending"], path
    assert hub.record(ann)["extra"].get("minted_id") is None
    hub.resume(ann)
    assert hub.count(ann)["pid"] == first["pid"]
    assert saved_options(hub, ann) == options


def test_logging_in_starts_nothing_and_shows_the_paused_form(hub: RunningHub, ann: str) -> None:
    paused(hub, ann)
    browser = hub.browser(ann)
    answer = browser.get(f"{hub.url}/hub/", timeout=60)
    assert answer.status_code == 200
    assert 'name="gke_workspaces"' in browser.get(f"{hub.url}/hub/spawn/{ann}", timeout=60).text
    assert hub.workspace(ann)["phase"] == "paused"


def test_the_resume_button_of_the_form_resumes_with_the_options_of_that_time(hub: RunningHub, ann: str) -> None:
    first = paused(hub, ann)
    options = saved_options(hub, ann)
    answer = post_form(hub, hub.browser(ann), f"/hub/spawn/{ann}", {"gke_workspaces": "resume", "profile": "small"})
    assert answer.status_code < 500
    hub.wait_ready(ann)
    assert hub.wait_phase("running", ann)["receipt"]["resumed"] is True
    assert hub.count(ann)["pid"] == first["pid"]
    assert saved_options(hub, ann) == options


def test_the_fresh_button_of_the_form_starts_fresh_with_the_form_s_options(hub: RunningHub, ann: str) -> None:
    first = paused(hub, ann)
    answer = post_form(hub, hub.browser(ann), f"/hub/spawn/{ann}", {"gke_workspaces": "fresh", "profile": "small"})
    assert answer.status_code < 500
    hub.wait_ready(ann)
    view = hub.wait_phase("running", ann)
    assert [s["state"] for s in view["snapshots"]] == ["superseded"]
    assert hub.count(ann)["boot_id"] != first["boot_id"]
    assert "small" in saved_options(hub, ann)
    assert "gke_workspaces" not in saved_options(hub, ann)


def test_a_form_without_a_token_of_the_page_does_nothing(hub: RunningHub, ann: str) -> None:
    paused(hub, ann)
    browser = hub.browser(ann)
    for button in ("resume", "fresh"):
        answer = browser.post(f"{hub.url}/hub/spawn/{ann}", data={"gke_workspaces": button}, timeout=30)
        assert answer.status_code == 403
    assert hub.workspace(ann)["phase"] == "paused"
    assert hub.workspace(ann)["intent"] == "none"


def test_a_fresh_start_that_the_hub_refused_does_not_make_a_later_start_fresh(hub: RunningHub, ann: str) -> None:
    first = paused(hub, ann)
    rows = hub.rows("SELECT id FROM api_tokens ORDER BY id")
    hub.fault(refuse_start="yes")
    status, answer = hub.verb("fresh", ann, body={"user_options": {"profile": "small"}})
    assert 400 <= status < 500, answer
    assert answer["reason"]
    assert hub.rows("SELECT id FROM api_tokens ORDER BY id") == rows
    wait_for("the wish to be forgotten", lambda: hub.workspace(ann)["intent"] == "none")
    hub.fault()
    hub.resume(ann)
    assert hub.count(ann)["pid"] == first["pid"]


def test_resume_by_a_call_with_other_options_brings_the_old_ones_back(hub: RunningHub, ann: str) -> None:
    first = paused(hub, ann)
    options = saved_options(hub, ann)
    assert hub.ask("POST", ann, body={"profile": "small"})[0] in (201, 202)
    hub.wait_phase("running", ann)
    hub.wait_ready(ann)
    assert hub.count(ann)["pid"] == first["pid"]
    assert saved_options(hub, ann) == options


def test_a_program_is_told_that_the_server_is_paused(hub: RunningHub, ann: str) -> None:
    """Bank of reports, 35."""
    paused(hub, ann)
    for method, path in (("GET", "api/status"), ("POST", "api/kernels"), ("GET", "api/kernels/x/channels")):
        answer = requests.request(
            method, f"{hub.url}/user/{ann}/{path}", headers={"Authorization": f"token {hub.user(ann)}"}, allow_redirects=False, timeout=30
        )
        assert answer.status_code == 424
        assert answer.json()["reason"] == "paused"
        assert "paused" in answer.json()["message"].lower()
    assert hub.workspace(ann)["phase"] == "paused"
    nobody = requests.post(f"{hub.url}/user/{ann}/api/kernels", allow_redirects=False, timeout=30)
    assert "paused" not in nobody.text.lower()


def test_nothing_of_all_this_was_an_unhandled_error(light_hub: RunningHub) -> None:
    errors = [line for line in light_hub.log.splitlines() if " 500 " in line or "Uncaught exception" in line]
    assert not errors
