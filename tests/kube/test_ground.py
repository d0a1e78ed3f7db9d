"""The cluster itself: what a GKE has, who may write what, pods, nodes, volumes, outages."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.emulator.api import OUTAGES, Api, ApiError, Object, condition
from tests.emulator.binaries import binaries
from tests.emulator.nodes import Machine, Nodes
from tests.emulator.running import RunningEmulator, Space, account_kubeconfig, eventually

Faults = Callable[..., Awaitable[None]]


def ask(pod: Object, path: str = "count") -> Object:
    """A pretend server's answer."""
    url = f"http://{pod['status']['podIP']}:8888/user/{pod['metadata']['name']}/{path}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


# ---------------------------------------------------------------- what a GKE has


async def test_the_snapshot_api_is_discovered_with_its_five_kinds(admin: Api) -> None:
    found = await admin.call("GET", "/apis/podsnapshot.gke.io/v1")
    kinds = {one["kind"]: one["namespaced"] for one in found["resources"] if "/" not in one["name"]}
    assert kinds == {
        "PodSnapshot": True,
        "PodSnapshotManualTrigger": True,
        "PodSnapshotPolicy": True,
        "PodSnapshotStorageConfig": False,
        "PodSnapshotTokenRequest": True,
    }


async def test_nobody_but_gke_writes_a_snapshot_object_not_even_an_administrator(admin: Api, gke: Api, space: Space) -> None:
    meta = {"name": "mine", "namespace": space.namespace, "finalizers": ["podsnapshot.gke.io/podsnapshot-finalizer"]}
    manifest = {"apiVersion": "podsnapshot.gke.io/v1", "kind": "PodSnapshot", "metadata": meta, "spec": {"policyName": "p"}}
    with pytest.raises(ApiError) as refused:
        await admin.create(manifest)
    assert refused.value.status == 422
    await gke.create(manifest)
    for patch in ({"metadata": {"labels": {"a": "b"}}}, {"metadata": {"finalizers": []}}):
        with pytest.raises(ApiError) as refused:
            await admin.patch("PodSnapshot", space.namespace, "mine", patch)
        assert refused.value.status == 422
    await admin.delete("PodSnapshot", space.namespace, "mine")
    await space.until_gone("PodSnapshot", "mine")


@pytest.mark.parametrize(
    "spec",
    [
        {"storageConfigName": "x", "selector": {}, "triggerConfig": {"type": "onDelete"}},
        {"storageConfigName": "x", "selector": {}, "triggerConfig": {"type": "manual", "postCheckpoint": "pause"}},
        {"storageConfigName": "x", "selector": {}, "triggerConfig": {"type": "manual"}, "retentionConfig": {"lastAccessTimeout": "7m"}},
        {"storageConfigName": "x", "selector": {}, "triggerConfig": {"type": "manual"}, "snapshotScope": "memory"},
        {"storageConfigName": "x", "triggerConfig": {"type": "manual"}},
        {"storageConfigName": "x", "selector": {}, "triggerConfig": {"type": "manual"}, "snapshotGroupingRules": {}},
    ],
)
async def test_a_policy_that_the_page_does_not_allow_is_refused(admin: Api, space: Space, spec: Object) -> None:
    meta = {"name": "p", "namespace": space.namespace}
    with pytest.raises(ApiError) as refused:
        await admin.create({"apiVersion": "podsnapshot.gke.io/v1", "kind": "PodSnapshotPolicy", "metadata": meta, "spec": spec})
    assert refused.value.status in (400, 422)


async def test_a_service_account_may_what_its_role_says_and_no_more(admin: Api, space: Space, tmp_path: Path) -> None:
    config = await account_kubeconfig(admin, space.namespace, "hub", tmp_path / "hub.kubeconfig")
    async with Api(config) as hub:
        with pytest.raises(ApiError) as refused:
            await hub.list("Pod", space.namespace)
        assert refused.value.status == 403
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
        meta = {"name": "hub", "namespace": space.namespace}
        api_group = "rbac.authorization.k8s.io"
        await admin.create({"apiVersion": f"{api_group}/v1", "kind": "Role", "metadata": meta, "rules": [rule]})
        await admin.create(
            {
                "apiVersion": f"{api_group}/v1",
                "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": {"apiGroup": api_group, "kind": "Role", "name": "hub"},
                "subjects": [{"kind": "ServiceAccount", "name": "hub", "namespace": space.namespace}],
            }
        )

        async def allowed() -> bool:
            try:
                await hub.list("Pod", space.namespace)
            except ApiError:
                return False
            return True

        await eventually("the right", allowed)


# ---------------------------------------------------------------- pods


async def test_a_pod_runs_where_its_runtime_class_sends_it_and_answers_at_its_own_address(space: Space) -> None:
    pod = await space.pod()
    assert pod["spec"]["nodeName"].startswith("gke-workspaces")
    assert ask(pod)["count"] == 1
    assert ask(pod)["count"] == 2
    other = await space.pod("jupyter-bo", lineage="b")
    assert other["status"]["podIP"] != pod["status"]["podIP"]
    assert ask(other)["boot_id"] != ask(pod)["boot_id"]
    await space.until_event("jupyter-ann", "Started")


async def test_a_deleted_pod_gets_its_grace_and_finalizers_hold_its_object(space: Space) -> None:
    manifest = space.pod_manifest("jupyter-ann")
    manifest["metadata"]["finalizers"] = ["example.org/hold"]
    await space.api.create(manifest)
    pod = await space.until_ready("jupyter-ann")
    await space.api.delete("Pod", space.namespace, "jupyter-ann", grace=1)
    held = await space.until("Pod", "jupyter-ann", lambda one: one["metadata"].get("deletionGracePeriodSeconds") == 0)
    assert held["status"]["phase"] == "Succeeded"
    with pytest.raises(OSError):
        ask(pod)
    await space.api.patch("Pod", space.namespace, "jupyter-ann", {"metadata": {"finalizers": None}})
    await space.until_gone("Pod", "jupyter-ann")


@pytest.mark.parametrize(("policy", "phase", "restarts"), [("Never", "Failed", 0), ("OnFailure", "Pending", 2)])
async def test_a_container_that_ends_is_treated_as_its_restart_policy_says(space: Space, policy: str, phase: str, restarts: int) -> None:
    manifest = space.pod_manifest("jupyter-ann", restartPolicy=policy)
    manifest["spec"]["containers"][0]["image"] = "example.org/exits-1"
    await space.api.create(manifest)

    def done(pod: Object) -> bool:
        statuses = pod["status"].get("containerStatuses") or [{"restartCount": -1}]
        return statuses[0]["restartCount"] >= restarts and (policy != "Never" or pod["status"]["phase"] == phase)

    pod = await space.until("Pod", "jupyter-ann", done)
    if policy == "OnFailure":
        assert "CrashLoopBackOff" in json.dumps(pod["status"]["containerStatuses"])


async def test_a_pod_waits_for_the_secret_that_it_names_and_gets_what_is_in_it(space: Space) -> None:
    manifest = space.pod_manifest("jupyter-ann")
    reference = {"secretKeyRef": {"name": "token", "key": "prefix"}}
    manifest["spec"]["containers"][0]["env"] = [{"name": "JUPYTERHUB_SERVICE_PREFIX", "valueFrom": reference}]
    await space.api.create(manifest)
    await space.until_event("jupyter-ann", "Failed", 'secret "token" not found')
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": space.namespace}}
    await space.api.create({**secret, "stringData": {"prefix": "/user/jupyter-ann/"}})
    assert ask(await space.until_ready("jupyter-ann"))["count"] == 1


async def test_two_pods_for_one_gpu_only_one_is_placed_and_the_other_is_told(space: Space, nodes: Nodes) -> None:
    await nodes.add(Machine("gke-gpu-1", machine_type="g2-standard-8", pool="gpu", accelerator="nvidia-l4", count=1))
    try:
        for name in ("jupyter-ann", "jupyter-bo"):
            manifest = space.pod_manifest(name, lineage=name, nodeSelector={"cloud.google.com/gke-accelerator": "nvidia-l4"})
            manifest["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
            await space.api.create(manifest)
        await space.until_ready("jupyter-ann")
        await space.until_event("jupyter-bo", "FailedScheduling", "Insufficient nvidia.com/gpu")
        await space.until_event("jupyter-bo", "NotTriggerScaleUp")
        await space.delete_pod("jupyter-ann")
        await space.until_ready("jupyter-bo")
    finally:
        await nodes.remove("gke-gpu-1")


async def test_kubectl_reads_the_log_of_a_pod(space: Space, emulator: RunningEmulator) -> None:
    ask(await space.pod())
    kubectl = binaries().path("kubectl")
    command = [kubectl, "--kubeconfig", emulator.facts["kubeconfig"], "-n", space.namespace, "logs", "jupyter-ann"]
    insecure = [*command, "--insecure-skip-tls-verify-backend"]
    done = await asyncio.to_thread(subprocess.run, insecure, capture_output=True, text=True, env={**os.environ}, check=False)
    assert "GET /user/jupyter-ann/count" in done.stdout, done.stderr


# ---------------------------------------------------------------- volumes


def with_home(space: Space, name: str, claim: str, **spec: object) -> Object:
    manifest = space.pod_manifest(name, volumes=[{"name": "home", "persistentVolumeClaim": {"claimName": claim}}], **spec)
    manifest["spec"]["containers"][0]["volumeMounts"] = [{"name": "home", "mountPath": "/home/jovyan"}]
    return manifest


def claim_manifest(space: Space, name: str, storage_class: str | None = None, mode: str = "ReadWriteOnce") -> Object:
    spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": space.namespace}, "spec": spec}


async def test_a_home_is_made_in_the_zone_of_its_pod_and_is_at_one_node_at_a_time(space: Space) -> None:
    await space.api.create(claim_manifest(space, "home"))
    await space.api.create(with_home(space, "jupyter-ann", "home", nodeSelector={"kubernetes.io/hostname": "gke-workspaces-1"}))
    await space.until_ready("jupyter-ann")
    claim = await space.get("PersistentVolumeClaim", "home")
    volume = await space.api.get("PersistentVolume", None, claim["spec"]["volumeName"])
    terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"][0]["values"] == ["us-central1-a"]
    other = with_home(space, "jupyter-bo", "home", lineage="b", nodeSelector={"kubernetes.io/hostname": "gke-workspaces-2"})
    await space.api.create(other)
    await space.until_event("jupyter-bo", "FailedAttachVolume", "Multi-Attach")
    assert condition(await space.get("Pod", "jupyter-bo"), "Ready").get("status") != "True"
    await space.delete_pod("jupyter-ann")
    await space.until_ready("jupyter-bo")


async def test_a_shared_home_is_free(space: Space) -> None:
    await space.api.create(claim_manifest(space, "shared", "standard-rwx", "ReadWriteMany"))
    for number in (1, 2):
        where = {"kubernetes.io/hostname": f"gke-workspaces-{number}"}
        await space.api.create(with_home(space, f"jupyter-{number}", "shared", lineage=str(number), nodeSelector=where))
    for number in (1, 2):
        await space.until_ready(f"jupyter-{number}")


# ---------------------------------------------------------------- machines


async def test_a_dead_machine_is_found_out_by_its_lease_and_its_pod_is_evicted(space: Space, nodes: Nodes) -> None:
    await nodes.add(Machine("gke-doomed", pool="doomed"))
    try:
        await space.pod(nodeSelector={"cloud.google.com/gke-nodepool": "doomed"})
        await nodes.kill("gke-doomed")
        await space.until("Pod", "jupyter-ann", lambda pod: condition(pod, "Ready").get("status") == "False")
        await space.until("Pod", "jupyter-ann", lambda pod: pod["metadata"].get("deletionTimestamp"), 40)
        # Nobody is there who could end it: it stays, as on a cluster, until it is forced.
        assert await space.get("Pod", "jupyter-ann")
        await space.api.delete("Pod", space.namespace, "jupyter-ann", grace=0)
        await space.until_gone("Pod", "jupyter-ann")
    finally:
        await nodes.remove("gke-doomed")


async def test_a_preempted_machine_says_goodbye(space: Space, nodes: Nodes) -> None:
    await nodes.add(Machine("gke-spot", pool="spot", spot=True))
    await space.pod(nodeSelector={"cloud.google.com/gke-spot": "true"})
    await nodes.preempt("gke-spot")
    pod = await space.until("Pod", "jupyter-ann", lambda pod: pod["status"]["phase"] == "Failed")
    assert pod["status"]["reason"] == "Terminated"

    async def gone() -> bool:
        return await space.api.find("Node", None, "gke-spot") is None

    await eventually("the end of the Node", gone)


async def test_a_drained_and_upgraded_machine_comes_back_with_newer_versions(space: Space, nodes: Nodes) -> None:
    await nodes.add(Machine("gke-old", pool="old"))
    try:
        await space.pod(nodeSelector={"cloud.google.com/gke-nodepool": "old"})
        await nodes.upgrade("gke-old", gvisor="20260101.0", kubelet="v1.35.0-gke.1")
        assert await space.get("Pod", "jupyter-ann") is None
        node = await space.api.get("Node", None, "gke-old")
        assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.35.0-gke.1"
    finally:
        await nodes.remove("gke-old")


# ---------------------------------------------------------------- the control plane goes


async def test_an_apiserver_that_is_killed_comes_back_with_the_same_objects(space: Space, faults: Faults) -> None:
    pod = await space.pod()
    await faults(apiserver_restart="on")

    async def back() -> Object | None:
        try:
            return await space.get("Pod", "jupyter-ann")
        except OUTAGES:
            return None

    async def away() -> bool:
        return await back() is None

    await eventually("the end of the apiserver", away)
    assert (await eventually("the apiserver", back))["metadata"]["uid"] == pod["metadata"]["uid"]
    await space.pod("jupyter-bo", lineage="b")
    assert ask(pod)["count"] == 1


async def test_whoever_goes_on_from_an_old_revision_is_told_that_it_is_gone(space: Space, faults: Faults) -> None:
    before = (await space.api.call("GET", f"/api/v1/namespaces/{space.namespace}/pods"))["metadata"]["resourceVersion"]
    await space.pod()
    await faults(watch_expired="on")

    async def told() -> bool:
        try:
            async for kind, found in space.api.watch("Pod", before, space.namespace):
                return kind == "ERROR" and found["code"] == 410
        except ApiError as error:
            return error.status == 410
        except OUTAGES:
            return False
        return False

    await eventually("410 Gone", told)
    await space.pod("jupyter-bo", lineage="b")
