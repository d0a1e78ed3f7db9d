"""A pause or a resume that does not come to pass: the server goes on, or the saved state is kept, and the reason is told."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from .running import RunningHub, wait_for

SETTINGS = {"spawner": {"pause_timeout": 3, "wait_timeout": 3, "restore_timeout": 5, "start_timeout": 2, "consecutive_failure_limit": 3}}
"""The Hub ends itself after three failures, and gives a start less time than a resume may wait for room, and than it may take then."""


def goes_on(hub: RunningHub, user: str, first: dict[str, object]) -> None:
    """The same process answers through the proxy."""
    hub.wait_ready(user)
    again = hub.count(user)
    assert (again["boot_id"], again["pid"]) == (first["boot_id"], first["pid"])


@pytest.mark.parametrize(
    ("faults", "code"), [({"save": "fail"}, "save_failed"), ({"save": "hang"}, "save_timeout"), ({"estimate": "disk_full"}, "disk_full")]
)
def test_a_server_goes_on_when_its_pause_fails_and_the_reason_is_told(hub: RunningHub, ann: str, faults: dict[str, str], code: str) -> None:
    hub.start_server(ann)
    first = hub.count(ann)
    hub.fault(**faults)
    status, answer = hub.ask("POST", ann, path="/pause", body={})
    assert (status, answer["phase"]) == (202, "preparing")
    view = hub.wait_phase("running", ann)
    assert view["reason"]["code"] == code
    assert view["reason"]["sentence"] in view["sentence"]
    assert "pause" in view["actions"]
    assert not view["snapshots"]
    goes_on(hub, ann, first)
    hub.fault()
    assert hub.pause(ann)["reason"] is None
    assert hub.resume(ann)["reason"] is None
    goes_on(hub, ann, first)


def test_a_server_lost_while_it_is_saved_is_never_called_paused(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.fault(save="lost")
    assert hub.ask("POST", ann, path="/pause", body={})[0] == 202
    view = hub.wait_phase("running", ann)
    assert view["reason"]["code"] == "server_lost"
    wait_for("the Hub to know it stopped", lambda: not hub.model(ann).get("ready"))
    hub.fault()
    wait_for("a stopped server", lambda: hub.workspace(ann)["actions"] == ["start"])
    assert "stopped" in hub.workspace(ann)["sentence"] or hub.workspace(ann)["reason"]["code"] == "server_lost"
    hub.start_server(ann)
    hub.pause(ann)


@pytest.mark.parametrize("held", ["preparing", "checkpointing", "saved"])
def test_a_pause_can_be_cancelled_until_the_server_is_being_removed(hub: RunningHub, ann: str, held: str) -> None:
    hub.start_server(ann)
    first = hub.count(ann)
    hub.fault(hold=held)
    hub.ask("POST", ann, path="/pause", body={})
    hub.wait_phase(held, ann)
    assert hub.verb("cancel", ann)[0] == 202
    hub.fault()
    view = hub.wait_phase("running", ann)
    assert view["reason"]["code"] == "cancelled"
    goes_on(hub, ann, first)


def test_a_cancel_that_comes_too_late_says_so(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.fault(hold="stopping")
    hub.ask("POST", ann, path="/pause", body={})
    hub.wait_phase("stopping", ann)
    status, answer = hub.verb("cancel", ann)
    assert (status, answer["reason"]) == (409, "too_late_to_cancel")
    hub.fault()
    hub.wait_phase("paused", ann)


def test_a_late_click_on_another_pause_changes_nothing(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.pause(ann)
    old = hub.pause_id(ann)
    hub.resume(ann)
    hub.pause(ann)
    for verb in ("cancel", "resume", "fresh", "retry", "accept"):
        status, answer = hub.verb(verb, ann, pause_id=old)
        assert (status, answer["reason"]) == (409, "wrong_pause")
    status, answer = hub.ask("DELETE", ann, path=f"/pause/{old}")
    assert (status, answer["reason"]) == (409, "wrong_pause")
    assert hub.workspace(ann)["phase"] == "paused"


@pytest.mark.parametrize(
    ("faults", "code"), [({"restore": "fail"}, "restore_failed"), ({"capacity": "not_enough_memory"}, "not_enough_memory")]
)
def test_a_resume_that_fails_keeps_the_saved_state_and_counts_as_no_failure_of_the_hub(
    hub: RunningHub, ann: str, faults: dict[str, str], code: str
) -> None:
    hub.start_server(ann)
    first = hub.count(ann)
    hub.pause(ann)
    rows = hub.rows("SELECT id FROM api_tokens ORDER BY id")
    hub.fault(**faults)
    for _ in range(5):
        status, answer = hub.ask("POST", ann)
        assert status in (202, 409), answer
        wait_for("the start to have ended", lambda: not hub.workspace(ann)["hub"]["pending"])
        view = hub.wait_phase("paused", ann)
        assert view["reason"]["code"] == code
        assert "resume" in view["actions"]
        assert hub.rows("SELECT id FROM api_tokens ORDER BY id") == rows
        if code == "not_enough_memory":
            break
    hub.fault()
    assert hub.resume(ann)["receipt"]["resumed"] is True
    goes_on(hub, ann, first)


def test_a_restore_may_take_longer_than_an_ordinary_start(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    first = hub.count(ann)
    hub.pause(ann)
    hub.fault(hold="restoring")
    hub.verb("resume", ann)
    hub.wait_phase("restoring", ann)
    begun = time.monotonic()
    wait_for("more than the limit of a start", lambda: time.monotonic() > begun + 3)
    assert hub.workspace(ann)["phase"] == "restoring"
    hub.fault()
    assert hub.wait_phase("running", ann)["receipt"]["resumed"] is True
    goes_on(hub, ann, first)


def test_a_silent_cold_start_is_unproven_and_the_snapshot_is_kept(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    first = hub.count(ann)
    hub.pause(ann)
    hub.fault(restore="fresh")
    hub.start_server(ann)
    view = hub.workspace(ann)
    assert view["phase"] == "unproven"
    assert view["reason"]["code"] == "silent_cold_start"
    assert view["receipt"]["resumed"] is False
    assert [s["state"] for s in view["snapshots"]] == ["unproven"]
    assert set(view["actions"]) >= {"retry", "accept", "stop", "open"}
    assert hub.count(ann)["boot_id"] != first["boot_id"]

    hub.restart()
    hub.wait_ready(ann)
    assert hub.workspace(ann)["phase"] == "unproven"

    assert hub.ask("DELETE", ann)[0] in (202, 204)
    hub.wait_phase("paused", ann)
    hub.start_server(ann)
    hub.wait_phase("unproven", ann)
    hub.fault()
    assert hub.verb("retry", ann)[0] == 202
    assert hub.wait_phase("running", ann)["receipt"]["resumed"] is True
    goes_on(hub, ann, first)


def test_an_unproven_server_can_be_kept_and_the_snapshot_then_discarded(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.pause(ann)
    hub.fault(restore="fresh")
    hub.start_server(ann)
    fresh = hub.count(ann)
    pause_id = hub.pause_id(ann)
    assert hub.verb("accept", ann)[0] == 200
    view = hub.workspace(ann)
    assert view["phase"] == "running"
    assert [s["state"] for s in view["snapshots"]] == ["unproven"]
    goes_on(hub, ann, fresh)
    assert hub.ask("DELETE", ann, path=f"/pause/{pause_id}")[0] == 200
    assert not hub.workspace(ann)["snapshots"]
    hub.fault()
    hub.pause(ann)
    hub.resume(ann)
    goes_on(hub, ann, fresh)


def test_an_unproven_server_that_ends_leaves_the_saved_state_paused(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    first = hub.count(ann)
    hub.pause(ann)
    hub.fault(restore="fresh")
    hub.start_server(ann)
    os.killpg(hub.count(ann)["pid"], signal.SIGKILL)
    hub.fault()
    hub.wait_phase("paused", ann)
    wait_for("the Hub to be done", lambda: not hub.workspace(ann)["hub"]["pending"])
    hub.resume(ann)
    goes_on(hub, ann, first)


def test_a_refused_start_says_why_in_a_header_too(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.pause(ann)
    hub.fault(restore="fail")
    answer = requests.post(f"{hub.url}/hub/api{hub.path(ann)}", headers={"Authorization": f"token {hub.user(ann)}"}, timeout=30)
    assert answer.status_code == 409
    assert answer.headers["X-Gke-Workspaces-Reason"] == "restore_failed"
    assert "could not be brought back" in answer.json()["message"]


def test_the_hub_s_own_progress_says_what_a_resume_waits_for(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.pause(ann)
    hub.fault(capacity="not_enough_memory")
    hub.verb("resume", ann)
    hub.wait_phase("waiting", ann)
    wait_for("what the machine says of it", lambda: hub.workspace(ann)["detail"] == "1 byte is free")
    url = f"{hub.url}/hub/api{hub.path(ann)}/progress"
    with requests.get(url, headers={"Authorization": f"token {hub.admin_token}"}, stream=True, timeout=30) as events:
        lines = [line for line in events.iter_lines() if line.startswith(b"data:")]
    text = b"".join(lines).decode()
    assert "Waiting for room" in text
    assert '"failed": true' in text
    assert hub.wait_phase("paused", ann)["reason"]["code"] == "not_enough_memory"


def test_many_calls_for_the_same_thing_are_one(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    first = hub.count(ann)
    hub.user(ann)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: hub.ask("POST", ann, path="/pause", body={}), range(6)))
    assert {status for status, _ in answers} == {202}
    assert len({answer["pause"]["id"] for _, answer in answers}) == 1
    hub.wait_phase("paused", ann)
    pause_id = hub.pause_id(ann)
    with ThreadPoolExecutor(6) as pool:
        starts = [("POST", ""), ("POST", f"/pause/{pause_id}/resume")] * 3
        answers = list(pool.map(lambda call: hub.ask(call[0], ann, path=call[1]), starts))
    assert all(status in (201, 202, 400, 409) for status, _ in answers), answers
    hub.wait_phase("running", ann)
    goes_on(hub, ann, first)
    assert hub.pid(ann) == first["pid"]


def test_resume_asked_during_a_pause_is_done_after_it(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    first = hub.count(ann)
    hub.fault(hold="checkpointing")
    hub.ask("POST", ann, path="/pause", body={})
    hub.wait_phase("checkpointing", ann)
    status, _ = hub.ask("POST", ann)  # the Hub's own start: refused while it stops, nothing breaks
    assert 400 <= status < 500
    status, answer = hub.verb("resume", ann)
    assert (status, answer["intent"]) == (202, "resume")
    hub.fault()
    view = hub.wait_phase("running", ann)
    assert view["receipt"]["resumed"] is True
    goes_on(hub, ann, first)


def test_pause_stop_and_start_at_once_have_one_winner(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    first = hub.count(ann)
    hub.user(ann)
    calls = [("POST", "/pause"), ("DELETE", ""), ("POST", "")]
    for attempt in range(4):
        with ThreadPoolExecutor(3) as pool:
            order = calls[attempt % 3 :] + calls[: attempt % 3]
            answers = list(pool.map(lambda c: hub.ask(c[0], ann, path=c[1]), order))
        assert all(status < 500 for status, _ in answers)
        wait_for("rest", lambda: not hub.workspace(ann)["hub"]["pending"] and hub.workspace(ann)["phase"] in ("running", "paused"))
        assert sum(len(p) for lineage, p in hub.pids().items() if lineage == hub.record(ann)["owner"]["lineage"]) <= 1
        if hub.workspace(ann)["phase"] == "paused":
            hub.resume(ann)
            goes_on(hub, ann, first)
        elif not hub.model(ann).get("ready"):
            hub.start_server(ann)
            first = hub.count(ann)
        else:
            first = hub.count(ann)


@pytest.mark.parametrize("when", ["start", "pause", "restore"])
def test_a_process_killed_by_somebody_else_ends_in_a_definite_state(hub: RunningHub, ann: str, when: str) -> None:
    """Bank of reports, 05."""
    hub.start_server(ann)
    if when == "start":
        os.killpg(hub.pid(ann), signal.SIGKILL)
        wait_for("a stopped server", lambda: not hub.model(ann).get("ready"))
        assert hub.workspace(ann)["actions"] == ["start"]
    elif when == "pause":
        hub.fault(hold="checkpointing")
        hub.ask("POST", ann, path="/pause", body={})
        hub.wait_phase("checkpointing", ann)
        os.killpg(hub.pid(ann), signal.SIGKILL)
        view = hub.wait_phase({"running", "paused"}, ann)
        assert view["reason"]["code"] in ("server_lost", "server_ended")
    else:
        hub.pause(ann)
        hub.fault(hold="restoring")
        hub.verb("resume", ann)
        hub.wait_phase("restoring", ann)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(hub.pid(ann), signal.SIGKILL)
        hub.fault()
        view = hub.wait_phase("paused", ann)
        assert view["reason"]
        assert len(view["snapshots"]) == 1
    hub.fault()
    wait_for("nothing to be pending", lambda: not hub.workspace(ann)["hub"]["pending"])


def test_the_states_seen_during_a_pause_come_in_order_and_the_hub_calls_it_stopping(hub: RunningHub, ann: str) -> None:
    """Bank of reports, 49."""
    hub.start_server(ann)
    seen: list[tuple[str, str | None, bool]] = []

    def look() -> bool:
        view = hub.workspace(ann)
        state = (view["phase"], view["hub"]["pending"], view["hub"]["ready"])
        if state not in seen:
            seen.append(state)
        return bool(view["phase"] == "paused")

    look()
    for held in ("preparing", "checkpointing", "saved", "stopping", ""):
        hub.fault(hold=held)
        if held == "preparing":
            hub.ask("POST", ann, path="/pause", body={})
        wait_for(held or "paused", lambda held=held: look() or seen[-1][0] == held)  # type: ignore[misc]
    assert seen == [
        ("running", None, True),
        ("preparing", "stop", False),
        ("checkpointing", "stop", False),
        ("saved", "stop", False),
        ("stopping", "stop", False),
        ("paused", None, False),
    ]
    assert hub.model(ann)["pending"] is None


def test_stop_leaves_a_paused_server_paused(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    first = hub.count(ann)
    hub.pause(ann)
    assert hub.ask("DELETE", ann)[0] in (202, 204)
    assert hub.workspace(ann)["phase"] == "paused"
    hub.resume(ann)
    goes_on(hub, ann, first)


def test_a_hub_that_stops_its_servers_at_its_end_lets_a_pause_finish(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    first = hub.count(ann)
    hub.fault(hold="checkpointing")
    hub.ask("POST", ann, path="/pause", body={})
    hub.wait_phase("checkpointing", ann)
    ended = hub.in_background(lambda: hub.call("POST", "/shutdown", {"servers": True, "proxy": False}, raw=True))
    ended.result(20)
    hub.fault()
    hub.wait_killed()
    hub.start()
    hub.wait_phase("paused", ann)
    hub.resume(ann)
    goes_on(hub, ann, first)


def test_nothing_of_all_this_was_an_unhandled_error(light_hub: RunningHub) -> None:
    assert "Traceback" not in light_hub.log
