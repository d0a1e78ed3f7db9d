"""`gke-workspaces uninstall` removes nothing unless it is told to, and asks the Hub to discard before anything else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gke_workspaces_spawner.cli import main, uninstall
from gke_workspaces_spawner.kube.client import SNAPSHOT
from gke_workspaces_spawner.kube.doctor import connect
from gke_workspaces_spawner.kube.facts import LINEAGE
from tests.fakes.cluster import FakeCluster

HUB = "http://127.0.0.1:9/hub/api"
WORKSPACES = [
    {"user": "ann", "server": "", "phase": "paused", "snapshots": [{"pause_id": "p1"}, {"pause_id": "p2"}]},
    {"user": "bo", "server": "gpu", "phase": "running", "snapshots": []},
]


class Hub:
    """Stands for the Hub: what was asked of it, in order with the cluster's deletions."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.calls: list[tuple[str, str, int]] = []

    def workspaces(self) -> list[dict[str, Any]]:
        return WORKSPACES

    def call(self, method: str, path: str) -> None:
        self.calls.append((method, path, len(self.cluster.deleted)))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster()
    made.objects[SNAPSHOT.plural] = [{"metadata": {"name": "s1", "labels": {LINEAGE: "x"}}, "spec": {}}]

    @contextlib.asynccontextmanager
    async def connected(*_place: object) -> AsyncIterator[tuple[FakeCluster, connect.Place]]:
        yield made, connect.Place("https://cluster", "hub")

    monkeypatch.setattr(connect, "connected", connected)
    return made


@pytest.fixture
def hub(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub(cluster)
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "t")
    monkeypatch.setattr(uninstall, "HubClient", lambda *_arguments: made)
    return made


@pytest.mark.parametrize("words", [[], ["--dry-run"]])
def test_unless_told_to_it_only_lists(words: list[str], cluster: FakeCluster, capsys: pytest.CaptureFixture[str]):
    assert main(["uninstall", *words]) == 0
    said = capsys.readouterr().out
    assert "1 saved states" in said
    assert "The Hub was not asked" in said
    assert cluster.deleted == []


def test_the_hubs_records_are_listed_too(hub: Hub, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]):
    assert main(["uninstall", "--hub-url", HUB, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["records"] == [{"user": "ann", "server": "", "phase": "paused"}]
    assert said["snapshots"] == ["s1"]
    assert hub.calls == []
    assert cluster.deleted == []


def test_what_the_hub_knows_is_discarded_through_the_hub_first(hub: Hub, cluster: FakeCluster):
    assert main(["uninstall", "--hub-url", HUB, "--yes"]) == 0
    assert hub.calls == [("DELETE", "/users/ann/server/pause/p1", 0), ("DELETE", "/users/ann/server/pause/p2", 0)]
    assert ("podsnapshots", "s1") in cluster.deleted


def test_while_servers_run_the_hub_is_not_asked_to_discard(hub: Hub, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]):
    cluster.objects["pods"] = [{"metadata": {"name": "jupyter-ann", "labels": {LINEAGE: "x"}}}]
    assert main(["uninstall", "--hub-url", HUB, "--yes"]) == 1
    assert "stop them first" in capsys.readouterr().err
    assert (hub.calls, cluster.deleted) == ([], [])


def test_without_a_token_the_hub_is_not_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.delenv("JUPYTERHUB_API_TOKEN", raising=False)
    assert main(["uninstall", "--hub-url", HUB]) == 1
    assert "JUPYTERHUB_API_TOKEN" in capsys.readouterr().err
