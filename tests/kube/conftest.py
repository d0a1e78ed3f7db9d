"""One emulated GKE for all tests of this level; each test gets a namespace of its own, and no fault of another's."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.api import Api
from tests.emulator.cluster import NAMESPACE
from tests.emulator.faults import clear_faults, set_faults
from tests.emulator.hub import EmulatedHub, hub_account, shipped_policies
from tests.emulator.nodes import Nodes
from tests.emulator.running import BUILD_SECONDS, RunningEmulator, Space, make_space

numbers = itertools.count(1)
RUN = secrets.token_hex(2)


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory, output_root: Path) -> Iterator[RunningEmulator]:
    """The cluster, without a hub; its programs are built before, where they are not there.

    One that runs already is taken where ``GKE_WORKSPACES_EMULATOR`` names its ready file: to work on a test.
    """
    if there := os.environ.get("GKE_WORKSPACES_EMULATOR"):
        yield RunningEmulator.there(Path(there))
        return
    folder = tmp_path_factory.mktemp("emulator")
    running = RunningEmulator(folder, "--no-hub")
    running.start(BUILD_SECONDS)
    try:
        yield running
    finally:
        running.close()
        for log in folder.rglob("*.log"):
            shutil.copy(log, output_root / f"kube-{log.name}")


@pytest.fixture
async def admin(emulator: RunningEmulator) -> AsyncIterator[Api]:
    """A cluster administrator."""
    async with Api(Path(emulator.facts["kubeconfig"])) as api:
        yield api


@pytest.fixture
async def gke(emulator: RunningEmulator) -> AsyncIterator[Api]:
    """Google's own controllers: the only ones who may write a PodSnapshot."""
    async with Api(Path(emulator.facts["gke_kubeconfig"])) as api:
        yield api


@pytest.fixture
def nodes(admin: Api, emulator: RunningEmulator) -> Nodes:
    """The machines of the cluster."""
    return Nodes(admin, emulator.facts["kubelet_port"])


@pytest.fixture
async def faults(admin: Api) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Switches faults on (``checkpoint_fails="pod=x"``) and off (``None``); none is on before and after."""
    await clear_faults(admin)

    async def switch(**named: str | None) -> None:
        await set_faults(admin, **named)

    yield switch
    await clear_faults(admin)


@pytest.fixture
async def space(admin: Api) -> AsyncIterator[Space]:
    """A namespace of this test alone, with a storage config for all."""
    made = await make_space(admin, f"test-{RUN}-{next(numbers)}")
    yield made
    for kind in ("Pod", "PodSnapshot"):
        for item in await admin.list(kind, made.namespace):
            await admin.delete(kind, made.namespace, item["metadata"]["name"], grace=0 if kind == "Pod" else None)
    await admin.delete("Namespace", None, made.namespace)


SHORT = {
    "KubeSpawner.mem_guarantee": "32M",
    "KubeSpawner.mem_limit": "64M",
    "KubeSpawner.poll_interval": 2,
    "GKEWorkspaceSpawner.pause_timeout": 8,
    "GKEWorkspaceSpawner.frozen_margin": 10,
    "GKEWorkspaceSpawner.restore_timeout": 10,
    "GKEWorkspaceSpawner.remove_timeout": 20,
    "GKEWorkspaceSpawner.finalizer_timeout": 5,
    "GKEWorkspaceSpawner.wait_timeout": 60,
}
"""Limits of a test: what fails, fails soon."""


@pytest.fixture
async def make_hub(admin: Api, tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[EmulatedHub]]]:
    """Starts a hub with further settings; afterwards nothing of it is left in the cluster."""
    made: list[EmulatedHub] = []
    await shipped_policies(admin)
    account = await hub_account(admin, tmp_path / "hub.kubeconfig")

    async def make(**settings: Any) -> EmulatedHub:
        set_ = {**SHORT, **{name.replace("__", "."): value for name, value in settings.items()}}
        hub = EmulatedHub(tmp_path / f"hub-{len(made)}", account, homes=False, set_=set_)
        made.append(hub)
        await hub.start()
        return hub

    yield make
    for hub in made:
        await hub.close()
    for kind in ("Pod", "PodSnapshotManualTrigger", "PodSnapshot", "Secret"):
        for item in await admin.list(kind, NAMESPACE):
            await admin.delete(kind, NAMESPACE, item["metadata"]["name"], grace=0 if kind == "Pod" else None)


@pytest.fixture
async def hub(make_hub: Callable[..., Awaitable[EmulatedHub]]) -> EmulatedHub:
    return await make_hub()
