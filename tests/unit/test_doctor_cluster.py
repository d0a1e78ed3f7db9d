"""The doctor about a cluster: nothing is said of one that is well, and each thing that is not is found by its own check."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_workspaces_spawner.kube.doctor import State, exit_code
from gke_workspaces_spawner.kube.doctor.cluster import check_cluster, parse_version
from gke_workspaces_spawner.kube.doctor.findings import Finding, Unread, data
from gke_workspaces_spawner.kube.doctor.guesses import check_guesses
from gke_workspaces_spawner.kube.doctor.others import check_others
from gke_workspaces_spawner.kube.doctor.seen import NoCluster, Right, Seen, look, rights
from gke_workspaces_spawner.kube.doctor.snapshots import bucket_name, check_snapshots
from tests.fakes.cluster import HELM_VALUES, FakeCluster, node, well

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = Unread("Your account may not ask that.")

Change = Callable[[Seen], Seen]


def findings(seen: Seen) -> list[Finding]:
    return [*check_cluster(seen), *check_snapshots(seen), *check_others(seen)]


def bad(seen: Seen) -> dict[str, State]:
    """What is not well, by check: the worst of each."""
    worst: dict[str, State] = {}
    for one in findings(seen):
        if one.state is not State.OK:
            worst[one.check] = min(one.state, worst.get(one.check, one.state), key=list(State).index)
    return worst


def changed(part: str, which: int, *path: str, to: Any) -> Change:
    """Set one field of one object; ``to`` None removes it."""

    def change(seen: Seen) -> Seen:
        objects = copy.deepcopy(getattr(seen, part))
        at = objects[which]
        for step in path[:-1]:
            at = at[step]
        if to is None:
            del at[path[-1]]
        else:
            at[path[-1]] = to
        return replace(seen, **{part: objects})

    return change


def having(**parts: Any) -> Change:
    return lambda seen: replace(seen, **parts)


def lacking(which: str, right: Right) -> Change:
    return lambda seen: replace(seen, **{which: {**getattr(seen, which), right: False}})


def granted(verb: str, group: str, resource: str, *subjects: dict[str, str], cluster: bool = False, names: tuple[str, ...] = ()) -> Change:
    """Somebody else is given a right."""

    def change(seen: Seen) -> Seen:
        assert not isinstance(seen.roles, Unread)
        rule = {"apiGroups": [group], "resources": [resource], "verbs": [verb], **({"resourceNames": list(names)} if names else {})}
        role = {"metadata": {"name": "theirs"}, "rules": [rule]}
        reference = {"kind": "ClusterRole" if cluster else "Role", "name": "theirs"}
        binding = {"metadata": {"name": "theirs"}, "roleRef": reference, "subjects": list(subjects)}
        roles = seen.roles
        if cluster:
            roles = replace(roles, cluster_roles=[*roles.cluster_roles, role], cluster_bindings=[*roles.cluster_bindings, binding])
        else:
            roles = replace(roles, roles=[*roles.roles, role], bindings=[*roles.bindings, binding])
        return replace(seen, roles=roles)

    return change


ANN = {"kind": "User", "name": "ann@example.org"}
EVERYBODY = {"kind": "Group", "name": "system:authenticated"}
SERVERS = {"kind": "ServiceAccount", "name": "default", "namespace": "hub"}
MASTERS = {"kind": "Group", "name": "system:masters"}
GOOGLES = {"kind": "ServiceAccount", "name": "agent", "namespace": "gke-managed-pod-snapshots"}
SNAPSHOTS = "podsnapshot.gke.io"
GCS = ("spec", "snapshotStorageConfig", "gcs")
NOT_READY = [{"type": "Ready", "status": "False", "reason": "TriggerFailed", "message": "403 on _perm_check"}]


def test_nothing_is_said_of_what_helm_values_makes_of_a_cluster():
    assert bad(well()) == {}
    assert {one.check for one in findings(well())} >= {"api", "rights", "policies", "token-source", "admission", "others-exec"}
    assert all(not one.why and not one.mend for one in findings(well()))


FAULT, WARNING, UNKNOWN = State.FAULT, State.WARNING, State.UNKNOWN


@pytest.mark.parametrize(
    ("change", "check", "state"),
    [
        (having(kinds=dict.fromkeys(well().kinds, False)), "api", FAULT),
        (having(kinds={**well().kinds, "podsnapshots": False}), "api", FAULT),
        (having(version="v1.31.9-gke.1"), "version", FAULT),
        (having(version="v1.31.9+k3s1"), "version", FAULT),
        (having(version="v1.33.5-gke.2000000"), "version", FAULT),
        (having(version="v1.34.4-gke.1047000"), "version", WARNING),
        (having(version="v1.35.3-gke.1500000"), "version", WARNING),
        (having(version="v1.35.0+k3s1"), "version", UNKNOWN),
        (having(version=""), "version", UNKNOWN),
        (having(runtime_class=None), "runtime-class", FAULT),
        (having(runtime_class=FORBIDDEN), "runtime-class", UNKNOWN),
        (having(nodes=[]), "nodes", UNKNOWN),
        (having(nodes=FORBIDDEN), "nodes", UNKNOWN),
        (having(nodes=[node(), node("n2")]), "", State.OK),
        (having(nodes=[{**node(), "status": {"nodeInfo": {"kubeletVersion": "v1.34"}}}, node("n2")]), "nodes", WARNING),
        (changed("nodes", 0, "metadata", "labels", "node.kubernetes.io/instance-type", to="e2-standard-4"), "nodes", WARNING),
        (changed("nodes", 0, "metadata", "labels", "sandbox.gke.io/runtime", to=None), "nodes", UNKNOWN),
        (having(accounts=[{"metadata": {"name": "default"}}]), "account", FAULT),
        (lacking("needed", Right("delete", SNAPSHOTS, "podsnapshots")), "rights", FAULT),
        (having(needed=FORBIDDEN), "rights", UNKNOWN),
        (lacking("optional", Right("get", "", "nodes")), "node-rights", WARNING),
        (having(policies=[]), "policies", FAULT),
        (having(policies=Unread("no kind", absent=True)), "policies", FAULT),
        (having(policies=FORBIDDEN), "policies", UNKNOWN),
        (lambda seen: replace(seen, policies=[*seen.policies, seen.policies[0]]), "policies", FAULT),
        (lambda seen: replace(seen, policies=seen.policies[1:]), "policies", FAULT),
        (changed("policies", 0, "status", "conditions", to=NOT_READY), "policies", FAULT),
        (changed("policies", 0, "status", to=None), "policies", UNKNOWN),
        (changed("policies", 0, "spec", "triggerConfig", "type", to="workload"), "policies", FAULT),
        (changed("policies", 0, "spec", "triggerConfig", "postCheckpoint", to="stop"), "policies", FAULT),
        (changed("policies", 1, "spec", "triggerConfig", "postCheckpoint", to=None), "policies", FAULT),
        (changed("policies", 0, "spec", "snapshotScope", to="rootfs-only"), "policies", FAULT),
        (changed("policies", 0, "spec", "snapshotGroupingRules", to=None), "policies", FAULT),
        (
            changed(
                "policies",
                0,
                "spec",
                "snapshotGroupingRules",
                "groupByLabelValue",
                "groupRetentionPolicy",
                to={"maxSnapshotCountPerGroup": 1},
            ),
            "policies",
            FAULT,
        ),
        (
            lambda seen: replace(seen, policies=[*seen.policies, {"metadata": {"name": "all"}, "spec": {"selector": {}}}]),
            "policies",
            WARNING,
        ),
        (having(storages=[]), "storage-config", FAULT),
        (having(storages=FORBIDDEN), "storage-config", UNKNOWN),
        (having(policies=[], storages=[]), "storage-config", UNKNOWN),
        (changed("storages", 0, "status", "conditions", to=NOT_READY), "storage-config", FAULT),
        (changed("storages", 0, "status", to=None), "storage-config", UNKNOWN),
        (
            lambda seen: replace(seen, storages=[*seen.storages, {**seen.storages[0], "metadata": {"name": "other"}}]),
            "storage-config",
            WARNING,
        ),
        (changed("storages", 0, *GCS, "tokenSource", to=None), "token-source", FAULT),
        (changed("storages", 0, *GCS, "tokenSource", to="podKSA"), "token-source", FAULT),
        (having(admission=[]), "admission", FAULT),
        (having(admission=FORBIDDEN), "admission", UNKNOWN),
        (having(admission_bindings=[]), "admission", FAULT),
        (having(admission_bindings=FORBIDDEN), "admission", UNKNOWN),
        (changed("admission_bindings", 0, "spec", "validationActions", to=["Audit"]), "admission", FAULT),
        (
            changed(
                "admission_bindings",
                0,
                "spec",
                "matchResources",
                "namespaceSelector",
                "matchLabels",
                to={"kubernetes.io/metadata.name": "x"},
            ),
            "admission",
            FAULT,
        ),
        (changed("admission", 0, "spec", "matchConstraints", "resourceRules", to=[]), "admission", FAULT),
        (changed("admission", 0, "spec", "variables", to=[]), "admission", FAULT),
        (changed("admission", 0, "spec", "failurePolicy", to="Ignore"), "admission", WARNING),
        (granted("*", "*", "*", ANN, cluster=True), "others-secrets", WARNING),
        (granted("get", "", "secrets", ANN), "others-secrets", WARNING),
        (granted("get", "", "secrets", EVERYBODY), "others-secrets", FAULT),
        (granted("list", "", "secrets", SERVERS), "others-secrets", FAULT),
        (granted("get", "", "secrets", ANN, names=("one",)), "", State.OK),
        (granted("get", "", "secrets", MASTERS, GOOGLES, cluster=True), "", State.OK),
        (granted("create", "", "pods/exec", ANN), "others-exec", WARNING),
        (granted("create", "", "*/exec", ANN), "others-exec", WARNING),
        (granted("patch", "", "pods/ephemeralcontainers", ANN), "others-exec", WARNING),
        (granted("create", "", "pods", ANN), "", State.OK),
        (granted("create", SNAPSHOTS, "podsnapshotmanualtriggers", ANN), "", State.OK),
        (having(roles=FORBIDDEN), "others-triggers", UNKNOWN),
    ],
)
def test_each_fault_is_found_by_its_check_alone(change: Change, check: str, state: State):
    found = bad(change(well()))
    if not check:
        assert found == {}
        return
    assert found[check] is state
    related = {
        "policies": {"storage-config"},
        "storage-config": {"policies", "token-source"},
        "others-triggers": {"others-secrets", "others-exec"},
    }
    related |= {"others-secrets": {"others-exec"}, "admission": set()}
    assert set(found) <= {check} | related.get(check, set())


def test_without_the_admission_policy_who_may_create_triggers_is_told():
    change = granted("create", SNAPSHOTS, "podsnapshotmanualtriggers", ANN)
    found = bad(change(replace(well(), admission=[])))
    assert found["others-triggers"] is WARNING
    (told,) = (one for one in findings(change(replace(well(), admission=[]))) if one.check == "others-triggers")
    assert "ann@example.org (RoleBinding theirs)" in told.what


def test_what_is_not_well_says_why_and_what_mends_it():
    for one in findings(replace(well(), kinds={}, policies=[], storages=[], admission=[], accounts=[], roles=FORBIDDEN, nodes=[])):
        if one.state is not State.OK:
            assert one.why.endswith(".")
            assert one.mend
            assert "{" not in one.mend.replace("'{", "").replace('{"', "")


def test_the_reason_of_what_is_not_ready_is_told():
    seen = changed("policies", 0, "status", "conditions", to=NOT_READY)(well())
    assert any("TriggerFailed: 403 on _perm_check" in one.what for one in findings(seen))


def test_warnings_and_what_is_unknown_do_not_fail_a_script():
    assert exit_code([Finding("x", WARNING, "w"), Finding("x", UNKNOWN, "u"), Finding("x", State.OK, "o")]) == 0
    assert exit_code([Finding("x", State.OK, "o"), Finding("x", FAULT, "f")]) == 1


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("v1.35.3-gke.1737000", (1, 35, 3, 1737000)), ("v1.34", (1, 34, 0, 0)), ("v1.33.1+k3s1", (1, 33, 1, 0)), ("", None), ("master", None)],
)
def test_versions_are_read_as_numbers(text: str, parsed: Any):
    assert parse_version(text) == parsed


# ---------------------------------------------------------------- the data


def test_the_rights_are_those_of_helm_values():
    for which, file in (("needed", "hub.yaml"), ("optional", "nodes.yaml")):
        (role, _binding) = yaml.safe_load_all((HELM_VALUES / "rbac" / file).read_text(encoding="utf-8"))
        shipped = [
            Right(verb, group, resource)
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        ]
        assert sorted(rights(which)) == sorted(shipped)


def test_every_behaviour_that_somebody_guessed_is_a_check():
    behaviours = tomllib.loads((ROOT / "tests" / "emulator" / "behaviours.toml").read_text(encoding="utf-8"))
    guessed = {key: row["does"] for key, row in behaviours.items() if "guessed" in (row["level"] + row["source"])}
    assert {key: row["does"] for key, row in data("guesses").items()} == guessed
    told = {one.check: one for one in check_guesses()}
    assert told.keys() == {f"guess/{key}" for key in guessed}
    assert all(one.state is UNKNOWN and one.mend and one.why for one in told.values())


# ---------------------------------------------------------------- reading


async def test_what_is_read_of_a_cluster_that_is_well_is_well():
    cluster = FakeCluster()
    seen = await look(cluster, "hub", None)  # type: ignore[arg-type]
    assert seen.account == "hub"
    assert bad(seen) == {}
    assert bucket_name(seen) == "hub-snapshots"
    plurals, specs = zip(*cluster.asked, strict=True)
    assert set(plurals) == {"subjectaccessreviews"}
    assert {spec["user"] for spec in specs} == {"system:serviceaccount:hub:hub"}
    nodes = [spec["resourceAttributes"] for spec in specs if spec["resourceAttributes"]["resource"] == "nodes"]
    assert all("namespace" not in each for each in nodes)
    assert len(specs) == len(rights("needed")) + len(rights("optional"))


async def test_the_hub_itself_asks_for_itself():
    cluster = FakeCluster()
    cluster.me = "system:serviceaccount:hub:hub"
    assert bad(await look(cluster, "hub", None)) == {}  # type: ignore[arg-type]
    assert {plural for plural, _spec in cluster.asked} == {"selfsubjectaccessreviews"}


async def test_what_may_not_be_read_is_unknown_and_not_wrong():
    cluster = FakeCluster()
    kinds = ("nodes", "roles", "validatingadmissionpolicies", "subjectaccessreviews", "serviceaccounts", "podsnapshotstorageconfigs")
    cluster.errors = dict.fromkeys(kinds, 403)
    seen = await look(cluster, "hub", None)  # type: ignore[arg-type]
    found = bad(replace(seen, kinds=well().kinds))
    assert set(found.values()) == {UNKNOWN}
    assert found.keys() >= {"nodes", "others-exec", "admission", "rights", "account", "storage-config", "token-source"}


@pytest.mark.parametrize(("status", "says"), [(0, "No cluster can be reached"), (401, "does not know who asks"), (500, "with an error")])
async def test_no_cluster_is_one_sentence(status: int, says: str):
    cluster = FakeCluster()
    cluster.errors = {"version": status}
    with pytest.raises(NoCluster, match=says):
        await look(cluster, "hub", None)  # type: ignore[arg-type]


async def test_the_hubs_account_is_the_one_that_has_the_role():
    cluster = FakeCluster()
    (binding,) = cluster.objects["rolebindings"]
    binding["subjects"][0]["name"] = "my-hub"
    assert (await look(cluster, "hub", None)).account == "my-hub"  # type: ignore[arg-type]
    assert (await look(cluster, "hub", "named")).account == "named"  # type: ignore[arg-type]
