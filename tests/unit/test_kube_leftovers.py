"""What pausing leaves in a namespace is found, and removed in the order that loses no files in the bucket."""

from __future__ import annotations

import pytest

from gke_workspaces_spawner.kube import leftovers
from gke_workspaces_spawner.kube.client import POD, SECRET, SNAPSHOT, TRIGGER
from gke_workspaces_spawner.kube.facts import LINEAGE, PART
from gke_workspaces_spawner.kube.leftovers import Leftovers, Stuck, find, remove
from tests.fakes.cluster import FakeCluster, Object


def named(name: str, label: str = "", **spec: str) -> Object:
    return {"metadata": {"name": name, "labels": {label: "x"} if label else {}}, "spec": spec}


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.objects |= {
        TRIGGER.plural: [named("t1", LINEAGE), named("theirs")],
        SNAPSHOT.plural: [named("s1", LINEAGE), named("s2", policyName="gke-workspaces-stop"), named("theirs", policyName="other")],
        SECRET.plural: [named("server", PART), named("snapshot", PART), named("theirs")],
        POD.plural: [named("theirs")],
    }
    made.objects["podsnapshotpolicies"].append({"metadata": {"name": "other"}, "spec": {"selector": {"matchLabels": {"a": "b"}}}})
    return made


OURS = Leftovers((), ("t1",), ("s1", "s2"), ("server", "snapshot"), ("gke-workspaces-resume", "gke-workspaces-stop"), ("gke-workspaces",))


async def test_what_is_ours_is_found_and_nothing_else(cluster: FakeCluster):
    assert await find(cluster, "hub") == OURS  # type: ignore[arg-type]
    assert cluster.deleted == []


async def test_a_cluster_without_pod_snapshots_has_none_left(cluster: FakeCluster):
    cluster.errors = dict.fromkeys(("podsnapshots", "podsnapshotpolicies", "podsnapshotmanualtriggers"), 404)
    assert await find(cluster, "hub") == Leftovers((), (), (), ("server", "snapshot"), (), ())  # type: ignore[arg-type]


async def test_policies_go_last_when_the_snapshots_are_gone(cluster: FakeCluster):
    said: list[str] = []
    await remove(cluster, "hub", await find(cluster, "hub"), said.append)  # type: ignore[arg-type]
    kinds = [plural for plural, _name in cluster.deleted]
    assert list(dict.fromkeys(kinds)) == ["podsnapshotmanualtriggers", "podsnapshots", "secrets", "podsnapshotpolicies"]
    assert len(said) == len(kinds) == 7
    assert await find(cluster, "hub") == Leftovers((), (), (), (), (), ())  # type: ignore[arg-type]
    assert [each["metadata"]["name"] for each in cluster.objects[SECRET.plural]] == ["theirs"]


async def test_a_snapshot_that_does_not_go_keeps_the_policies(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leftovers, "LOOK", 0.0)
    cluster.stuck = {"s2"}
    with pytest.raises(Stuck, match="s2"):
        await remove(cluster, "hub", await find(cluster, "hub"), lambda _line: None, seconds=0.0)  # type: ignore[arg-type]
    assert {plural for plural, _name in cluster.deleted} == {"podsnapshotmanualtriggers", "podsnapshots"}


async def test_while_servers_run_nothing_is_removed(cluster: FakeCluster):
    cluster.objects[POD.plural].append(named("jupyter-ann", LINEAGE))
    with pytest.raises(Stuck, match="jupyter-ann"):
        await remove(cluster, "hub", await find(cluster, "hub"), lambda _line: None)  # type: ignore[arg-type]
    assert cluster.deleted == []
