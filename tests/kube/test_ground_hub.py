"""The ground under a hub: plain KubeSpawner, a real JupyterHub and its proxy, on the emulated cluster with a service account's rights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.emulator.api import Api
from tests.emulator.cluster import NAMESPACE
from tests.emulator.hub import EmulatedHub, hub_account
from tests.emulator.running import Space, eventually
from tests.kube.people import wipe

PLAIN = "kubespawner.KubeSpawner"


@pytest_asyncio.fixture(loop_scope="module")
async def hub(admin: Api, tmp_path: Path) -> AsyncIterator[EmulatedHub]:
    """A hub with plain KubeSpawner."""
    made = EmulatedHub(tmp_path / "hub", await hub_account(admin, tmp_path / "hub.kubeconfig"), spawner=PLAIN)
    try:
        await made.start()
        yield made
    finally:
        await made.close()
        await wipe(admin)


async def test_a_plain_hub_starts_routes_and_stops_servers_in_pods(hub: EmulatedHub, admin: Api) -> None:
    await hub.make_users(1)
    await hub.call("POST", "/users/ann/server")

    async def ready() -> bool:
        return bool((await hub.call("GET", "/users/ann"))["servers"].get("", {}).get("ready"))

    await eventually("a ready server", ready, 60)
    (pod,) = await admin.list("Pod", NAMESPACE, "component=singleuser-server")
    assert pod["status"]["phase"] == "Running"
    routed = await hub.call("GET", "/user/ann/count", base="")
    assert routed["count"] == 1
    claim = await admin.get("PersistentVolumeClaim", NAMESPACE, "claim-ann")
    assert claim["status"]["phase"] == "Bound"
    await hub.call("DELETE", "/users/ann/server")
    space = Space(admin, NAMESPACE)
    await space.until_gone("Pod", pod["metadata"]["name"])
