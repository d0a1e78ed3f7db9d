"""`gke-workspaces doctor` against a real API server: well where all of helm-values is applied, and each fault that is made is found."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.emulator.api import Api, Object, condition
from tests.emulator.cluster import NAMESPACE
from tests.emulator.hub import hub_account, shipped_policies
from tests.emulator.nodes import Machine, Nodes
from tests.emulator.running import RunningEmulator, eventually

SECONDS = 60.0
STORAGE = "gke-workspaces"
GRANT = "doctor-test"
NOT_AS_GKES = {"version", "bucket-region", "bucket-hierarchical", "bucket-soft-delete", "bucket-lifecycle"}
NOT_AS_GKES |= {"bucket-public", "bucket-uniform", "bucket-readers"}
"""The emulated cluster has an older version, and the object storage of the tests drops a bucket's settings."""

Doctor = Callable[..., Awaitable[dict[str, str]]]


@pytest_asyncio.fixture(loop_scope="module")
async def doctor(emulator: RunningEmulator, admin: Api, tmp_path: Path) -> AsyncIterator[Doctor]:
    """The command over a cluster with all of helm-values, as the administrator or as the hub: what it finds not well, by check."""
    hubs = await hub_account(admin, tmp_path / "hub.kubeconfig")
    await shipped_policies(admin)

    async def run(*, as_hub: bool = False) -> dict[str, str]:
        kubeconfig = str(hubs if as_hub else emulator.facts["kubeconfig"])
        command = [
            sys.executable,
            "-m",
            "gke_workspaces_spawner.cli",
            "doctor",
            "--json",
            "--namespace",
            NAMESPACE,
            "--kubeconfig",
            kubeconfig,
        ]
        environment = {**os.environ, "STORAGE_EMULATOR_HOST": emulator.facts["storage_emulator_host"]}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=pipe)
        try:
            out, errors = await asyncio.wait_for(process.communicate(), SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode in (0, 1), errors.decode()
        found: dict[str, str] = {}
        said = json.loads(out)["findings"]
        assert bool(process.returncode) is any(one["state"] == "fault" for one in said)
        for one in said:
            check, state = one["check"], one["state"]
            if state != "ok" and check not in NOT_AS_GKES and not check.startswith(("guess/", "values")):
                found[check] = state if found.get(check) != "fault" else "fault"
        return found

    yield run
    for kind, namespace in (("RoleBinding", NAMESPACE), ("Role", NAMESPACE)):
        if await admin.find(kind, namespace, GRANT) is not None:
            await admin.delete(kind, namespace, GRANT)
    await hub_account(admin, tmp_path / "hub.kubeconfig")
    await shipped_policies(admin)


async def storage(admin: Api, **gcs: Any) -> None:
    """Change where and how saved states are stored."""
    await admin.patch("PodSnapshotStorageConfig", None, STORAGE, {"spec": {"snapshotStorageConfig": {"gcs": gcs}}})


async def test_a_cluster_with_all_of_helm_values_is_well(doctor: Doctor) -> None:
    assert await doctor() == {}


async def test_the_hubs_own_account_may_not_see_everything_and_finds_nothing_wrong(doctor: Doctor) -> None:
    found = await doctor(as_hub=True)
    assert set(found.values()) == {"unknown"}
    assert "rights" not in found
    assert found.keys() >= {"storage-config", "token-source", "admission", "others-secrets"}


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "check", "state"),
    [
        ("RoleBinding", NAMESPACE, "gke-workspaces-hub", "rights", "fault"),
        ("ClusterRoleBinding", None, "gke-workspaces-nodes", "node-rights", "warning"),
        ("ValidatingAdmissionPolicyBinding", None, "gke-workspaces", "admission", "fault"),
        ("PodSnapshotPolicy", NAMESPACE, "gke-workspaces-stop", "policies", "fault"),
    ],
)
async def test_what_was_not_applied_is_found(
    doctor: Doctor, admin: Api, kind: str, namespace: str | None, name: str, check: str, state: str
) -> None:
    await admin.delete(kind, namespace, name)

    async def gone() -> bool:
        return await admin.find(kind, namespace, name) is None

    await eventually(f"the end of {name}", gone)
    assert await doctor() == {check: state}


async def test_a_shared_service_account_for_the_bucket_is_found(doctor: Doctor, admin: Api) -> None:
    await storage(admin, tokenSource="podKSA")
    try:
        assert await doctor() == {"token-source": "fault"}
    finally:
        await storage(admin, tokenSource="federatedP4SA")


async def test_a_bucket_that_is_not_there_is_found(doctor: Doctor, admin: Api) -> None:
    config: Object = await admin.get("PodSnapshotStorageConfig", None, STORAGE)
    bucket = config["spec"]["snapshotStorageConfig"]["gcs"]["bucket"]
    await storage(admin, bucket="nowhere")

    async def not_ready() -> bool:
        return condition(await admin.get("PodSnapshotStorageConfig", None, STORAGE), "Ready").get("status") == "False"

    try:
        await eventually("a storage config that is not Ready", not_ready)
        assert await doctor() == {"storage-config": "fault", "bucket": "fault"}
    finally:
        await storage(admin, bucket=bucket)


@pytest.mark.parametrize(
    ("rule", "check"),
    [
        ({"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}, "others-secrets"),
        ({"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]}, "others-exec"),
    ],
)
async def test_a_right_that_everybody_was_given_is_found(doctor: Doctor, admin: Api, rule: Object, check: str) -> None:
    group = "rbac.authorization.k8s.io"
    meta = {"name": GRANT, "namespace": NAMESPACE}
    await admin.create({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": [rule]})
    everybody = {"kind": "Group", "apiGroup": group, "name": "system:authenticated"}
    reference = {"apiGroup": group, "kind": "Role", "name": GRANT}
    await admin.create(
        {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": reference, "subjects": [everybody]}
    )
    assert await doctor() == {check: "fault"}


async def test_machines_that_cannot_save_are_found(doctor: Doctor, nodes: Nodes) -> None:
    await nodes.add(Machine("gke-e2-1", pool="cheap", machine_type="e2-standard-4"))
    try:
        assert await doctor() == {"nodes": "warning"}
    finally:
        await nodes.remove("gke-e2-1")
