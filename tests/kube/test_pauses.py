"""Pause and resume through the Kubernetes path: real control plane, the rights and policies that helm-values/ ships, pretend pods."""

from __future__ import annotations

import asyncio
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


async def test_a_server_comes_back_as_the_same_process_again_and_again(hub: EmulatedHub, admin: Api) -> None:
    ann = Person(hub, "ann", admin)
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


async def test_what_the_pod_says_of_itself_holds_no_token_and_no_restore(hub: EmulatedHub, admin: Api) -> None:
    ann = Person(hub, "ann", admin)
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


async def test_after_a_stop_nothing_is_left_but_the_kept_snapshot(hub: EmulatedHub, admin: Api) -> None:
    ann = Person(hub, "ann", admin)
    await ann.started()
    await ann.stop()

    async def nothing() -> bool:
        return not any((await left(admin)).values())

    await eventually("nothing left in the cluster", nothing)


async def test_a_plain_start_is_never_a_restore_even_where_gke_ignores_the_empty_name(hub: EmulatedHub, admin: Api, faults: Switch) -> None:
    await faults(empty_ps_name_ignored="on")
    ann = Person(hub, "ann", admin)
    before = await ann.started()
    assert (await ann.pause())["phase"] == "paused"
    assert (await ann.resume())["phase"] == "running"
    await ann.ready()
    await ann.stop()
    after = await ann.started()
    assert after["boot_id"] != before["boot_id"]
    assert after["count"] == 1


SAVE_FAULTS = {
    "ignored": ("trigger_ignored", "on", "save_timeout"),
    "fails": ("checkpoint_fails", "on", "save_failed"),
    "errors": ("checkpoint_fails", "reason=Error", "save_failed"),
    "snapshotonly": ("checkpoint_fails", "trigger=no", "save_failed"),
    "upload": ("upload_fails", "on", "save_failed"),
}


async def test_a_save_that_fails_in_any_shape_leaves_the_server_running(hub: EmulatedHub, admin: Api, faults: Switch) -> None:
    people = {name: Person(hub, name, admin) for name in SAVE_FAULTS}
    before = {name: await person.started() for name, person in people.items()}
    for name, (fault, how, reason) in SAVE_FAULTS.items():
        await faults(**{fault: f"pod={people[name].pod_name}" + ("" if how == "on" else f" {how}")})
        after = await people[name].pause(90)
        assert (name, after["phase"], after["reason"]) == (name, "running", reason)
        assert not (await left(admin))["PodSnapshotManualTrigger"]
        await faults(**{fault: None})
        now = await people[name].answers()
        assert (now["boot_id"], now["pid"]) == (before[name]["boot_id"], before[name]["pid"])


async def test_a_save_that_hangs_is_given_up_and_the_server_goes_on_when_gke_lets_it(hub: EmulatedHub, admin: Api, faults: Switch) -> None:
    ann = Person(hub, "ann", admin)
    before = await ann.started()
    await faults(checkpoint_hangs="seconds=20")
    after = await ann.pause(90)
    assert (after["phase"], after["reason"]) == ("running", "save_timeout")
    assert (await ann.answers())["boot_id"] == before["boot_id"]


async def test_both_shapes_of_the_created_snapshot_and_a_late_word_make_no_difference(hub: EmulatedHub, admin: Api, faults: Switch) -> None:
    await faults(snapshot_created_is_text="on", pod_restored_late="seconds=8", checkpoint_file_absent="on", upload_slow="seconds=2")
    ann = Person(hub, "ann", admin)
    before = await ann.started()
    assert (await ann.pause())["phase"] == "paused"
    assert (await ann.resume())["phase"] == "running"
    await ann.ready()
    assert (await ann.count())["boot_id"] == before["boot_id"]


@pytest.mark.parametrize("event", ["", "event=no"], ids=["with the event", "without a word"])
async def test_a_restore_that_gke_skips_is_unproven_and_costs_no_snapshot(hub: EmulatedHub, admin: Api, faults: Switch, event: str) -> None:
    ann = Person(hub, "ann", admin)
    before = await ann.started()
    await ann.pause()
    await faults(restore_skipped=event or "on")
    assert (await ann.resume())["phase"] == "unproven"
    assert len((await left(admin))["PodSnapshot"]) == 1
    await faults(restore_skipped=None)
    pause_id = (await ann.workspace())["pause"]["id"]
    await hub.call("POST", f"/users/ann/server/pause/{pause_id}/retry")
    await ann.in_phase("running", 60)
    await ann.ready()
    assert (await ann.count())["boot_id"] == before["boot_id"]


async def test_a_restore_that_crashes_goes_back_to_paused_with_the_reason(hub: EmulatedHub, admin: Api, faults: Switch) -> None:
    ann = Person(hub, "ann", admin)
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


async def test_a_resume_that_waits_for_room_says_so_and_can_be_cancelled(hub: EmulatedHub, admin: Api, nodes: Nodes) -> None:
    ann = Person(hub, "ann", admin)
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
    hub: EmulatedHub, admin: Api, nodes: Nodes
) -> None:
    ann = Person(hub, "ann", admin)
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


async def test_under_stop_the_save_ends_the_pod_and_the_server_comes_back(
    make_hub: Callable[..., Awaitable[EmulatedHub]], admin: Api
) -> None:
    hub = await make_hub(GKEWorkspaceSpawner__post_checkpoint="stop")
    ann = Person(hub, "ann", admin)
    before = await ann.started()
    assert (await ann.pause())["phase"] == "paused"
    assert (await ann.resume())["phase"] == "running"
    await ann.ready()
    now = await ann.count()
    assert (now["boot_id"], now["count"]) == (before["boot_id"], before["count"] + 1)


async def test_under_stop_a_pause_is_not_cancelled_once_its_save_has_begun(
    make_hub: Callable[..., Awaitable[EmulatedHub]], admin: Api, faults: Switch
) -> None:
    hub = await make_hub(GKEWorkspaceSpawner__post_checkpoint="stop")
    ann = Person(hub, "ann", admin)
    before = await ann.started()
    await faults(upload_slow="seconds=4")
    asked = await ann.ask_pause()
    seen = await ann.in_phase("checkpointing")
    assert "cancel" not in seen["actions"]
    path = f"/users/ann/server/pause/{asked['pause']['id']}"
    assert await ann.status("POST", f"{path}/cancel") == 409
    assert await ann.status("POST", f"{path}/cancel-ticket", {"ticket": asked["cancel"]["ticket"]}) == 409
    assert (await ann.at_rest())["phase"] == "paused"
    assert (await ann.resume())["phase"] == "running"
    await ann.ready()
    assert (await ann.count())["boot_id"] == before["boot_id"]


async def test_a_snapshot_that_somebody_deletes_in_the_middle_of_its_save_costs_nothing(
    hub: EmulatedHub, admin: Api, faults: Switch
) -> None:
    ann = Person(hub, "ann", admin)
    before = await ann.started()
    await faults(checkpoint_hangs="seconds=3")
    await ann.ask_pause()

    async def begun() -> list[Any]:
        return await admin.list("PodSnapshot", NAMESPACE)

    (snapshot,) = await eventually("a PodSnapshot", begun)
    await admin.delete("PodSnapshot", NAMESPACE, snapshot["metadata"]["name"])
    after = await ann.at_rest(60)
    assert (after["phase"], after["reason"]) == ("running", "save_failed")
    assert (await ann.answers())["boot_id"] == before["boot_id"]
    await faults(checkpoint_hangs=None)
    assert (await ann.pause())["phase"] == "paused"
    assert (await ann.resume())["phase"] == "running"


@pytest.mark.parametrize("phase", ["preparing", "checkpointing", "saved", "stopping", "restoring"])
async def test_a_hub_killed_in_the_middle_ends_in_running_or_paused(hub: EmulatedHub, admin: Api, faults: Switch, phase: str) -> None:
    ann = Person(hub, "ann", admin)
    before = await ann.started()
    await faults(upload_slow="seconds=2", restore_slow="seconds=3")
    if phase == "restoring":
        await ann.pause()
        asking = asyncio.ensure_future(ann.start())
    else:
        asking = asyncio.ensure_future(ann.ask_pause())  # type: ignore[arg-type]
    try:
        await ann.in_phase(phase, 10)
    except AssertionError:
        pytest.fail(f"{phase} was over too soon to be seen")
    await hub.hub.kill()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await hub.start()
    after = await ann.at_rest(90)
    assert after["phase"] in ("running", "paused")
    if after["phase"] == "paused":
        assert (await ann.resume())["phase"] == "running"
    await ann.ready()
    assert (await ann.count())["boot_id"] == before["boot_id"]


async def test_nobody_but_the_hub_may_name_a_snapshot_or_ask_for_a_save(hub: EmulatedHub, admin: Api, tmp_path: Path) -> None:
    ann = Person(hub, "ann", admin)
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


TYPOS = {
    "a field that KubeSpawner knows not to be there": {"KubeSpawner__extra_pod_config": {"tolerationz": [{"key": "x"}]}},
    "a field that only the API server knows": {"KubeSpawner__volumes": [{"name": "scratch", "emptyDir": {"sizelimit": "1Gi"}}]},
}


@pytest.mark.parametrize("typo", list(TYPOS))
async def test_a_typo_in_the_configuration_is_told_at_the_start_and_no_500_for_a_user(
    make_hub: Callable[..., Awaitable[EmulatedHub]], admin: Api, typo: str
) -> None:
    hub = await make_hub(**TYPOS[typo])
    await eventually("the hub's word on it", lambda: logged(hub, "A start with the settings will "))
    ann = Person(hub, "ann", admin)
    assert await ann.status("POST", "/users/ann", {}) == 200
    assert await ann.start() == 409
    assert any(word in hub.hub.tail(200_000) for word in ("tolerationz", "sizelimit"))


async def logged(hub: EmulatedHub, words: str) -> bool:
    return words in hub.hub.tail(200_000)
