"""Pause and resume through the Kubernetes path: real control plane, the rights and policies that helm-values/ ships, pretend pods."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.api import Api
from tests.emulator.cluster import NAMESPACE
from tests.emulator.hub import EmulatedHub
from tests.emulator.nodes import Nodes
from tests.emulator.running import eventually
from tests.kube.people import Person, left

Switch = Callable[..., Awaitable[None]]


async def test_a_server_comes_back_as_the_same_process_again_and_again(ann: Person, admin: Api) -> None:
    before = await ann.started()
    address = (await ann.pod())["status"]["podIP"]
    for cycle in range(3):
        paused = await ann.pause()
        assert (paused["phase"], paused["reason"]) == ("paused", None)
        assert not await ann.pods()
        resumed = await ann.resume()
        assert (resumed["phase"], resumed["reason"]) == ("running", None)
        await ann.ready()
        now = await ann.count()
        assert (now["boot_id"], now["count"]) == (before["boot_id"], before["count"] + cycle + 1)
        assert (await ann.pod())["status"]["podIP"] != address


async def test_what_the_pod_says_of_itself_holds_no_token_and_no_restore(ann: Person, admin: Api) -> None:
    await ann.started()
    pod = await ann.pod()
    env = {entry["name"]: entry for entry in pod["spec"]["containers"][0]["env"]}
    assert "value" not in env["JUPYTERHUB_API_TOKEN"]
    assert env["JUPYTERHUB_API_TOKEN"]["valueFrom"]["secretKeyRef"]["key"] == "token"
    assert pod["metadata"]["annotations"]["podsnapshot.gke.io/ps-name"] == ""
    assert (pod["spec"]["runtimeClassName"], pod["spec"]["restartPolicy"]) == ("gvisor", "Never")
    first = pod["metadata"]["labels"]["gke-workspaces/lineage"]
    await ann.stop()
    await ann.started()
    assert (await ann.pod())["metadata"]["labels"]["gke-workspaces/lineage"] != first


async def test_after_a_stop_nothing_is_left(ann: Person, admin: Api) -> None:
    await ann.started()
    await ann.stop()

    async def nothing() -> bool:
        return not any((await left(admin)).values())

    await eventually("nothing left in the cluster", nothing)


async def test_a_plain_start_is_never_a_restore_even_where_gke_ignores_the_empty_name(ann: Person, faults: Switch) -> None:
    await faults(empty_ps_name_ignored="on")
    before = await ann.started()
    assert (await ann.pause())["phase"] == "paused"
    assert (await ann.resume())["phase"] == "running"
    await ann.ready()
    await ann.stop()
    after = await ann.started()
    assert after["boot_id"] != before["boot_id"]
    assert after["count"] == 1


HANGS = 20
"""Seconds for which GKE holds a pod whose save it never finishes: longer than the Hub waits for it, and for the server extension."""
SAVE_FAULTS = (
    {
        "ignored": ("trigger_ignored", "", "save_timeout"),
        "hangs": ("checkpoint_hangs", f" seconds={HANGS}", "save_timeout"),
        "fails": ("checkpoint_fails", "", "save_failed"),
        "upload": ("upload_fails", "", "save_failed"),
    },
    {"errors": ("checkpoint_fails", " reason=Error", "save_failed")},
    {"snapshotonly": ("checkpoint_fails", " trigger=no", "save_failed")},
)
"""Faults that are there at once: by user, the fault, how, and the reason that the pause fails with."""


async def test_a_save_that_fails_in_any_shape_leaves_the_server_running(hub: EmulatedHub, admin: Api, faults: Switch) -> None:
    async def fails(name: str, reason: str) -> None:
        person = people[name]
        after = await person.pause(90)
        assert (name, after["phase"], after["reason"]) == (name, "running", reason)
        now = await person.answers()
        assert (now["boot_id"], now["pid"]) == (before[name]["boot_id"], before[name]["pid"])

    people = {name: Person(hub, name, admin) for at_once in SAVE_FAULTS for name in at_once}
    before = dict(zip(people, await asyncio.gather(*(person.started() for person in people.values())), strict=True))
    for at_once in SAVE_FAULTS:
        await faults(**{fault: f"pod={people[name].pod_name}{how}" for name, (fault, how, _reason) in at_once.items()})
        await asyncio.gather(*(fails(name, reason) for name, (_fault, _how, reason) in at_once.items()))
        assert not (await left(admin))["PodSnapshotManualTrigger"]


async def test_both_shapes_of_the_created_snapshot_and_a_late_word_make_no_difference(ann: Person, faults: Switch) -> None:
    await faults(snapshot_created_is_text="on", pod_restored_late="seconds=8", checkpoint_file_absent="on", upload_slow="seconds=2")
    before = await ann.started()
    assert (await ann.pause())["phase"] == "paused"
    assert (await ann.resume())["phase"] == "running"
    await ann.ready()
    assert (await ann.count())["boot_id"] == before["boot_id"]


@pytest.mark.parametrize("event", ["", "event=no"], ids=["with the event", "without a word"])
async def test_a_restore_that_gke_skips_is_unproven_and_costs_no_snapshot(ann: Person, admin: Api, faults: Switch, event: str) -> None:
    before = await ann.started()
    await ann.pause()
    await faults(restore_skipped=event or "on")
    assert (await ann.resume())["phase"] == "unproven"
    assert len((await left(admin))["PodSnapshot"]) == 1
    await faults(restore_skipped=None)
    assert await ann.ask("retry") == 200
    await ann.in_phase("running", 60)
    await ann.ready()
    assert (await ann.count())["boot_id"] == before["boot_id"]


async def test_a_restore_that_crashes_goes_back_to_paused_with_the_reason(ann: Person, faults: Switch) -> None:
    before = await ann.started()
    await ann.pause()
    await faults(restore_crashes="on")
    after = await ann.resume(60)
    assert (after["phase"], after["reason"]) == ("paused", "restore_failed")
    await ann.until_no_pod()
    await faults(restore_crashes=None)
    assert (await ann.resume())["phase"] == "running"
    await ann.ready()
    assert (await ann.count())["boot_id"] == before["boot_id"]


async def test_a_server_that_takes_too_much_memory_is_not_started_again_in_place_and_goes_back_to_its_last_pause(
    ann: Person, faults: Switch
) -> None:
    before = await ann.started()
    await ann.pause()
    await ann.resume()
    await ann.ready()
    assert (await ann.count())["count"] == before["count"] + 1
    await faults(pod_oom=f"pod={ann.pod_name} times=1")
    ended = await ann.in_phase("paused")
    assert ended["reason"] == "ended_by_itself"
    await ann.until_no_pod()
    assert (await ann.resume())["phase"] == "running"
    await ann.ready()
    after = await ann.count()
    assert (after["boot_id"], after["count"]) == (before["boot_id"], before["count"] + 1)


async def test_a_resume_that_waits_for_room_says_so_and_can_be_cancelled(ann: Person, admin: Api, nodes: Nodes) -> None:
    await ann.started()
    await ann.pause()
    machines = [node["metadata"]["name"] for node in await admin.list("Node")]
    for machine in machines:
        await nodes.cordon(machine)
    try:
        start = asyncio.ensure_future(ann.start())
        seen = await ann.in_phase("waiting")

        async def told() -> str | None:
            sentence: str = (await ann.workspace())["sentence"]
            return sentence if sentence != seen["sentence"] or "machine" in sentence else None

        assert await eventually("a reason for the wait", told)
        assert (await ann.pod())["status"]["phase"] == "Pending"
        assert await start == 200, "it goes on outside of the Hub's start"
        seen = await ann.workspace()
        assert (seen["phase"], seen["hub"]) == ("waiting", {"ready": False, "pending": None})
        assert "node" in seen["detail"], "what the scheduler or the autoscaler said"
        await ann.cancel()
        assert (await ann.at_rest())["reason"] == "cancelled"
        await ann.until_no_pod()
        assert len((await left(admin))["PodSnapshot"]) == 1
    finally:
        for machine in machines:
            await nodes.cordon(machine, on=False)
    assert (await ann.resume())["phase"] == "running"


async def test_a_resume_that_waited_for_room_comes_back_by_itself_in_the_place_that_it_has_kept(
    ann: Person, admin: Api, nodes: Nodes
) -> None:
    before = await ann.started()
    await ann.pause()
    machines = [node["metadata"]["name"] for node in await admin.list("Node")]
    for machine in machines:
        await nodes.cordon(machine)
    try:
        assert await ann.start() == 200
        assert (await ann.workspace())["phase"] == "waiting"
        pod = await ann.pod()
    finally:
        for machine in machines:
            await nodes.cordon(machine, on=False)
    assert (await ann.at_rest())["phase"] == "running"
    await ann.ready()
    assert (await ann.count())["boot_id"] == before["boot_id"]
    assert (await ann.pod())["metadata"]["uid"] == pod["metadata"]["uid"]


async def test_under_stop_the_save_ends_the_pod_and_the_server_comes_back(ann: Person) -> None:
    before = await ann.started(profile="stop")
    assert (await ann.pause())["phase"] == "paused"
    assert (await ann.resume())["phase"] == "running"
    await ann.ready()
    now = await ann.count()
    assert (now["boot_id"], now["count"]) == (before["boot_id"], before["count"] + 1)


async def test_under_stop_a_pause_is_not_cancelled_once_its_save_has_begun(ann: Person, faults: Switch) -> None:
    before = await ann.started(profile="stop")
    await faults(upload_slow="seconds=60")
    asked = await ann.ask_pause()
    seen = await ann.in_phase("checkpointing")
    assert "cancel" not in seen["actions"]
    assert await ann.ask("cancel") == 409
    assert await ann.ask("cancel-ticket", {"ticket": asked["cancel"]["ticket"]}) == 409
    await faults(upload_slow=None)
    assert (await ann.at_rest())["phase"] == "paused"
    assert (await ann.resume())["phase"] == "running"
    await ann.ready()
    assert (await ann.count())["boot_id"] == before["boot_id"]


async def test_a_snapshot_that_somebody_deletes_in_the_middle_of_its_save_costs_nothing(ann: Person, admin: Api, faults: Switch) -> None:
    before = await ann.started()
    await faults(checkpoint_hangs="on")
    await ann.ask_pause()

    async def begun() -> list[Any]:
        return await admin.list("PodSnapshot", NAMESPACE)

    (snapshot,) = await eventually("a PodSnapshot", begun)
    await admin.delete("PodSnapshot", NAMESPACE, snapshot["metadata"]["name"])
    await faults(checkpoint_hangs=None)
    after = await ann.at_rest(60)
    assert (after["phase"], after["reason"]) == ("running", "save_failed")
    assert (await ann.answers())["boot_id"] == before["boot_id"]
    assert (await ann.pause())["phase"] == "paused"
    assert (await ann.resume())["phase"] == "running"


async def test_nobody_but_the_hub_may_name_a_snapshot_or_ask_for_a_save(ann: Person, admin: Api, tmp_path: Path) -> None:
    await ann.started()
    lineage = (await ann.pod())["metadata"]["labels"]["gke-workspaces/lineage"]
    async with await somebody_with_edit(admin, tmp_path) as other:
        plain: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "thief", "namespace": NAMESPACE},
            "spec": {"containers": [{"name": "c", "image": "example.org/pause:1"}]},
        }
        trigger = {
            "apiVersion": "podsnapshot.gke.io/v1",
            "kind": "PodSnapshotManualTrigger",
            "metadata": {"name": "thief", "namespace": NAMESPACE},
            "spec": {"targetPod": ann.pod_name},
        }
        for metadata in ({"annotations": {"podsnapshot.gke.io/ps-name": "x"}}, {"labels": {"gke-workspaces/lineage": lineage}}):
            assert await refused(other.create({**plain, "metadata": {**plain["metadata"], **metadata}}))
        assert await refused(other.create(trigger))
        await other.create(plain)
        changed = {"metadata": {"labels": {"gke-workspaces/lineage": lineage}}}
        assert await refused(other.patch("Pod", NAMESPACE, "thief", changed))
        await other.delete("Pod", NAMESPACE, "thief", grace=0)


async def refused(call: Awaitable[Any]) -> bool:
    """Whether the admission policy of helm-values/ says no."""
    try:
        await call
    except Exception as error:  # noqa: BLE001 - whatever class the emulator's client has for it
        return "Only the hub may" in str(error)
    return False


async def somebody_with_edit(admin: Api, folder: Path) -> Api:
    """An account with ``edit`` in the hub's namespace, and everything of Pod Snapshots."""
    from tests.emulator.api import write_kubeconfig

    group, meta = "rbac.authorization.k8s.io", {"name": "somebody", "namespace": NAMESPACE}
    rules = [{"apiGroups": ["podsnapshot.gke.io"], "resources": ["*"], "verbs": ["*"]}]
    subject = [{"kind": "ServiceAccount", **meta}]
    await admin.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    await admin.apply({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules})
    for name, role in (("somebody", {"kind": "Role", "name": "somebody"}), ("somebody-edit", {"kind": "ClusterRole", "name": "edit"})):
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "roleRef": {"apiGroup": group, **role},
            "subjects": subject,
        }
        await admin.apply(binding)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = await admin.call("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/somebody/token", body)
    return Api(write_kubeconfig(folder / "somebody.kubeconfig", admin.server, admin.authority, answer["status"]["token"], NAMESPACE))


async def test_a_typo_in_the_configuration_is_told_at_the_start_and_no_500_for_a_user(ann: Person, hub: EmulatedHub) -> None:
    async def told() -> bool:
        log = hub.hub.tail(1_000_000)
        by_kubespawner = re.search("A start with profile 'a field that KubeSpawner knows not to be there' will fail: .*tolerationz", log)
        by_the_api_server = re.search("A start with profile 'a field that only the API server knows' will be refused: .*sizelimit", log)
        return bool(by_kubespawner and by_the_api_server)

    await eventually("the hub's word on them", told)
    await ann.made()
    assert [await ann.start(profile=name) for name in ("typo-1", "typo-2")] == [409, 409]
