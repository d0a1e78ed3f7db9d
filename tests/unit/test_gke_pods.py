"""A restored pod gets in line for a node, and takes it as soon as there is one."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gke_workspaces_spawner.engines.gke_pods import Pods
from gke_workspaces_spawner.engines.gke_settings import Settings
from gke_workspaces_spawner.kube import facts
from gke_workspaces_spawner.kube.client import POD, Object
from gke_workspaces_spawner.kube.errors import Unavailable
from gke_workspaces_spawner.lifecycle.model import Key, Owner, Want
from gke_workspaces_spawner.lifecycle.ports import Server
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock

LINEAGE = "a" * 32
ANN = Server(Key("ann"), Owner(1, LINEAGE))
NAME = "jupyter-ann"


@pytest.fixture
def api() -> FakeApiServer:
    return FakeApiServer()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def pods(api: FakeApiServer, clock: FakeClock) -> Pods:
    return Pods(api, Settings("hub"), "hub-1", clock, logging.getLogger(__name__))


def manifest() -> Object:
    labels = {facts.LINEAGE: LINEAGE, facts.HUB: "hub-1"}
    metadata = {"name": NAME, "labels": labels, "annotations": {facts.PS_NAME: "snap"}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "notebook"}]}}


async def place(api: FakeApiServer, clock: FakeClock, seconds: float) -> None:
    """The scheduler finds a node after so many seconds."""
    while NAME not in api.names(POD):
        await clock.sleep(0.01)
    await clock.sleep(seconds)
    api.objects[POD.name, NAME]["spec"]["nodeName"] = "n1"


async def test_a_pod_that_fits_somewhere_has_its_node_at_the_first_asking(api: FakeApiServer, clock: FakeClock, pods: Pods) -> None:
    scheduler = asyncio.ensure_future(place(api, clock, 0.3))
    begun = clock.time()
    assert await pods.in_line(ANN, manifest()) is None
    assert clock.time() - begun < 0.5
    await scheduler


async def test_a_pod_that_fits_nowhere_holds_nobody_up(api: FakeApiServer, clock: FakeClock, pods: Pods) -> None:
    begun = clock.time()
    assert await pods.in_line(ANN, manifest()) == Want("waiting_for_scheduler")
    assert clock.time() - begun < 1.5
    scheduler = asyncio.ensure_future(place(api, clock, 60.0))
    assert await pods.in_line(ANN, manifest()) == Want("waiting_for_scheduler")
    await scheduler
    assert await pods.in_line(ANN, manifest()) is None
    assert api.calls == [("create", "Pod", NAME)]


async def test_whether_a_pod_runs_is_no_question_of_an_outage(api: FakeApiServer, pods: Pods) -> None:
    assert not await pods.running(ANN)
    api.put(POD, NAME, {facts.LINEAGE: LINEAGE}, spec={"containers": []}, status={"phase": "Pending"})
    assert not await pods.running(ANN)
    api.objects[POD.name, NAME]["status"] = {"phase": "Running"}
    assert await pods.running(ANN)
    api.errors["list Pod"] = Unavailable(503, "away")
    assert not await pods.running(ANN)
