"""One sentence for every state, true and for people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gke_workspaces_spawner.lifecycle import receipt
from gke_workspaces_spawner.lifecycle.model import Identity, Intent, KernelProcess, Key, Owner, Pause, SnapshotRef, SnapshotState, Workspace
from gke_workspaces_spawner.lifecycle.phases import Phase
from gke_workspaces_spawner.lifecycle.words import age, describe, sentence, size

KERNELS = (KernelProcess("k1", 1, 1.0, "python3"), KernelProcess("k2", 2, 1.0, "ir"))
PAUSE = Pause("p1", identity=Identity("boot", 7, KERNELS), snapshot_id="s-p1")
SNAPSHOT = SnapshotRef("s-p1", "p1", SnapshotState.CURRENT, 1_234_000_000, 0.0, None)


def workspace(phase: Phase, pause: Pause | None = PAUSE, **changes: object) -> Workspace:
    base = Workspace(Key("ann"), Owner(1, "x"), phase, pause=pause, shelf=(SNAPSHOT,), phase_since=1000.0)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_paused_says_since_when_how_big_and_what_comes_back() -> None:
    said = describe(workspace(Phase.PAUSED), 1000.0 + 2 * 3600 + 5 * 60)
    assert said.text == "Paused for 2 h 5 min (1.2 GB). Resume brings 2 kernels back."
    assert said.code == "phase_paused"
    assert said.values["since"] == 1000.0
    assert said.values["bytes"] == 1_234_000_000
    assert said.values["kernels"] == 2


def test_paused_after_a_failed_resume_says_why() -> None:
    text = sentence(workspace(Phase.PAUSED, replace(PAUSE, reason="no_capacity")), 1000.0)
    assert "There was no room" in text
    assert "Resume brings 2 kernels back" in text


@pytest.mark.parametrize("code", ["snapshot_gone", "token_revoked", "snapshot_changed"])
def test_paused_promises_nothing_that_cannot_come_back(code: str) -> None:
    assert "Resume brings" not in sentence(workspace(Phase.PAUSED, replace(PAUSE, reason=code)), 1000.0)


def test_running_after_a_failed_pause_says_why() -> None:
    text = sentence(workspace(Phase.RUNNING, replace(PAUSE, reason="disk_full")), 1000.0)
    assert text.startswith("Running.")
    assert "disk space" in text


def test_saving_says_how_far_it_is() -> None:
    assert sentence(workspace(Phase.CHECKPOINTING, progress=0.456), 1000.0) == "Saving the running processes (46 %)."


@pytest.mark.parametrize(("intent", "words"), [(Intent.CANCEL, "being cancelled"), (Intent.RESUME, "resumes as soon as")])
def test_what_was_asked_is_said(intent: Intent, words: str) -> None:
    assert words in sentence(workspace(Phase.CHECKPOINTING, intent=intent), 1000.0)


@pytest.mark.parametrize("code", [None, "silent_cold_start", "a_code_of_tomorrow"])
@pytest.mark.parametrize("phase", Phase)
def test_every_state_has_words_of_its_own(phase: Phase, code: str | None) -> None:
    text = sentence(workspace(phase, replace(PAUSE, reason=code)), 999.0)
    assert text
    assert text[0].isupper()
    assert text.endswith(".")
    assert "None" not in text
    assert sentence(Workspace(Key("ann"), Owner(1, "x")), 0.0) == "Running."


def test_different_phases_are_different_words() -> None:
    assert len({sentence(workspace(phase), 1000.0) for phase in Phase}) == len(Phase)


def test_sizes_and_ages_are_for_people() -> None:
    assert [size(n) for n in (0, 999, 1000, 1_500_000, 178_400_000, 999_600_000, 2 * 10**15)] == [
        *("0 B", "999 B", "1.0 kB", "1.5 MB", "178 MB", "1.0 GB", "2000 TB")
    ]
    assert [age(n) for n in (0, 59, 60, 3600, 3660, 86400, 90000)] == [
        "less than a minute", "less than a minute", "1 min", "1 h", "1 h 1 min", "1 d", "1 d 1 h",
    ]  # fmt: skip


def test_claims_are_cut_to_size() -> None:
    said = receipt.claims({"a": "x" * 10_000, "b": [[[[["deep"]]]]], "c": list(range(1000)), "d": object(), "e": 2**70, "f": float("nan")})
    assert said["a"] == "x" * 200
    assert len(said["c"]) == 50
    assert said["b"] == [[[None]]]
    assert said["d"] is None
    assert said["e"] is None
    assert said["f"] is None
    assert len(receipt.claims({str(i): i for i in range(1000)})) == 50
