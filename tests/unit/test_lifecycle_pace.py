"""How far a phase is: bytes of the engine, or elapsed time of what the last restores took; never done before it is done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gke_workspaces_spawner.lifecycle.model import Clocks, Key, Owner, Pause, SnapshotRef, SnapshotState, Workspace
from gke_workspaces_spawner.lifecycle.pace import MOST, Ended, Pace, first_guess, progress, restore_of
from gke_workspaces_spawner.lifecycle.phases import Phase

GB = 10**9
SNAPSHOT = SnapshotRef("s-p1", "p1", SnapshotState.CURRENT, GB, 0.0, None)
PAUSE = Pause("p1", clocks=Clocks(resume_asked=90.0, capacity_found=100.0, process_back=108.0), snapshot_id="s-p1")
RESTORING = Workspace(Key("ann"), Owner(1, "x"), Phase.RESTORING, pause=PAUSE, shelf=(SNAPSHOT,), phase_since=100.0)
BACK = replace(RESTORING, phase=Phase.RUNNING, phase_since=109.0, pause=replace(PAUSE, receipt={"resumed": True, "bytes": GB}))


def test_an_estimate_follows_what_the_last_restores_took() -> None:
    pace = Pace()
    assert pace.seconds(GB) == first_guess(GB)
    for _ in range(3):
        pace.learn(Ended(GB, 5 * first_guess(GB)))
    assert pace.seconds(GB) == pytest.approx(5 * first_guess(GB))
    assert pace.seconds(4 * GB) == pytest.approx(5 * first_guess(4 * GB))
    pace.learn(Ended(GB, 100 * first_guess(GB)))
    assert pace.seconds(GB) == pytest.approx(5 * first_guess(GB)), "one restore from a cold disk does not count for all"
    for _ in range(8):
        pace.learn(Ended(GB, 2 * first_guess(GB)))
    assert pace.seconds(GB) == pytest.approx(2 * first_guess(GB)), "what was long ago is forgotten"


def test_a_restore_counts_from_the_room_it_found_until_the_server_was_ready() -> None:
    assert restore_of(BACK) == Ended(GB, 9.0)


@pytest.mark.parametrize(
    "workspace",
    [
        RESTORING,
        replace(BACK, pause=replace(PAUSE, receipt={"resumed": False, "bytes": GB})),
        replace(BACK, pause=replace(PAUSE, receipt={"resumed": True})),
        replace(BACK, pause=PAUSE),
        replace(BACK, pause=None),
        replace(BACK, phase_since=50.0),
    ],
)
def test_what_was_no_proved_restore_teaches_nothing(workspace: Workspace) -> None:
    assert restore_of(workspace) is None


def test_a_restore_is_as_far_as_its_time_of_what_the_last_ones_took() -> None:
    pace = Pace([Ended(GB, 10.0)])
    assert progress(RESTORING, pace, 102.5).fraction == pytest.approx(0.25)
    assert progress(RESTORING, pace, 102.5).remaining == pytest.approx(7.5)
    assert progress(RESTORING, pace, 500.0) == (MOST, None)


def test_a_save_is_as_far_as_the_bytes_that_are_written_and_not_done_before_it_is_durable() -> None:
    saving = replace(RESTORING, phase=Phase.CHECKPOINTING, progress=0.25)
    assert progress(saving, Pace(), 104.0) == (0.25, pytest.approx(12.0))
    assert progress(replace(saving, progress=0.01), Pace(), 104.0) == (0.01, None)
    assert progress(replace(saving, progress=1.0), Pace(), 104.0).fraction == 0.99


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.RESTORING}))
def test_where_nothing_is_known_nothing_is_said(phase: Phase) -> None:
    assert progress(replace(RESTORING, phase=phase), Pace(), 104.0) == (None, None)
    given_up = replace(RESTORING, pause=replace(PAUSE, reason="restore_failed"))
    assert progress(given_up, Pace(), 104.0) == (None, None)


@given(now=st.floats(0, 1e10), seconds=st.floats(0.01, 1e5), size=st.integers(0, 10**13))
def test_progress_is_never_done(now: float, seconds: float, size: int) -> None:
    workspace = replace(RESTORING, shelf=(replace(SNAPSHOT, bytes=size),))
    fraction, remaining = progress(workspace, Pace([Ended(size, seconds)]), now)
    assert fraction is not None
    assert 0 <= fraction < 1
    assert remaining is None or remaining > 0
