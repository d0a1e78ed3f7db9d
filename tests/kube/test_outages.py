"""The API server is away, or throws old versions away: the hub sees the truth afterwards, and no session is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.emulator.api import Api
from tests.emulator.hub import EmulatedHub
from tests.emulator.running import eventually
from tests.kube.people import Person, up

Switch = Callable[..., Awaitable[None]]

HOMES = False
"""After an outage Kubernetes' own controllers look again only after up to a minute, and attach no volume before."""

AWAY = 60
"""Seconds: KubeSpawner's own reflectors give up for ever after 55."""


async def test_after_a_long_outage_the_hub_sees_what_became_of_its_pods(ann: Person, hub: EmulatedHub, admin: Api, faults: Switch) -> None:
    bob = Person(hub, f"bob{ann.name}", admin)
    await ann.started()
    before = await bob.started()
    pod = ann.pod_name
    await faults(apiserver_away=f"seconds={AWAY}")
    await eventually("the outage", lambda: _not(up(admin)), 30)
    await eventually("the end of the outage", lambda: up(admin), AWAY + 60)
    await faults(apiserver_away=None)
    await admin.delete("Pod", "hub", pod, grace=0)

    async def noticed() -> bool:
        return "" not in (await hub.call("GET", f"/users/{ann.name}"))["servers"]

    await eventually("the hub to notice that a pod is gone", noticed, 60)
    assert (await bob.count())["boot_id"] == before["boot_id"]
    assert (await bob.pause())["phase"] == "paused"
    assert (await bob.resume(100))["phase"] == "running"


async def test_watches_survive_that_old_versions_are_thrown_away(ann: Person, faults: Switch) -> None:
    before = await ann.started()
    assert (await ann.pause())["phase"] == "paused"
    await faults(watch_expired="on")
    assert (await ann.resume(100))["phase"] == "running"
    await ann.ready()
    assert (await ann.pause())["phase"] == "paused"
    assert (await ann.resume(100))["phase"] == "running"
    await ann.ready()
    assert (await ann.count())["boot_id"] == before["boot_id"]


async def test_a_restart_of_the_api_server_in_the_middle_of_a_save_costs_nothing(ann: Person, faults: Switch) -> None:
    before = await ann.started()
    await faults(upload_slow="seconds=3")
    await ann.ask_pause()
    await ann.in_phase("checkpointing")
    await faults(upload_slow="seconds=3", apiserver_restart="on")
    after = await ann.at_rest(90)
    assert after["phase"] in ("paused", "running")
    if after["phase"] == "paused":
        assert (await ann.resume(100))["phase"] == "running"
    await ann.ready()
    assert (await ann.answers())["boot_id"] == before["boot_id"]


async def _not(call: Awaitable[bool]) -> bool:
    return not await call
