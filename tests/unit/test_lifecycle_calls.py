"""Every call in every phase is answered by one table, and what begins something holds to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gke_workspaces_spawner.lifecycle import resuming
from gke_workspaces_spawner.lifecycle.model import Intent, Key, Move, Owner, Pause, SnapshotRef, SnapshotState, Workspace, apply
from gke_workspaces_spawner.lifecycle.pausing import begin_pause
from gke_workspaces_spawner.lifecycle.phases import CALLS, ENDED_BY_SAVE, MOVES, Answer, Call, Outcome, Phase, calls_markdown
from gke_workspaces_spawner.lifecycle.reasons import Conflict, table
from gke_workspaces_spawner.lifecycle.steps import answered, names_pause, remembered
from gke_workspaces_spawner.lifecycle.words import actions, call_answer

WANTED = """
                start     stop   pause  cancel    fresh  retry  accept discard delete rename
running         do        do     do     no        no     no     no     do      do     do
preparing       remember  no     join   remember  no     no     no     no      remember no
checkpointing   remember  no     join   remember  no     no     no     no      remember no
saved           remember  no     join   remember  no     no     no     no      remember no
stopping        remember  join   join   no        no     no     no     no      remember no
paused          do        join   join   no        do     no     no     do      do     no
waiting         join      do     no     remember  no     no     no     no      do     no
restoring       join      do     no     remember  no     no     no     no      do     no
unproven        no        do     no     no        no     do     do     no      do     no
deleting        no        join   no     no        no     no     no     join    do     no
"""

OUTCOMES = {"do": Outcome.DO, "join": Outcome.JOIN, "remember": Outcome.REMEMBER, "no": Outcome.REFUSE}


def cells() -> list[tuple[Call, Phase, Outcome]]:
    head, *rows = [line.split() for line in WANTED.strip().splitlines()]
    return [(Call(call), Phase(row[0]), OUTCOMES[word]) for row in rows for call, word in zip(head, row[1:], strict=True)]


def in_phase(phase: Phase, intent: Intent = Intent.NONE) -> Workspace:
    snapshot = SnapshotRef("s-p1", "p1", SnapshotState.CURRENT, 1, 0.0, None)
    pause = None if phase is Phase.RUNNING else Pause("p1", snapshot_id="s-p1")
    return Workspace(Key("ann"), Owner(1, "aa"), phase, pause=pause, shelf=(snapshot,), intent=intent)


def test_no_cell_is_missing() -> None:
    assert {(call, phase) for call in Call for phase in Phase} == {(call, phase) for call, phase, _ in cells()}
    assert all(phase in CALLS[call] for call in Call for phase in Phase)


@pytest.mark.parametrize(("call", "phase", "outcome"), cells(), ids=lambda v: v.value)
def test_a_call_is_answered_as_the_table_says(call: Call, phase: Phase, outcome: Outcome) -> None:
    workspace = in_phase(phase)
    if outcome is Outcome.REFUSE:
        with pytest.raises(Conflict) as refused:
            call_answer(call.value, workspace)
        assert refused.value.code == CALLS[call][phase].reason
        assert 400 <= table()[refused.value.code].status < 500
    else:
        answer = call_answer(call, workspace)
        assert answer.outcome is outcome
        assert answer.note
        assert (outcome is not Outcome.REMEMBER) or (answer.intent is Intent.NONE) is (call is Call.DELETE)  # which the Hub remembers


BEGIN: dict[Call, tuple[Phase, Callable[[Workspace], Move]]] = {
    Call.PAUSE: (Phase.RUNNING, lambda w: begin_pause(w, 1.0, "p2", "hub")),
    Call.START: (Phase.PAUSED, lambda w: resuming.begin_resume(w, 1.0, "hub")),
    Call.FRESH: (Phase.PAUSED, lambda w: resuming.begin_fresh(w, 1.0)),
    Call.DISCARD: (Phase.PAUSED, lambda w: resuming.begin_discard(w, 1.0)),
    Call.RETRY: (Phase.UNPROVEN, resuming.retry),
    Call.ACCEPT: (Phase.UNPROVEN, resuming.accept),
}


@pytest.mark.parametrize("call", BEGIN)
@pytest.mark.parametrize("phase", Phase)
def test_what_begins_something_holds_to_the_table(call: Call, phase: Phase) -> None:
    where, begin = BEGIN[call]
    workspace = in_phase(phase)
    if phase is not where:
        with pytest.raises(Conflict):
            begin(workspace)
        return
    assert CALLS[call][phase].outcome is Outcome.DO
    move = begin(workspace)
    assert move.to is phase or move.to in MOVES[phase]
    assert workspace.snapshot("s-p1") is not None
    assert apply(workspace, move, 2.0).snapshot("s-p1") is not None, "no call by itself takes a snapshot off the shelf"


@pytest.mark.parametrize("phase", Phase)
def test_a_stop_that_ends_a_resume_leads_back_to_paused(phase: Phase) -> None:
    workspace = in_phase(phase)
    if phase not in (Phase.WAITING, Phase.RESTORING, Phase.UNPROVEN):
        with pytest.raises(Conflict):
            resuming.interrupted(workspace)
        return
    after = apply(workspace, resuming.interrupted(workspace), 2.0)
    assert after.phase is Phase.PAUSED
    assert after.snapshot("s-p1") is not None
    assert after.pause is not None
    assert after.pause.reason == "resume_stopped"


def test_a_retry_survives_the_stop_that_it_needs() -> None:
    workspace = in_phase(Phase.UNPROVEN, Intent.RETRY)
    assert resuming.interrupted(workspace).intent is Intent.RETRY
    assert resuming.interrupted(in_phase(Phase.RESTORING, Intent.CANCEL)).intent is Intent.NONE


def test_a_late_click_cannot_hit_another_pause() -> None:
    workspace = in_phase(Phase.PAUSED)
    names_pause(workspace, "p1")
    for other in ("p2", "", "s-p1"):
        with pytest.raises(Conflict, match="wrong_pause"):
            names_pause(workspace, other)
    with pytest.raises(Conflict, match="wrong_pause"):
        names_pause(in_phase(Phase.RUNNING), "p1")


def test_a_start_does_not_turn_a_cancel_into_a_pause() -> None:
    workspace = in_phase(Phase.CHECKPOINTING, Intent.CANCEL)
    assert remembered(workspace, call_answer("start", workspace)) is Intent.CANCEL
    workspace = in_phase(Phase.CHECKPOINTING, Intent.RESUME)
    assert remembered(workspace, call_answer("cancel", workspace)) is Intent.CANCEL
    assert remembered(workspace, call_answer("start", workspace)) is Intent.RESUME


ACTIONS = {
    Phase.RUNNING: ("pause", "stop"),
    Phase.PREPARING: ("resume", "cancel"),
    Phase.CHECKPOINTING: ("resume", "cancel"),
    Phase.SAVED: ("resume", "cancel"),
    Phase.STOPPING: ("resume",),
    Phase.PAUSED: ("resume", "fresh", "discard"),
    Phase.WAITING: ("cancel", "stop"),
    Phase.RESTORING: ("cancel", "stop"),
    Phase.UNPROVEN: ("retry", "accept", "stop"),
    Phase.DELETING: (),
}


@pytest.mark.parametrize("phase", Phase)
def test_pages_offer_what_is_allowed_and_nothing_else(phase: Phase) -> None:
    assert actions(in_phase(phase)) == ACTIONS[phase]


def test_what_is_asked_already_is_not_offered_again() -> None:
    assert actions(in_phase(Phase.CHECKPOINTING, Intent.RESUME)) == ("cancel",)
    assert actions(in_phase(Phase.CHECKPOINTING, Intent.CANCEL)) == ()
    assert actions(in_phase(Phase.RESTORING, Intent.CANCEL)) == ("stop",)


@pytest.mark.parametrize("code", ["snapshot_gone", "snapshot_changed", "token_revoked"])
def test_a_resume_that_cannot_work_is_not_offered(code: str) -> None:
    workspace = apply(in_phase(Phase.PAUSED), resuming.back_to_paused(in_phase(Phase.PAUSED), code), 1.0)
    assert actions(workspace) == ("fresh", "discard")


@pytest.mark.parametrize("phase", Phase)
def test_a_save_that_ends_the_server_cannot_be_cancelled_once_it_has_begun(phase: Phase) -> None:
    workspace = in_phase(phase)
    if workspace.pause is None:
        return
    ends = replace(workspace, pause=replace(workspace.pause, frozen_by="save"))
    if phase in (Phase.CHECKPOINTING, Phase.SAVED):
        with pytest.raises(Conflict, match="too_late_to_cancel") as refused:
            call_answer("cancel", ends)
        assert table()[refused.value.code].status == 409
        assert actions(ends) == ("resume",)
    else:
        assert actions(ends) == ACTIONS[phase]
    for call in set(Call) - {Call.CANCEL}:
        assert answered(ends, call) is answered(workspace, call)


def test_the_docs_show_every_cell() -> None:
    text = calls_markdown()
    lines = [line for line in text.strip().splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(Phase)
    assert all(line.count("|") == len(Call) + 2 for line in lines)
    assert all(f"- {call.value} in {phase.value}: " in text for call, row in ENDED_BY_SAVE.items() for phase in row)
    answers: list[Answer] = [CALLS[call][phase] for call in Call for phase in Phase]
    assert all((a.reason if a.outcome is Outcome.REFUSE else a.note) in text for a in answers)
