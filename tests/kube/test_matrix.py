"""Two things go wrong at once: the Hub is killed right after a phase was persisted, while GKE has a fault. No session is lost.

Each fault meets one phase here, and each phase at least one fault. ``make matrix`` walks through the whole product of phases, faults and
policies (``GKE_WORKSPACES_MATRIX=all``) and writes what came of each to ``docs/outcomes.md`` (``GKE_WORKSPACES_OUTCOMES``).
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.emulator.api import Api
from tests.emulator.faults import clear_faults
from tests.emulator.hub import EmulatedHub
from tests.emulator.running import eventually
from tests.fakes import kill_switch
from tests.fakes.kill_switch import PHASES
from tests.kube.people import Person

FAULTS = {
    "trigger-ignored": "on",
    "checkpoint-fails": "on",
    "checkpoint-hangs": "on",
    "upload-fails": "on",
    "upload-slow": "seconds=2",
    "restore-skipped": "on",
    "restore-crashes": "on",
    "pod-restored-late": "seconds=3",
    "pod-restored-missing": "on",
    "agent-not-up": "on",
    "finalizer-stuck": "on",
    "checkpoint-file-absent": "on",
    "apiserver-restart": "on",
    "watch-expired": "on",
}
ENDED_BY_GKE = {("upload-fails", "stop")}
"""Fault and policy with which GKE itself has ended the server and kept nothing: that is told."""
OF_A_RESUME = ("waiting", "restoring", "running")
Case = tuple[str, bool, str, str]
"""Phase, whether it is the proof within it, fault, policy."""

EVERY: list[Case] = [(*phase, fault, policy) for fault, phase, policy in itertools.product(FAULTS, PHASES, ("resume", "stop"))]


def some() -> list[Case]:
    """Each fault once, with a phase of what it touches (a restore, or a save) taken in turn."""
    phases = {of: itertools.cycle([p for p in PHASES if (p[0] in OF_A_RESUME) is of]) for of in (True, False)}
    policies = itertools.cycle(("resume", "stop", "resume"))
    return [(*next(phases[fault.startswith(("restore", "pod-restored"))]), fault, next(policies)) for fault in FAULTS]


CASES = EVERY if os.environ.get("GKE_WORKSPACES_MATRIX") == "all" else some()
outcomes: dict[Case, str] = {}


@pytest.fixture(scope="module", autouse=True)
def written() -> Iterator[None]:
    """The page of outcomes, where one is asked for."""
    yield
    if path := os.environ.get("GKE_WORKSPACES_OUTCOMES"):
        Path(path).write_text(page())


def page() -> str:
    """What came of each case, as Markdown."""
    rows = [
        "# What becomes of a session when two things go wrong",
        "",
        "Written by `make matrix`: the hub is killed right after it has persisted a phase while GKE (emulated) has a fault. *same* means",
        "that the same processes answered afterwards, with their memory; anything else is what the user was told.",
        "",
    ]
    for policy in ("resume", "stop"):
        phases = [phase + (" (proved)" if proof else "") for phase, proof in PHASES]
        rows += [f"## postCheckpoint: {policy}", "", f"| fault | {' | '.join(phases)} |", f"|---|{'---|' * len(phases)}"]
        for fault in FAULTS:
            cells = [outcomes.get((*phase, fault, policy), "") for phase in PHASES]
            rows.append(f"| {fault} | {' | '.join(cells)} |")
        rows.append("")
    return "\n".join(rows)


@pytest.mark.parametrize(("phase", "proof", "fault", "policy"), CASES, ids=[f"{c[0]}{'-proved' * c[1]}-{c[2]}-{c[3]}" for c in CASES])
async def test_a_hub_killed_while_gke_has_a_fault_loses_no_session(
    ann: Person, hub: EmulatedHub, admin: Api, faults: Callable[..., Awaitable[None]], phase: str, proof: bool, fault: str, policy: str
) -> None:
    before = await ann.started(profile=policy)
    at_resume = phase in OF_A_RESUME
    if at_resume:
        assert (await ann.pause())["phase"] == "paused"
    await faults(**{fault.replace("-", "_"): FAULTS[fault]})
    kill_switch.arm(hub.folder, phase, proof=proof)
    asking = asyncio.ensure_future(ann.start() if at_resume else ann.status("POST", f"/users/{ann.name}/server/pause"))
    await eventually("the kill, or an end of it before that phase", lambda: killed_or_over(hub, ann, at_resume), 60)
    kill_switch.disarm(hub.folder)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    if not hub.hub.running:
        await hub.start()
    seen = await ann.at_rest(120)
    await clear_faults(admin)
    case = (phase, proof, fault, policy)
    if seen["phase"] == "running" and seen["reason"] and not await ann.pods():
        outcomes[case] = str(seen["reason"])
        assert (fault, policy) in ENDED_BY_GKE, seen
        return
    if seen["phase"] == "unproven":
        assert await ann.ask("retry") == 200
        assert (await ann.in_phase("running", 90))["phase"] == "running"
    elif seen["phase"] == "paused":
        await ann.until_no_pod()
        assert (await ann.resume(90))["phase"] == "running"
    await ann.ready()
    now = await ann.answers()
    assert (now["boot_id"], now["count"]) == (before["boot_id"], before["count"] + 1)
    outcomes[case] = "same"


async def killed_or_over(hub: EmulatedHub, ann: Person, at_resume: bool) -> bool:
    """Whether the Hub is dead, or what was asked for has come to an end without that phase."""
    if not hub.hub.running:
        return True
    try:
        seen = await ann.workspace()
    except OSError:
        return False
    return bool(seen["phase"] == "unproven" or (seen["reason"] and seen["phase"] == ("paused" if at_resume else "running")))
