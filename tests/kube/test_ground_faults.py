"""Each fault of ``emulator-faults`` does what ``faults.toml`` says of it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.emulator import faults as faults_module
from tests.emulator.api import ApiError, Object, condition
from tests.emulator.running import Space, eventually
from tests.emulator.runtime import read_toml

Faults = Callable[..., Awaitable[None]]
EMULATOR = Path(faults_module.__file__).parent


def answers(pod: Object) -> Object:
    """The pretend server's count, or an OSError."""
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8888/user/jupyter-ann/count", timeout=5) as answer:
        return json.load(answer)


async def paused(space: Space) -> str:
    """A pod that was saved under ``stop`` and is gone; its snapshot's name."""
    await space.policy()
    await space.pod()
    name: str = (await space.saved())["metadata"]["name"]
    await space.delete_pod()
    return name


def test_every_fault_and_behaviour_names_its_source_and_how_sure_it_is() -> None:
    tables = {**read_toml(EMULATOR / "faults.toml"), **read_toml(EMULATOR / "behaviours.toml")}
    code = "".join(path.read_text(encoding="utf-8") for path in EMULATOR.glob("*.py"))
    for name, row in tables.items():
        assert set(row) <= {"does", "takes", "level", "source"}, name
        assert row["level"] in ("documented", "reported", "guessed"), name
        assert row["source"], name
    for name in read_toml(EMULATOR / "faults.toml"):
        assert f'"{name}"' in code, f"nothing does {name}"


async def test_a_trigger_that_is_ignored_stays_without_a_word_until_the_fault_is_gone(space: Space, faults: Faults) -> None:
    await space.policy()
    await space.pod()
    await faults(trigger_ignored="on")
    await space.trigger()
    await space.pod("jupyter-bo", lineage="b")  # time passes, the emulator is alive
    trigger = await space.get("PodSnapshotManualTrigger", "pause-1")
    assert trigger is not None
    assert "status" not in trigger
    assert not await space.api.list("PodSnapshot", space.namespace)
    await faults(trigger_ignored=None)
    assert condition(await space.until_triggered("pause-1"), "Triggered")["status"] == "True"


@pytest.mark.parametrize("reason", ["Failed", "Error"])
async def test_a_checkpoint_that_fails_says_so_and_the_pod_goes_on(space: Space, faults: Faults, reason: str) -> None:
    await space.policy()
    pod = await space.pod()
    await faults(checkpoint_fails=f"reason={reason} times=1")
    await space.trigger()
    trigger = await space.until_triggered("pause-1")
    assert (condition(trigger, "Triggered")["status"], condition(trigger, "Triggered")["reason"]) == ("False", reason)
    (snapshot,) = await space.api.list("PodSnapshot", space.namespace)
    assert (condition(snapshot, "Checkpoint")["status"], condition(snapshot, "Checkpoint")["reason"]) == ("False", reason)
    assert answers(pod)["count"] == 1
    assert await space.saved("pause-2")


async def test_an_upload_that_fails_comes_after_the_stop(space: Space, faults: Faults) -> None:
    await space.policy(post="stop")
    await space.pod()
    await faults(upload_fails="on")
    await space.trigger()
    trigger = await space.until_triggered("pause-1")
    assert condition(trigger, "Triggered")["status"] == "True"
    name = trigger["status"]["snapshotCreated"]["name"]
    snapshot = await space.until("PodSnapshot", name, lambda one: condition(one, "StorageReplicated"))
    assert condition(snapshot, "StorageReplicated")["status"] == "False"
    assert condition(await space.get("PodSnapshot", name), "Ready").get("status") == "False"
    await space.until("Pod", "jupyter-ann", lambda one: one["status"]["phase"] == "Succeeded")


async def test_a_slow_upload_is_not_ready_meanwhile(space: Space, faults: Faults) -> None:
    await space.policy(post="resume")
    await space.pod()
    await faults(upload_slow="seconds=60")
    await space.trigger()
    name = (await space.until_triggered("pause-1"))["status"]["snapshotCreated"]["name"]
    assert condition(await space.get("PodSnapshot", name), "Ready")["reason"] == "AwaitingCheckpoint"
    await faults(upload_slow=None)
    await space.until("PodSnapshot", name, lambda one: condition(one, "Ready").get("status") == "True")


async def test_a_stop_that_never_finishes_leaves_the_pod_running_and_silent(space: Space, faults: Faults) -> None:
    await space.policy(post="stop")
    pod = await space.pod()
    await faults(stop_never_finished="on")
    await space.saved()
    assert (await space.get("Pod", "jupyter-ann"))["status"]["phase"] == "Running"
    with pytest.raises(OSError):
        answers(pod)
    await faults(stop_never_finished=None)
    await space.until("Pod", "jupyter-ann", lambda one: one["status"]["phase"] == "Succeeded")


@pytest.mark.parametrize(("value", "warned"), [("on", True), ("event=no", False)])
async def test_a_restore_that_is_skipped_is_a_cold_start(space: Space, faults: Faults, value: str, warned: bool) -> None:
    name = await paused(space)
    await faults(restore_skipped=value)
    await space.pod("jupyter-2", restore=name)
    await space.until_event("jupyter-2", "Started")
    events = [one for one in await space.events("jupyter-2") if one[1] == "GKEPodSnapshotting"]
    assert bool(events) is warned
    assert not condition(await space.get("Pod", "jupyter-2"), "PodRestored")


async def test_a_restore_that_crashes_crashes_for_ever_and_resists_deletion_until_forced(space: Space, faults: Faults) -> None:
    name = await paused(space)
    await faults(restore_crashes="undeletable=yes")
    await space.pod("jupyter-2", wait=False, restore=name, restartPolicy="OnFailure")
    await space.until("Pod", "jupyter-2", lambda one: "CrashLoopBackOff" in json.dumps(one["status"]))
    text = json.dumps((await space.get("Pod", "jupyter-2"))["status"])
    assert "OCI runtime restore failed" in text
    assert '"exitCode": 128' in text
    await space.api.delete("Pod", space.namespace, "jupyter-2", grace=1)
    await space.pod("jupyter-3", lineage="other")  # time passes
    assert await space.get("Pod", "jupyter-2")
    await space.api.delete("Pod", space.namespace, "jupyter-2", grace=0)
    await space.until_gone("Pod", "jupyter-2")


async def test_a_crashed_restore_of_a_pod_that_never_restarts_is_failed(space: Space, faults: Faults) -> None:
    name = await paused(space)
    await faults(restore_crashes="on")
    await space.pod("jupyter-2", wait=False, restore=name)
    pod = await space.until("Pod", "jupyter-2", lambda one: one["status"]["phase"] == "Failed")
    state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (128, "StartError")
    await space.delete_pod("jupyter-2")


async def test_the_word_that_it_was_restored_may_come_late_or_never(space: Space, faults: Faults) -> None:
    name = await paused(space)
    await faults(pod_restored_late="seconds=60", pod_restored_missing="pod=jupyter-3")
    pod = await space.pod("jupyter-2", restore=name)
    assert not condition(pod, "PodRestored")
    await faults(pod_restored_late=None)
    await space.until("Pod", "jupyter-2", lambda one: condition(one, "PodRestored"))
    await space.pod("jupyter-3", restore=name)
    await space.until_event("jupyter-3", "Started")
    assert not [one for one in await space.events("jupyter-3") if one[1] == "GKEPodSnapshotting"]


async def test_an_agent_that_is_not_up_skips_restores_and_lets_triggers_wait(space: Space, faults: Faults) -> None:
    name = await paused(space)
    await faults(agent_not_up="on")
    pod = await space.pod("jupyter-2", restore=name)
    await space.until_event("jupyter-2", "GKEPodSnapshotting", "falling back to a cold start of pod")
    await space.trigger("pause-2", "jupyter-2")
    assert "status" not in (await space.get("PodSnapshotManualTrigger", "pause-2") or {})
    await faults(agent_not_up=None)
    await space.until_triggered("pause-2")
    assert pod


async def test_a_stuck_finalizer_holds_object_and_files(space: Space, faults: Faults) -> None:
    name = await paused(space)
    await faults(finalizer_stuck="on")
    await space.api.delete("PodSnapshot", space.namespace, name)
    await space.until("PodSnapshot", name, lambda one: condition(one, "Ready")["reason"] == "Deleting")
    await faults(finalizer_stuck=None)
    await space.until_gone("PodSnapshot", name)


async def test_a_pod_that_is_evicted_while_it_is_saved_fails_its_trigger(space: Space, faults: Faults) -> None:
    await space.policy()
    await space.pod(terminationGracePeriodSeconds=1)
    await faults(checkpoint_hangs="on", evict_while_saving="on")
    await space.trigger()
    trigger = await space.until_triggered("pause-1")
    assert condition(trigger, "Triggered")["status"] == "False"
    await space.until_gone("Pod", "jupyter-ann")


async def test_an_empty_ps_name_may_be_taken_for_none(space: Space, faults: Faults) -> None:
    await paused(space)
    await faults(empty_ps_name_ignored="on")
    await space.pod("jupyter-2", restore="")
    await space.until("Pod", "jupyter-2", lambda one: condition(one, "PodRestored"))


async def test_the_name_of_what_was_created_may_be_a_text(space: Space, faults: Faults) -> None:
    await space.policy()
    await space.pod()
    await faults(snapshot_created_is_text="on")
    await space.trigger()
    assert isinstance((await space.until_triggered("pause-1"))["status"]["snapshotCreated"], str)


async def test_a_deletion_may_never_end(space: Space, faults: Faults) -> None:
    await space.pod()
    await faults(deletion_unfinished="on")
    await space.api.delete("Pod", space.namespace, "jupyter-ann", grace=0 + 1)
    await space.pod("jupyter-bo", lineage="b")
    assert (await space.get("Pod", "jupyter-ann"))["metadata"]["deletionTimestamp"]
    await faults(deletion_unfinished=None)
    await space.until_gone("Pod", "jupyter-ann")


async def test_a_container_that_takes_too_much_memory_is_killed(space: Space, faults: Faults) -> None:
    await space.pod()
    await faults(pod_oom="pod=jupyter-ann times=1")
    pod = await space.until("Pod", "jupyter-ann", lambda one: one["status"]["phase"] == "Failed")
    state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (137, "OOMKilled")


async def test_an_image_that_is_not_there_is_waited_for(space: Space, faults: Faults) -> None:
    await faults(image_missing="pod=jupyter-ann")
    await space.pod(wait=False)
    await space.until("Pod", "jupyter-ann", lambda one: "ImagePullBackOff" in json.dumps(one["status"]))
    await faults(image_missing=None)
    await space.until_ready("jupyter-ann")


async def test_a_quota_refuses_pods_until_it_is_lifted(space: Space, faults: Faults) -> None:
    await faults(quota=f"namespace={space.namespace}")

    async def refused() -> bool:
        try:
            await space.api.create(space.pod_manifest("probe"))
        except ApiError as error:
            return error.status == 403 and "exceeded quota" in error.message
        await space.api.delete("Pod", space.namespace, "probe", grace=0)
        return False

    await eventually("the refusal", refused)
    await faults(quota=None)

    async def allowed() -> bool:
        try:
            await space.api.create(space.pod_manifest("jupyter-ann"))
        except ApiError:
            return False
        return True

    await eventually("room", allowed)
