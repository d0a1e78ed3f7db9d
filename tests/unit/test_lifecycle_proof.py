"""Resumed is said only of the process that was paused; what a server says of itself can only lower the verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gke_workspaces_spawner.lifecycle.model import Identity, KernelProcess
from gke_workspaces_spawner.lifecycle.ports import Absent, Restored, Signal
from gke_workspaces_spawner.lifecycle.proof import judge

KERNELS = (KernelProcess("k1", 101, 5.01, "python3"), KernelProcess("k2", 102, 6.5, "ir"))
RECORDED = Identity("boot-a", 7, KERNELS)


def test_the_same_process_is_proved() -> None:
    verdict = judge(RECORDED, Restored(RECORDED, "restore"), Signal.RESTORED)
    assert verdict.proved
    assert verdict.kernels_back == KERNELS
    assert not verdict.reasons
    assert not verdict.notes


@pytest.mark.parametrize(
    ("signal", "code"), [(Signal.FRESH, "silent_cold_start"), (Signal.UNKNOWN, "engine_silent"), ("?", "engine_silent")]
)
def test_replayed_words_prove_nothing_without_evidence_from_outside(signal: str, code: str) -> None:
    verdict = judge(RECORDED, Restored(RECORDED, "restore"), signal)
    assert not verdict.proved
    assert verdict.reasons[0] == code


@pytest.mark.parametrize(
    ("claimed", "code"),
    [
        (replace(RECORDED, boot_id="boot-b"), "identity_differs"),
        (replace(RECORDED, server_pid=8), "identity_differs"),
        (replace(RECORDED, kernels=()), "kernels_missing"),
        (replace(RECORDED, kernels=KERNELS[:1]), "kernels_missing"),
        (replace(RECORDED, kernels=(KERNELS[0], replace(KERNELS[1], pid=103))), "kernels_missing"),
        (replace(RECORDED, kernels=(KERNELS[0], replace(KERNELS[1], started=6.56))), "kernels_missing"),
    ],
)
def test_a_process_that_differs_is_unproven(claimed: Identity, code: str) -> None:
    verdict = judge(RECORDED, Restored(claimed, "restore"), Signal.RESTORED)
    assert not verdict.proved
    assert verdict.reasons == (code,)


def test_rounded_start_times_and_kernels_that_came_later_do_not_matter() -> None:
    claimed = replace(RECORDED, kernels=(replace(KERNELS[0], started=5.05), KERNELS[1], KernelProcess("k3", 110, 99.0)))
    assert judge(RECORDED, Restored(claimed, "restore"), Signal.RESTORED).proved


@pytest.mark.parametrize(("said", "proved"), [("restore", True), (None, True), ("resume", False), ("error", False), ("x" * 999, False)])
def test_the_signal_from_inside_counts(said: str | None, proved: bool) -> None:
    verdict = judge(RECORDED, Restored(RECORDED, said), Signal.RESTORED)
    assert verdict.proved is proved
    assert ("checkpoint_silent" in verdict.notes) is (said is None)
    assert all(len(d) < 200 for d in verdict.details)


def test_without_the_extension_the_engine_alone_decides_and_the_receipt_says_so() -> None:
    assert judge(None, Absent(), Signal.RESTORED).proved
    assert judge(None, Absent(), Signal.RESTORED).notes == ("proof_by_engine_only",)
    assert not judge(None, Absent(), Signal.FRESH).proved
    assert not judge(None, Absent(), Signal.UNKNOWN).proved


def test_an_extension_that_vanished_is_not_the_same_process() -> None:
    assert not judge(RECORDED, Absent(), Signal.RESTORED).proved


kernels = st.builds(KernelProcess, st.sampled_from(["k1", "k2"]), st.sampled_from([101, 102]), st.sampled_from([5.0, 5.04, 6.5]))
identities = st.builds(Identity, st.sampled_from(["boot-a", "boot-b"]), st.integers(7, 8), st.lists(kernels, max_size=3).map(tuple))
answers = st.one_of(st.builds(Restored, identities, st.sampled_from(["restore", "resume", None])), st.builds(Absent))


@given(
    recorded=st.none() | identities, answer=answers, signal=st.sampled_from([Signal.FRESH, Signal.GONE, Signal.UNKNOWN, "", "restored?"])
)
def test_no_claim_whatever_raises_a_verdict(recorded: Identity | None, answer: Restored | Absent, signal: str) -> None:
    verdict = judge(recorded, answer, signal)
    assert not verdict.proved
    assert verdict.reasons


@given(recorded=st.none() | identities, answer=answers)
def test_a_verdict_that_is_not_proved_has_a_reason(recorded: Identity | None, answer: Restored | Absent) -> None:
    verdict = judge(recorded, answer, Signal.RESTORED)
    assert verdict.proved == (not verdict.reasons)
    if recorded is not None:
        assert isinstance(answer, Absent) or set(verdict.kernels_back) | set(verdict.kernels_missing) == set(recorded.kernels)
