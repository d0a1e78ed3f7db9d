"""What the engine makes of GKE's objects when they are not as they should be: no session is lost by it, none mixed up, nothing left."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from gke_workspaces_spawner.engines import gke_objects as objects
from gke_workspaces_spawner.engines.gke import GKEEngine, Known
from gke_workspaces_spawner.engines.gke_settings import Settings
from gke_workspaces_spawner.kube import facts
from gke_workspaces_spawner.kube.client import POD, POLICY, SECRET, SNAPSHOT, TRIGGER
from gke_workspaces_spawner.kube.errors import Unavailable
from gke_workspaces_spawner.lifecycle.model import Key, Owner
from gke_workspaces_spawner.lifecycle.ports import Failed, Saved, SaveRequest, Saving, Server
from gke_workspaces_spawner.lifecycle.reasons import Refused, TryLater
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock

LINEAGE, OTHER = "a" * 32, "b" * 32
ANN = Server(Key("ann"), Owner(1, LINEAGE))
PAUSE, SAVE = "p0123456789abcdef", "s-p0123456789abcdef"
TRIGGERED = objects.trigger_name(PAUSE)
READY = {"type": "Ready", "status": "True", "reason": "AllSnapshotsAvailable", "lastTransitionTime": "2026-01-01T00:00:00Z"}
UNSURE = {"type": "Ready", "status": "Unknown", "reason": "Rechecking"}
GONE_BAD = {"type": "Ready", "status": "False", "reason": "Failed"}
COMPLETE = {"type": "Triggered", "status": "True", "reason": "Complete"}


@dataclass
class Ground:
    api: FakeApiServer
    engine: GKEEngine
    clock: FakeClock

    def pod(self, policy: str = "resume", **parts: Any) -> None:
        labels = {facts.LINEAGE: LINEAGE, facts.HUB: self.engine.hub, facts.POLICY: policy}
        status = {"phase": "Running", "containerStatuses": [{"name": "notebook", "restartCount": 0, "state": {"running": {}}}]}
        spec = {"nodeName": "n1", "containers": [{"name": "notebook", "image": "i"}]}
        self.api.put(POD, "jupyter-ann", labels, **{"spec": spec, "status": status, **parts})

    def snapshot(self, name: str = "snap", *conditions: dict[str, str], lineage: str | None = LINEAGE, trigger: str = TRIGGERED) -> None:
        labels = {facts.TRIGGERED_BY: trigger, **({facts.LINEAGE: lineage} if lineage else {})}
        self.api.put(SNAPSHOT, name, labels, status={"conditions": list(conditions)})

    def trigger_says(self, *conditions: dict[str, str], made: str | None = "snap") -> None:
        status = {"conditions": list(conditions), **({"snapshotCreated": {"name": made}} if made else {})}
        self.api.put(TRIGGER, TRIGGERED, {facts.LINEAGE: LINEAGE, facts.HUB: self.engine.hub}, status=status)

    async def begun(self, policy: str = "resume") -> None:
        """A server whose save has been asked for."""
        self.pod(policy)
        await self.engine.pods.keep(
            ANN, "token", "guest", {"metadata": {"name": "jupyter-ann"}, "spec": {"containers": [{"name": "notebook"}]}}
        )
        request = SaveRequest(PAUSE, SAVE, self.clock.time() + 300, 60.0, identity=None, launch={})
        await self.engine.save(ANN, request)

    async def saved(self, policy: str = "resume") -> None:
        """One whose save is durable."""
        await self.begun(policy)
        self.snapshot("snap", READY)
        self.trigger_says(COMPLETE)
        assert isinstance(await self.observed(), Saved)

    async def observed(self) -> Any:
        """What is seen of the save once the watch has caught up."""
        for _ in range(200):
            await self.clock.sleep(0.01)
        return await self.engine.observe(ANN, PAUSE)

    async def stands_still(self) -> bool:
        return await self.engine.confirm_frozen(ANN, PAUSE, 60.0)


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    api, clock = FakeApiServer(), FakeClock()
    engine = GKEEngine(api, Settings("hub", finalizer_seconds=5.0), b"k" * 32, clock, logging.getLogger(__name__))
    yield Ground(api, engine, clock)
    for watch in (engine._saves._triggers, engine._saves._snapshots):
        await watch.stop()


# ---------------------------------------------------------------- before a save


@pytest.mark.parametrize(
    ("label", "does", "refusal"),
    [
        ("resume", None, None),
        ("resume", "resume", None),
        ("stop", "stop", None),
        ("stop", None, "snapshots_unavailable"),
        ("stop", "resume", "snapshots_unavailable"),
        ("resume", "stop", "snapshots_unavailable"),
    ],
)
async def test_a_policy_that_does_something_else_after_the_save_than_its_label_says_is_refused(
    ground: Ground, label: str, does: str | None, refusal: str | None
) -> None:
    """A server that runs on would be removed with what it did since."""
    ground.pod(label)
    trigger = {"type": "manual", **({"postCheckpoint": does} if does else {})}
    spec = {"selector": {"matchLabels": {facts.POLICY: label}}, "triggerConfig": trigger}
    ground.api.put(POLICY, "policy", spec=spec, status={"conditions": [READY]})
    assert (await ground.engine.estimate(ANN, {})).refusal == refusal


# ---------------------------------------------------------------- before a server is removed


async def test_what_was_saved_and_stands_still_may_be_removed(ground: Ground) -> None:
    await ground.saved()
    assert await ground.stands_still()


async def test_a_server_is_not_removed_when_its_snapshot_was_deleted_since_it_was_durable(ground: Ground) -> None:
    await ground.saved()
    await ground.api.delete(SNAPSHOT, "hub", "snap")
    assert not await ground.stands_still()


@pytest.mark.parametrize("state", ["going", "failed"])
async def test_a_server_is_not_removed_when_its_snapshot_has_become_useless(ground: Ground, state: str) -> None:
    await ground.saved()
    if state == "going":
        ground.api.held.add("snap")
        await ground.api.delete(SNAPSHOT, "hub", "snap")
    else:
        ground.snapshot("snap", GONE_BAD)
    assert not await ground.stands_still()


async def test_a_hub_killed_in_the_middle_of_throwing_a_snapshot_away_does_not_take_what_is_left_for_a_save(ground: Ground) -> None:
    """The snapshot goes first and its Secret last: a Secret without it is no proof of anything."""
    await ground.saved()
    await ground.api.delete(SNAPSHOT, "hub", "snap")
    await ground.api.delete(TRIGGER, "hub", TRIGGERED)
    next_life = GKEEngine(ground.api, Settings("hub"), b"k" * 32, ground.clock, logging.getLogger(__name__))
    assert not await next_life.confirm_frozen(ANN, PAUSE, 60.0)


async def test_a_server_that_somebody_evicts_between_its_save_and_its_removal_keeps_what_was_saved(ground: Ground) -> None:
    await ground.saved()
    ground.pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert await ground.stands_still()


@pytest.mark.parametrize("how", ["another pod", "restarted"])
async def test_what_is_not_the_saved_process_any_more_is_not_removed(ground: Ground, how: str) -> None:
    await ground.saved()
    if how == "another pod":
        ground.pod(metadata={"uid": "another"})
    else:
        ground.pod(status={"phase": "Running", "containerStatuses": [{"name": "notebook", "restartCount": 1, "state": {"running": {}}}]})
    assert not await ground.stands_still()


# ---------------------------------------------------------------- whose snapshot it is


async def test_a_snapshot_of_another_server_is_never_taken_for_the_save_whatever_the_trigger_says(ground: Ground) -> None:
    await ground.begun()
    ground.snapshot("victims", READY, lineage=OTHER, trigger="gke-workspaces-p1")
    ground.trigger_says(COMPLETE, made="victims")
    assert isinstance(await ground.observed(), Failed)


async def test_a_snapshot_of_another_server_is_never_deleted_with_a_pause_whatever_the_trigger_says(ground: Ground) -> None:
    await ground.begun()
    ground.snapshot("victims", READY, lineage=OTHER, trigger="gke-workspaces-p1")
    ground.trigger_says(COMPLETE, made="victims")
    await ground.engine.delete(SAVE)
    assert ground.api.names(SNAPSHOT) == {"victims"}
    assert not ground.api.names(TRIGGER)
    assert objects.snapshot_secret_name(SAVE) not in ground.api.names(SECRET)


async def test_a_snapshot_that_changed_hands_is_not_restored(ground: Ground) -> None:
    await ground.saved()
    ground.snapshot("snap", READY, lineage=OTHER)
    with pytest.raises(Refused, match="snapshot_changed"):
        await ground.engine.manifest(SAVE)


async def test_a_snapshot_that_bears_no_label_of_ours_is_found_by_its_name(ground: Ground) -> None:
    await ground.begun()
    ground.snapshot("snap", READY, lineage=None)
    ground.trigger_says(COMPLETE)
    assert isinstance(await ground.observed(), Saved)


async def test_a_snapshot_that_is_gone_before_it_was_seen_is_a_failure_at_once(ground: Ground) -> None:
    await ground.begun()
    ground.trigger_says(COMPLETE)
    assert isinstance(await ground.observed(), Failed)


async def test_a_snapshot_that_is_not_there_yet_is_waited_for(ground: Ground) -> None:
    await ground.begun()
    ground.trigger_says(made=None)
    assert isinstance(await ground.observed(), Saving)


# ---------------------------------------------------------------- a resume


async def test_a_snapshot_that_gke_is_not_sure_of_is_waited_for_and_not_called_gone(ground: Ground) -> None:
    await ground.saved()
    ground.snapshot("snap", UNSURE)
    with pytest.raises(TryLater, match="snapshot_not_ready"):
        await ground.engine.manifest(SAVE)
    ground.snapshot("snap", READY)
    assert await ground.engine.manifest(SAVE) is not None


async def test_a_pod_of_another_hub_is_never_ended_for_a_name(ground: Ground) -> None:
    ground.api.put(POD, "jupyter-ann", {facts.LINEAGE: OTHER, facts.HUB: "another"}, spec={"containers": [{"name": "c"}]})
    pod = {"metadata": {"name": "jupyter-ann", "labels": {facts.LINEAGE: LINEAGE}}, "spec": {"containers": [{"name": "c"}]}}
    with pytest.raises(Refused, match="start_failed"):
        await ground.engine.pods.create(ANN, pod)
    assert not [call for call in ground.api.calls if call[0] == "delete"]


# ---------------------------------------------------------------- nothing is left


async def test_a_snapshot_that_gke_makes_while_its_trigger_is_deleted_goes_too(ground: Ground) -> None:
    await ground.begun()
    real = ground.api.delete

    async def delete(kind: Any, namespace: Any, name: str, **rest: Any) -> None:
        await real(kind, namespace, name, **rest)
        if name == TRIGGERED:
            ground.snapshot("late")

    ground.api.delete = delete  # type: ignore[method-assign]
    await ground.engine.delete(SAVE)
    assert not ground.api.names(SNAPSHOT)
    assert objects.snapshot_secret_name(SAVE) not in ground.api.names(SECRET)


async def test_the_secret_outlives_the_snapshot_so_that_a_kill_in_between_leaves_no_orphan(ground: Ground) -> None:
    await ground.saved()
    await ground.engine.delete(SAVE)
    gone = [kind for verb, kind, name in ground.api.calls if verb == "delete"]
    assert gone == ["PodSnapshot", "PodSnapshotManualTrigger", "Secret"]


async def test_one_snapshot_that_does_not_go_keeps_no_other_orphan(ground: Ground) -> None:
    await ground.saved()
    second = "p" + "f" * 16
    ground.api.held.add("snap")
    ground.api.put(TRIGGER, objects.trigger_name(second), {facts.LINEAGE: OTHER, facts.HUB: ground.engine.hub})
    ground.snapshot("orphan", READY, lineage=OTHER, trigger=objects.trigger_name(second))
    nobody = Known(frozenset({LINEAGE}), frozenset(), frozenset({LINEAGE}))
    assert await ground.engine.clear_orphans(lambda: nobody) == (f"snapshot/s-{second}",)
    assert ground.api.names(SNAPSHOT) == {"snap"}


async def test_an_api_server_that_is_away_ends_the_clearing_and_nothing_is_taken_for_gone(ground: Ground) -> None:
    await ground.saved()
    ground.api.errors["list PodSnapshot"] = Unavailable(0, "away")
    with pytest.raises(TryLater):
        await ground.engine.clear_orphans(lambda: Known(frozenset({LINEAGE}), frozenset(), frozenset({LINEAGE})))
    assert ground.api.names(SNAPSHOT) == {"snap"}
    assert objects.snapshot_secret_name(SAVE) in ground.api.names(SECRET)
