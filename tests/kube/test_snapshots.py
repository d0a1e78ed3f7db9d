"""Pod Snapshots as GKE has them when nothing is wrong: save, restore, matching, retention, deletion."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable

import pytest

from tests.emulator.api import Object, condition
from tests.emulator.nodes import Machine, Nodes
from tests.emulator.running import RunningEmulator, Space, eventually

Faults = Callable[..., Awaitable[None]]


def count(pod: Object) -> Object:
    """What a pretend server answers; each call counts one up in its memory."""
    prefix = f"/user/{pod['metadata']['labels']['lineage']}/"
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8888{prefix}count", timeout=10) as answer:
        return json.load(answer)


async def server(space: Space, name: str = "jupyter-ann", **how: object) -> Object:
    """A pod whose URL is its lineage's, so that a restored one answers under the same."""
    manifest = space.pod_manifest(name, **how)
    prefix = f"/user/{manifest['metadata']['labels']['lineage']}/"
    manifest["spec"]["containers"][0]["env"] = [{"name": "JUPYTERHUB_SERVICE_PREFIX", "value": prefix}]
    await space.api.create(manifest)
    return await space.until_ready(name)


def objects(emulator: RunningEmulator, prefix: str = "") -> list[str]:
    """Names in the bucket."""
    url = f"{emulator.facts['bucket_url']}/o?prefix={prefix}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return [one["name"] for one in json.load(answer).get("items") or ()]


async def test_stop_ends_the_pod_with_success_and_its_memory_comes_back_in_another(space: Space, emulator: RunningEmulator) -> None:
    await space.policy(post="stop")
    pod = await server(space)
    assert count(pod)["count"] == 1
    snapshot = await space.saved()
    name = snapshot["metadata"]["name"]
    ended = await space.until("Pod", "jupyter-ann", lambda one: one["status"]["phase"] == "Succeeded")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    path = snapshot["status"]["storageStatus"]["gcs"]["observedGCSPath"]
    assert path == f"gs://{emulator.facts['bucket']}/hub-a/{name}"
    assert {one.rpartition("/")[2] for one in objects(emulator, f"hub-a/{name}/")} == {
        "checkpoint.img",
        "metadata",
        "pages.img",
        "pages_meta.img",
    }
    await space.delete_pod()
    again = await server(space, "jupyter-ann-2", restore=name)
    assert again["metadata"]["uid"] != pod["metadata"]["uid"]
    assert again["status"]["podIP"] != pod["status"]["podIP"]
    assert count(again)["count"] == 2
    told = await space.until("Pod", "jupyter-ann-2", lambda one: condition(one, "PodRestored"))
    assert name in condition(told, "PodRestored")["message"]
    assert (await space.until_event("jupyter-ann-2", "GKEPodSnapshotting", "Successfully restored"))[0] == "Normal"
    assert (await space.get("PodSnapshot", name))["status"]["lastAccessTime"]


async def test_resume_lets_the_original_go_on(space: Space) -> None:
    await space.policy(post="resume")
    pod = await server(space)
    before = count(pod)
    await space.saved()
    after = count(pod)
    assert (after["boot_id"], after["count"]) == (before["boot_id"], before["count"] + 1)


async def test_a_snapshot_says_whose_it_is(space: Space) -> None:
    await space.policy()
    pod = await server(space)
    snapshot = await space.saved()
    meta = snapshot["metadata"]
    assert meta["labels"] == {"gke-pod-snapshot-triggered-by": "pause-1", "lineage": "a"}
    assert meta["annotations"]["podsnapshot.gke.io/origin-pod"] == "jupyter-ann"
    assert meta["annotations"]["podsnapshot.gke.io/origin-node"] == pod["spec"]["nodeName"]
    assert meta["finalizers"] == ["podsnapshot.gke.io/podsnapshot-finalizer"]
    assert condition(snapshot, "Ready")["reason"] == "AllSnapshotsAvailable"
    trigger = await space.get("PodSnapshotManualTrigger", "pause-1")
    assert trigger["metadata"]["labels"]["podsnapshot.gke.io/targetNode"] == pod["spec"]["nodeName"]
    assert condition(trigger, "Triggered")["message"] == "checkpoint completed successfully"


async def test_by_default_the_newest_matching_snapshot_is_restored_asked_for_or_not(space: Space) -> None:
    await space.policy(post="resume")
    pod = await server(space)
    for number in (1, 2):
        count(pod)
        await space.saved(f"pause-{number}")
    await space.delete_pod()
    assert count(await server(space, "jupyter-2"))["count"] == 3
    assert count(await server(space, "jupyter-3", restore=""))["count"] == 1
    assert count(await server(space, "jupyter-4", lineage="other"))["count"] == 1


@pytest.mark.parametrize(
    ("change", "restored"),
    [
        (lambda c: c.update(image="example.org/singleuser:2"), False),
        (lambda c: c.update(args=["--debug"]), False),
        (lambda c: c.update(securityContext={"runAsUser": 7}), False),
        (lambda c: c.update(lifecycle={"preStop": {"exec": {"command": ["true"]}}}), False),
        (lambda c: c["env"].append({"name": "NEW", "value": "1"}), True),
        (lambda c: c.update(resources={"requests": {"cpu": "10m"}}), True),
    ],
)
async def test_a_pod_that_differs_in_the_distilled_spec_starts_cold_without_a_word(
    space: Space, change: Callable[[Object], object], restored: bool
) -> None:
    await space.policy()
    await server(space)
    snapshot = await space.saved()
    await space.delete_pod()
    manifest = space.pod_manifest("jupyter-2", restore=snapshot["metadata"]["name"])
    container = manifest["spec"]["containers"][0]
    container["env"] = [{"name": "JUPYTERHUB_SERVICE_PREFIX", "value": "/user/a/"}]
    change(container)
    await space.api.create(manifest)
    await space.until_ready("jupyter-2")
    await space.until_event("jupyter-2", "Started")
    if restored:
        await space.until("Pod", "jupyter-2", lambda one: condition(one, "PodRestored").get("status") == "True")
    else:
        pod = await space.get("Pod", "jupyter-2")
        assert not condition(pod, "PodRestored")
        assert not [one for one in await space.events("jupyter-2") if one[1] == "GKEPodSnapshotting"]


@pytest.mark.parametrize(
    "there",
    [
        {"gvisor": "20260301.0"},
        {"machine_type": "c3-standard-8"},
        {"cpu_platform": "Intel Skylake"},
    ],
)
async def test_a_node_that_is_not_like_the_snapshots_skips_the_restore_with_a_warning(
    space: Space, nodes: Nodes, there: dict[str, str]
) -> None:
    await space.policy()
    await server(space)
    snapshot = await space.saved()
    await space.delete_pod()
    await nodes.add(Machine("gke-other", pool="other", **there))
    try:
        where = {"cloud.google.com/gke-nodepool": "other"}
        pod = await server(space, "jupyter-2", restore=snapshot["metadata"]["name"], nodeSelector=where)
        assert count(pod)["count"] == 1
        kind, _, _ = await space.until_event("jupyter-2", "GKEPodSnapshotting", "falling back to a cold start of pod")
        assert kind == "Warning"
    finally:
        await nodes.remove("gke-other")


async def test_a_snapshot_that_is_not_there_is_a_cold_start(space: Space) -> None:
    await space.policy()
    pod = await server(space, restore="0b7e6c1e-5f0e-4c42-9c0b-3d1f8f2a9a11")
    assert count(pod)["count"] == 1
    await space.until_event("jupyter-ann", "GKEPodSnapshotting", "cold start")


async def test_only_the_newest_of_a_group_are_kept(space: Space, emulator: RunningEmulator) -> None:
    await space.policy(post="resume", keep=2)
    await server(space)
    names = [(await space.saved(f"pause-{number}"))["metadata"]["name"] for number in range(3)]
    await space.until_gone("PodSnapshot", names[0])
    assert not objects(emulator, f"hub-a/{names[0]}/")
    left = {one["metadata"]["name"] for one in await space.api.list("PodSnapshot", space.namespace)}
    assert left == set(names[1:])


async def test_a_snapshot_that_nobody_used_for_long_goes(space: Space, faults: Faults) -> None:
    await space.policy(post="resume", retentionConfig={"lastAccessTimeout": "7d"})
    await server(space)
    name = (await space.saved())["metadata"]["name"]
    await faults(clock_ahead=f"seconds={6 * 86400}")
    await asyncio.sleep(0)
    await space.saved("pause-2")
    assert await space.get("PodSnapshot", name)
    await faults(clock_ahead=f"seconds={8 * 86400}")
    await space.until_gone("PodSnapshot", name)


async def test_deleting_a_snapshot_deletes_its_files(space: Space, emulator: RunningEmulator) -> None:
    await space.policy(post="resume")
    await server(space)
    name = (await space.saved())["metadata"]["name"]
    assert objects(emulator, f"hub-a/{name}/")
    await space.api.delete("PodSnapshot", space.namespace, name)
    await space.until_gone("PodSnapshot", name)
    assert not objects(emulator, f"hub-a/{name}/")


async def test_when_the_policy_goes_first_the_files_stay_unseen(space: Space, emulator: RunningEmulator) -> None:
    await space.policy(post="resume")
    await server(space)
    name = (await space.saved())["metadata"]["name"]
    await space.api.delete("PodSnapshotPolicy", space.namespace, "notebooks")
    await space.until_gone("PodSnapshotPolicy", "notebooks")
    await space.api.delete("PodSnapshot", space.namespace, name)
    await space.until_gone("PodSnapshot", name)
    assert objects(emulator, f"hub-a/{name}/")


async def test_deleting_a_trigger_keeps_its_snapshot(space: Space) -> None:
    await space.policy(post="resume")
    await server(space)
    name = (await space.saved())["metadata"]["name"]
    await space.api.delete("PodSnapshotManualTrigger", space.namespace, "pause-1")
    await space.until_gone("PodSnapshotManualTrigger", "pause-1")
    assert condition(await space.get("PodSnapshot", name), "Ready")["status"] == "True"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"runtimeClassName": None}, "GKE Sandbox"),
        ({"lineage": None}, "grouping label"),
        ({"pausable": None}, "selects"),
    ],
)
async def test_what_cannot_be_saved_fails_its_trigger(space: Space, how: dict[str, None], words: str) -> None:
    await space.policy()
    manifest = space.pod_manifest("jupyter-ann")
    if "runtimeClassName" in how:
        del manifest["spec"]["runtimeClassName"]
    else:
        del manifest["metadata"]["labels"][next(iter(how))]
    await space.api.create(manifest)
    await space.until_ready("jupyter-ann")
    await space.trigger()
    trigger = await space.until_triggered("pause-1")
    assert condition(trigger, "Triggered")["status"] == "False"
    assert words in condition(trigger, "Triggered")["message"]
    assert not await space.api.list("PodSnapshot", space.namespace)


async def test_a_policy_without_its_bucket_is_not_ready(space: Space) -> None:
    spec = {
        "storageConfigName": "nowhere",
        "selector": {"matchLabels": {"a": "b"}},
        "triggerConfig": {"type": "manual"},
    }
    meta = {"name": "p", "namespace": space.namespace}
    await space.api.create({"apiVersion": "podsnapshot.gke.io/v1", "kind": "PodSnapshotPolicy", "metadata": meta, "spec": spec})
    policy = await space.until("PodSnapshotPolicy", "p", lambda one: condition(one, "Ready"))
    assert (condition(policy, "Ready")["status"], condition(policy, "Ready")["reason"]) == ("False", "TriggerFailed")


async def test_while_it_is_saved_a_pod_does_not_answer(space: Space, faults: Faults) -> None:
    await space.policy(post="resume")
    pod = await server(space)
    await faults(checkpoint_hangs="pod=jupyter-ann")
    await space.trigger()

    async def silent() -> bool:
        try:
            await asyncio.to_thread(urllib.request.urlopen, f"http://{pod['status']['podIP']}:8888/user/a/api", timeout=0.3)
        except (TimeoutError, urllib.error.URLError):
            return True
        return False

    await eventually("silence", silent)
    await faults(checkpoint_hangs=None)
    await space.until_triggered("pause-1")
    assert count(pod)["count"] == 1
