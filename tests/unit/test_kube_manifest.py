"""What a pausable pod has that KubeSpawner's own has not, what speaks against pausing one, and what a restore asks for."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from gke_workspaces_spawner.kube import facts, manifest
from gke_workspaces_spawner.kube.manifest import Pausable

TOKEN = "a-token-of-the-hub"
SETTINGS = Pausable("0" * 32, "hub-1", "gke-workspaces-server-000")


def pod(**spec: Any) -> dict[str, Any]:
    """A pod as KubeSpawner makes it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "jupyter-ann", "labels": {"component": "singleuser-server"}, "annotations": {"a": "b"}},
        "spec": {
            "restartPolicy": "OnFailure",
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "notebook",
                    "image": "quay.io/jupyter/base-notebook:1",
                    "env": [
                        {"name": "HOME", "value": "/home/jovyan"},
                        {"name": "JPY_API_TOKEN", "value": TOKEN},
                        {"name": "JUPYTERHUB_API_TOKEN", "value": TOKEN},
                    ],
                    "resources": {"limits": {"memory": "1Gi"}, "requests": {}},
                    "volumeMounts": [{"name": "home", "mountPath": "/home/jovyan"}],
                }
            ],
            "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "claim-ann"}}],
            **spec,
        },
    }


def made(**spec: Any) -> dict[str, Any]:
    return manifest.pausable(pod(**spec), SETTINGS, TOKEN)


def env_of(each: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry for entry in manifest.notebook_of(each)["env"]}


# ---------------------------------------------------------------- a cold start


def test_no_token_is_left_in_a_pausable_pod():
    beside = {"name": "beside", "image": "x", "env": [{"name": "MY_TOKEN", "value": TOKEN}]}
    whole = manifest.pausable(pod(initContainers=[beside]), SETTINGS, TOKEN)
    assert TOKEN not in json.dumps(whole)
    assert whole["spec"]["initContainers"][0]["env"][0]["valueFrom"]["secretKeyRef"] == {"name": SETTINGS.secret, "key": "token"}


def test_the_token_comes_from_the_secret_under_both_names():
    env = env_of(made())
    for name in ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN"):
        assert env[name] == {"name": name, "valueFrom": {"secretKeyRef": {"name": SETTINGS.secret, "key": "token"}}}
    assert env["GKE_WORKSPACES_GUEST_SECRET"]["valueFrom"]["secretKeyRef"]["key"] == "guest"


def test_a_cold_start_is_never_a_restore():
    whole = made()
    assert whole["metadata"]["annotations"] == {"a": "b", "podsnapshot.gke.io/ps-name": ""}
    assert whole["metadata"]["labels"]["gke-workspaces/lineage"] == SETTINGS.lineage
    assert manifest.snapshot_of(whole) == ""


def test_the_server_is_never_started_again_in_place_and_runs_in_a_sandbox():
    spec = made()["spec"]
    assert (spec["restartPolicy"], spec["runtimeClassName"]) == ("Never", "gvisor")


def test_runtime_files_lie_outside_of_the_home_unless_the_admin_says_where():
    assert env_of(made())["JUPYTER_RUNTIME_DIR"]["value"] == "/tmp/jupyter-runtime"
    chosen = pod()
    chosen["spec"]["containers"][0]["env"].append({"name": "JUPYTER_RUNTIME_DIR", "value": "/run/jupyter"})
    assert env_of(manifest.pausable(chosen, SETTINGS, TOKEN))["JUPYTER_RUNTIME_DIR"]["value"] == "/run/jupyter"


def test_what_comes_in_is_not_changed():
    before = pod()
    kept = copy.deepcopy(before)
    manifest.pausable(before, SETTINGS, TOKEN)
    manifest.restored(before, "s", {"x": "y"})
    assert before == kept


# ---------------------------------------------------------------- what speaks against it

GPU = {"nvidia.com/gpu": "1"}


def with_notebook(**changes: Any) -> dict[str, Any]:
    each = pod()
    each["spec"]["containers"][0].update(changes)
    return each


@pytest.mark.parametrize(
    ("each", "code"),
    [
        (with_notebook(resources={"limits": {"google.com/tpu": "4"}}), "tpu"),
        (pod(nodeSelector={"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"}), "tpu"),
        (pod(nodeSelector={"cloud.google.com/gke-gpu-partition-size": "1g.5gb"}), "mig"),
        (with_notebook(resources={"limits": {"nvidia.com/gpu": 2}}), "several_gpus"),
        (pod(nodeSelector={"cloud.google.com/machine-family": "e2"}), "e2"),
        (pod(initContainers=[{"name": "i", "image": "x", "securityContext": {"privileged": True}}]), "privileged"),
        (pod(initContainers=[{"name": "i", "image": "x", "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}]), "privileged"),
        (with_notebook(livenessProbe={"httpGet": {"port": 8888}}), "liveness_probe"),
        (with_notebook(args=["code-server", "--port", "8888"]), "vscode"),
        (pod(initContainers=[{"name": "i", "image": "x", "restartPolicy": "Always"}]), "side_car"),
        (pod(volumes=[{"name": "data", "hostPath": {"path": "/mnt"}}]), "host_path"),
        (pod(volumes=[{"name": "b", "csi": {"driver": "gcsfuse.csi.storage.gke.io"}}]), "gcs_fuse"),
        (pod(hostNetwork=True), "host_namespace"),
        (pod(runtimeClassName="kata"), "runtime_class"),
        (pod(automountServiceAccountToken=True), "service_account_token"),
    ],
)
def test_what_cannot_be_saved_is_said_before_the_start(each: dict[str, Any], code: str):
    assert [blocker.code for blocker in manifest.blockers(each, SETTINGS)] == [code]


@pytest.mark.parametrize(
    "each",
    [
        pod(),
        pod(runtimeClassName="gvisor"),
        with_notebook(resources={"limits": GPU}),
        pod(
            nodeSelector={"cloud.google.com/gke-accelerator": "nvidia-l4"},
            containers=[{"name": "notebook", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
        ),
        pod(initContainers=[{"name": "i", "image": "x"}]),
    ],
)
def test_what_can_be_saved_is_not_refused(each: dict[str, Any]):
    assert manifest.blockers(each, SETTINGS) == ()


def test_a_container_beside_it_is_no_obstacle_where_the_save_ends_the_pod():
    each = pod()
    each["spec"]["containers"].append({"name": "beside", "image": "x"})
    stops = Pausable("0" * 32, "hub-1", "s", policy="stop")
    assert manifest.blockers(each, stops) == ()
    assert [blocker.code for blocker in manifest.blockers(each, SETTINGS)] == ["side_car"]


# ---------------------------------------------------------------- a restore

NODE = {
    "metadata": {
        "labels": {
            "cloud.google.com/machine-family": "n2",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": "us-central1-a",
            "kubernetes.io/hostname": "node-1",
        }
    },
    "status": {"nodeInfo": {"kubeletVersion": "v1.34.4-gke.1"}},
}


def test_a_restore_asks_for_a_node_like_the_origin_and_never_for_the_origin_itself():
    origin = manifest.origin_of(NODE)
    assert set(origin) == {"cloud.google.com/machine-family", "kubernetes.io/arch", "topology.kubernetes.io/zone"}
    whole = manifest.restored(made(), "snap-1", origin)
    assert whole["metadata"]["annotations"][facts.PS_NAME] == "snap-1"
    terms = whole["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    rules = {rule["key"]: rule["values"] for rule in terms[0]["matchExpressions"]}
    assert rules == {key: [value] for key, value in origin.items()}


def test_every_alternative_of_the_admins_affinity_gets_the_origins_rules():
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [name]}]} for name in ("a", "b")]
    own = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    whole = manifest.restored(made(affinity=own), "snap-1", {"zone": "z"})
    found = whole["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [[rule["key"] for rule in term["matchExpressions"]] for term in found] == [["pool", "zone"], ["pool", "zone"]]


def test_without_the_right_to_read_nodes_nothing_is_asked_of_them():
    assert "affinity" not in manifest.restored(made(), "snap-1", manifest.origin_of(None))["spec"]


def changed(path: str, value: Any) -> dict[str, Any]:
    each = made()
    *where, last = path.split(".")
    inner: Any = each["spec"]
    for name in where:
        inner = inner[int(name)] if name.isdigit() else inner[name]
    inner[last] = value
    return each


@pytest.mark.parametrize(
    ("saved", "what"),
    [
        (changed("serviceAccountName", "powerful"), "service account"),
        (changed("serviceAccount", "powerful"), "service account"),
        (changed("volumes", [*made()["spec"]["volumes"], {"name": "gone", "persistentVolumeClaim": {"claimName": "c"}}]), "volume gone"),
        (changed("volumes", [{"name": "home", "persistentVolumeClaim": {"claimName": "claim-bob"}}]), "volume home"),
        (changed("containers.0.volumeMounts", [{"name": "home", "mountPath": "/"}]), "mount / of container notebook"),
        (changed("containers.0.image", "other:1"), "image of container notebook"),
        (changed("containers.0.securityContext", {"runAsUser": 0}), "security context of container notebook"),
        (changed("securityContext", {"fsGroup": 0}), "security context of the pod"),
        (
            changed("containers.0.resources", {"limits": {"memory": "1Gi", **GPU}}),
            "resource nvidia.com/gpu of container notebook",
        ),
        (changed("containers.0.resources", {"limits": {"memory": "2Gi"}}), "memory of container notebook"),
        (changed("containers.0.resources", {}), "memory of container notebook"),
        (changed("nodeSelector", {"cloud.google.com/gke-accelerator": "nvidia-h100"}), "accelerator"),
        (changed("priorityClassName", "first"), "priorityClassName"),
    ],
)
def test_a_resume_gets_nothing_that_a_start_of_today_would_not(saved: dict[str, Any], what: str):
    assert manifest.not_granted(saved, made()) == what
    assert manifest.not_granted(made(), made()) is None


def test_more_rights_of_today_are_no_reason_against_a_resume():
    today = made()
    today["spec"]["containers"][0]["resources"] = {"limits": {"memory": "4Gi", "nvidia.com/gpu": "1"}}
    today["spec"]["volumes"].append({"name": "more", "emptyDir": {}})
    assert manifest.not_granted(made(), today) is None


@pytest.mark.parametrize(
    ("text", "number"), [("1Gi", 2**30), ("500m", 0.5), ("2", 2), (4, 4), ("1e3", 1000), ("10M", 1e7), ("1.5G", 1.5e9), ("128Ki", 131072)]
)
def test_quantities_are_read_as_kubernetes_means_them(text: Any, number: float):
    assert manifest.quantity(text) == number
