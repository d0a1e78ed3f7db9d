"""The Hub is killed right after each persisted phase and started again: the session is there, and hub and cluster agree."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tests.emulator.api import Api
from tests.emulator.hub import EmulatedHub
from tests.fakes import kill_switch
from tests.fakes.kill_switch import PHASES
from tests.kube.people import Person, until_nothing_is_left

CASES = [*((*phase, "resume") for phase in PHASES), *((phase, False, "stop") for phase in ("checkpointing", "saved", "stopping"))]
"""With the policy; that matters only while GKE saves, and after it."""
KILLED_SECONDS = 30.0


@pytest.fixture(scope="module")
def people(shared_hub: EmulatedHub, module_admin: Api) -> Mapping[str, Person]:
    """One with a server of each policy; they live through all that happens to the Hub."""
    return {policy: Person(shared_hub, f"lives-under-{policy}", module_admin) for policy in ("resume", "stop")}


@pytest.mark.parametrize(("phase", "proof", "policy"), CASES)
async def test_a_killed_hub_finds_its_way(
    shared_hub: EmulatedHub, people: Mapping[str, Person], phase: str, proof: bool, policy: str
) -> None:
    hub, ann = shared_hub, people[policy]
    before = await ann.lives(profile=policy)
    at_resume = phase in ("waiting", "restoring", "running")
    if at_resume:
        await ann.pause()
    kill_switch.arm(hub.folder, phase, proof=proof)
    asking = asyncio.ensure_future(ann.start() if at_resume else ann.status("POST", f"/users/{ann.name}/server/pause"))
    await hub.hub.ended(KILLED_SECONDS)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await hub.start()
    after = await ann.at_rest()
    assert after["phase"] in ("running", "paused")
    if proof or phase == "running":  # somebody may have worked in it since
        assert after["phase"] == "running"
    if after["phase"] == "paused":
        await ann.until_no_pod()
        assert (await ann.resume())["phase"] == "running"
    await ann.ready()
    now = await ann.answers()
    assert (now["boot_id"], now["count"]) == (before["boot_id"], before["count"] + 1)


async def test_after_all_that_nothing_is_left_of_people_who_go(shared_hub: EmulatedHub, module_admin: Api) -> None:
    await shared_hub.delete_users()
    await until_nothing_is_left(module_admin)
