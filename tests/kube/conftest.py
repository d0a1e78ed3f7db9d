"""One emulated GKE for all tests of this level; each test gets a namespace of its own, and no fault of another's.

One hub serves all tests of a file that need no settings of their own, each with users of its own; so a file has one event loop.
"""

from __future__ import annotations

import functools
import itertools
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from tests.emulator.api import Api
from tests.emulator.faults import clear_faults, set_faults
from tests.emulator.hub import EmulatedHub, hub_account, shipped_policies
from tests.emulator.nodes import Nodes
from tests.emulator.running import BUILD_SECONDS, NotYet, RunningEmulator, Space, eventually, make_space
from tests.kube.people import Person, until_nothing_is_left, up, wipe

numbers = itertools.count(1)
RUN = secrets.token_hex(2)
OUTAGE_SECONDS = 120.0
"""That a test which failed in the middle of an outage may leave to the next."""
SPAWNER = "tests.fakes.killable.KillableSpawner"
fixture = functools.partial(pytest_asyncio.fixture, loop_scope="module")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of a file in one event loop: a hub that its tests share belongs to the loop that started it."""
    for item in items:
        if item.path.parent == Path(__file__).parent and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


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


@fixture()
async def admin(emulator: RunningEmulator) -> AsyncIterator[Api]:
    """A cluster administrator."""
    async with Api(Path(emulator.facts["kubeconfig"])) as api:
        yield api


@fixture()
async def gke(emulator: RunningEmulator) -> AsyncIterator[Api]:
    """Google's own controllers: the only ones who may write a PodSnapshot."""
    async with Api(Path(emulator.facts["gke_kubeconfig"])) as api:
        yield api


@pytest.fixture
def nodes(admin: Api, emulator: RunningEmulator) -> Nodes:
    """The machines of the cluster."""
    return Nodes(admin, emulator.facts["kubelet_port"])


@fixture()
async def faults(admin: Api) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Switches faults on (``checkpoint_fails="pod=x"``) and off (``None``); none is on before and after, and no outage lasts."""
    await clear_faults(admin)

    async def switch(**named: str | None) -> None:
        await set_faults(admin, **named)

    yield switch
    await eventually("an API server that answers", lambda: up(admin), OUTAGE_SECONDS)
    await clear_faults(admin)


@fixture()
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
    "KubeSpawner.profile_list": [
        {"display_name": "goes on after a save", "slug": "resume", "default": True},
        {"display_name": "ends with a save", "slug": "stop", "gke": {"post_checkpoint": "stop"}},
        {
            "display_name": "a field that KubeSpawner knows not to be there",
            "slug": "typo-1",
            "kubespawner_override": {"extra_pod_config": {"tolerationz": [{"key": "x"}]}},
        },
        {
            "display_name": "a field that only the API server knows",
            "slug": "typo-2",
            "kubespawner_override": {"volumes": [{"name": "scratch", "emptyDir": {"sizelimit": "1Gi"}}]},
        },
    ],
    "GKEWorkspaceSpawner.pause_timeout": 6,
    "GKEWorkspaceSpawner.frozen_margin": 5,
    "GKEWorkspaceSpawner.restore_timeout": 10,
    "GKEWorkspaceSpawner.remove_timeout": 20,
    "GKEWorkspaceSpawner.finalizer_timeout": 5,
    "GKEWorkspaceSpawner.wait_timeout": 60,
}
"""Limits of a test: what fails, fails soon."""


@fixture(scope="module")
async def module_admin(emulator: RunningEmulator) -> AsyncIterator[Api]:
    """A cluster administrator for what lives as long as a file's tests."""
    async with Api(Path(emulator.facts["kubeconfig"])) as api:
        yield api


@fixture(scope="module")
async def shared_hub(
    module_admin: Api, tmp_path_factory: pytest.TempPathFactory, output_root: Path, request: pytest.FixtureRequest
) -> AsyncIterator[EmulatedHub]:
    """One hub for a file, with the rights and policies of helm-values/; nothing of it stays in the cluster."""
    folder = tmp_path_factory.mktemp("hub")
    await shipped_policies(module_admin)
    account, homes = await hub_account(module_admin, folder / "hub.kubeconfig"), getattr(request.module, "HOMES", True)
    hub = EmulatedHub(folder, account, spawner=SPAWNER, homes=homes, set_=SHORT)
    try:
        await hub.start()
        yield hub
    finally:
        await hub.close()
        shutil.copy(hub.hub.log, output_root / f"kube-hub-of-{Path(request.path).stem}.log")
        await wipe(module_admin)


@fixture()
async def hub(shared_hub: EmulatedHub, admin: Api) -> AsyncIterator[EmulatedHub]:
    """A hub that the tests of a file share; what a test's users had is deleted through it, and nothing may be left in the cluster."""
    if not shared_hub.hub.running:
        await shared_hub.start()
    yield shared_hub
    if not shared_hub.hub.running:
        await shared_hub.start()
    try:
        await shared_hub.delete_users()
        await until_nothing_is_left(admin)
    except (aiohttp.ClientError, NotYet):  # the test has failed before, or this is what it finds; the next one begins anew
        await shared_hub.hub.kill()
        shared_hub.forget()
        await wipe(admin)
        raise


@fixture()
async def ann(hub: EmulatedHub, admin: Api) -> Person:
    """Somebody who uses the shared hub for the first time."""
    return Person(hub, f"ann{next(numbers)}", admin)
