"""Every call in every phase over REST: the table of the lifecycle, as callers meet it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gke_workspaces_spawner.lifecycle.phases import CALLS, PAUSE_UNDER_WAY, RESUME_UNDER_WAY, Call, Outcome, Phase

from .running import Answer, RunningHub, wait_for

SETTINGS = {"spawner": {"wait_timeout": 120}}

HOLDS: dict[Phase, dict[str, str]] = {
    Phase.RUNNING: {},
    Phase.PREPARING: {"hold": "preparing"},
    Phase.CHECKPOINTING: {"hold": "checkpointing"},
    Phase.SAVED: {"hold": "saved"},
    Phase.STOPPING: {"hold": "stopping"},
    Phase.PAUSED: {},
    Phase.WAITING: {"capacity": "not_enough_memory"},
    Phase.RESTORING: {"hold": "restoring"},
    Phase.UNPROVEN: {"restore": "fresh"},
    Phase.DELETING: {"hold": "deleting"},
}
"""Faults of the engine that hold a workspace in a phase."""


def bring_to(hub: RunningHub, user: str, server: str, phase: Phase) -> str:
    """A server in that phase; the id of its pause (in ``running``: of the one that is over, whose snapshot is kept)."""
    hub.fault()
    hub.start_server(user, server)
    if phase in PAUSE_UNDER_WAY:
        hub.fault(**HOLDS[phase])
        assert hub.ask("POST", user, server, "/pause", {})[0] == 202
        hub.wait_phase(phase.value, user, server)
        return hub.pause_id(user, server)
    hub.pause(user, server)
    pause_id = hub.pause_id(user, server)
    hub.fault(**HOLDS[phase])
    if phase is Phase.RUNNING:
        hub.resume(user, server)
    elif phase in RESUME_UNDER_WAY | {Phase.UNPROVEN}:
        assert hub.verb("resume", user, server)[0] == 202
        hub.wait_phase(phase.value, user, server)
        if phase is Phase.WAITING:
            wait_for("the start to step out", lambda: not hub.workspace(user, server)["hub"]["pending"])
    elif phase is Phase.DELETING:
        hub.in_background(lambda: hub.ask("DELETE", user, server, f"/pause/{pause_id}"))
        hub.wait_phase(phase.value, user, server)
    if phase is Phase.UNPROVEN:
        hub.wait_ready(user, server)
    return pause_id


CALLERS: dict[Call, Callable[[RunningHub, str, str, str], Answer]] = {
    Call.START: lambda hub, user, server, pause_id: hub.verb("resume", user, server, pause_id),
    Call.STOP: lambda hub, user, server, pause_id: hub.ask("DELETE", user, server),
    Call.PAUSE: lambda hub, user, server, pause_id: hub.ask("POST", user, server, "/pause", {}),
    Call.CANCEL: lambda hub, user, server, pause_id: hub.verb("cancel", user, server, pause_id),
    Call.FRESH: lambda hub, user, server, pause_id: hub.verb("fresh", user, server, pause_id),
    Call.RETRY: lambda hub, user, server, pause_id: hub.verb("retry", user, server, pause_id),
    Call.ACCEPT: lambda hub, user, server, pause_id: hub.verb("accept", user, server, pause_id),
    Call.DISCARD: lambda hub, user, server, pause_id: hub.ask("DELETE", user, server, f"/pause/{pause_id}"),
    Call.DELETE: lambda hub, user, server, pause_id: hub.ask("DELETE", user, server, "", {"remove": True}),
    Call.RENAME: lambda hub, user, server, pause_id: hub.ask("PATCH", user, server, "", {"name": "renamed"}),
}
OURS = frozenset({Call.PAUSE, Call.CANCEL, Call.FRESH, Call.RETRY, Call.ACCEPT, Call.DISCARD})
"""Calls that our own handlers answer; the others are the Hub's own."""

ENDS: dict[tuple[Call, Phase], str] = {
    (Call.START, Phase.PREPARING): "running",
    (Call.START, Phase.CHECKPOINTING): "running",
    (Call.START, Phase.SAVED): "running",
    (Call.START, Phase.STOPPING): "running",
    (Call.START, Phase.PAUSED): "running",
    (Call.START, Phase.WAITING): "running",
    (Call.START, Phase.RESTORING): "running",
    (Call.STOP, Phase.WAITING): "paused",
    (Call.STOP, Phase.RESTORING): "paused",
    (Call.STOP, Phase.UNPROVEN): "paused",
    (Call.STOP, Phase.PAUSED): "paused",
    (Call.PAUSE, Phase.RUNNING): "paused",
    (Call.PAUSE, Phase.PAUSED): "paused",
    (Call.CANCEL, Phase.PREPARING): "running",
    (Call.CANCEL, Phase.CHECKPOINTING): "running",
    (Call.CANCEL, Phase.SAVED): "running",
    (Call.CANCEL, Phase.WAITING): "paused",
    (Call.CANCEL, Phase.RESTORING): "paused",
    (Call.FRESH, Phase.PAUSED): "running",
    (Call.RETRY, Phase.UNPROVEN): "running",
    (Call.ACCEPT, Phase.UNPROVEN): "running",
    (Call.DISCARD, Phase.PAUSED): "running",
    (Call.DISCARD, Phase.RUNNING): "running",
    (Call.DISCARD, Phase.DELETING): "running",
}
"""Where it comes to rest when the phase is no longer held."""


@pytest.mark.parametrize("phase", list(Phase), ids=lambda p: p.value)
@pytest.mark.parametrize("call", list(Call), ids=lambda c: c.value)
def test_a_call_is_answered_as_the_table_says(hub: RunningHub, ann: str, call: Call, phase: Phase) -> None:
    server = "lab" if call in (Call.DELETE, Call.RENAME) else ""
    if call is Call.RENAME and not hub.renames:
        return
    pause_id = bring_to(hub, ann, server, phase)
    before = hub.workspace(ann, server)
    answered = hub.in_background(lambda: CALLERS[call](hub, ann, server, pause_id))
    if phase is Phase.DELETING and call in (Call.DISCARD, Call.DELETE):  # they wait for the deletion that is under way
        with pytest.raises(TimeoutError):
            answered.result(0.5)
        hub.fault()
    status, answer = answered.result(60)
    expected = CALLS[call][phase]
    assert status < 500, answer
    if call in OURS and expected.outcome is Outcome.REFUSE:
        assert (status, answer["reason"]) == (409, expected.reason)
        assert answer["message"]
    elif call in OURS | {Call.START} and not (call is Call.START and phase is Phase.RUNNING):
        if expected.outcome is Outcome.REFUSE:
            assert (status, answer["reason"]) == (409, expected.reason)
        else:
            assert status in (200, 202), answer
    if expected.outcome is Outcome.REFUSE:
        after = hub.workspace(ann, server)
        assert {k: after[k] for k in ("phase", "intent", "revision", "pause", "snapshots")} == {
            k: before[k] for k in ("phase", "intent", "revision", "pause", "snapshots")
        }
    hub.fault()
    if (call, phase) in ENDS:
        view = hub.wait_phase(ENDS[call, phase], ann, server)
        assert view["reason"] is None or view["reason"]["code"] in {"cancelled", "resume_stopped"}
        if view["phase"] == "running" and call is not Call.DISCARD:
            hub.wait_ready(ann, server)
    if call is Call.DELETE:
        wait_for("the server to be gone", lambda: not hub.model(ann, server))
        assert not list((hub.folder / "state" / "snapshots").glob(f"*{pause_id}*"))


@pytest.mark.parametrize("phase", list(Phase), ids=lambda p: p.value)
def test_every_page_of_the_hub_answers_in_every_phase_and_changes_nothing(hub: RunningHub, ann: str, phase: Phase) -> None:
    bring_to(hub, ann, "", phase)
    before = hub.workspace(ann)
    browser = hub.browser(ann)
    for path in (
        "/hub/home",
        f"/hub/spawn/{ann}",
        f"/hub/spawn-pending/{ann}",
        "/hub/workspaces",
        f"/hub/workspaces/{ann}",
        f"/user/{ann}/api",
    ):
        answer = browser.get(hub.url + path, timeout=30, allow_redirects=False)
        assert answer.status_code < 500, path
    after = hub.workspace(ann)
    assert {k: after[k] for k in ("phase", "intent", "pause", "snapshots", "hub")} == {
        k: before[k] for k in ("phase", "intent", "pause", "snapshots", "hub")
    }


def test_nothing_of_all_this_was_an_unhandled_error(light_hub: RunningHub) -> None:
    assert "Uncaught exception" not in light_hub.log
    assert " 500 " not in light_hub.log
