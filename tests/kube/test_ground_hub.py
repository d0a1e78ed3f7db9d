"""The ground under a hub: plain KubeSpawner, a real JupyterHub and its proxy, on the emulated cluster with a service account's rights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.emulator.api import Api
from tests.emulator.cluster import NAMESPACE
from tests.emulator.hub import EmulatedHub, hub_account
from tests.emulator.running import Space, eventually

PLAIN = "kubespawner.KubeSpawner"


@pytest.fixture
async def hub(admin: Api, tmp_path: Path) -> AsyncIterator[EmulatedHub]:
    """A hub with plain KubeSpawner."""
    made = EmulatedHub(tmp_path / "hub", await hub_account(admin, tmp_path / "hub.kubeconfig"), spawner=PLAIN)
    try:
        await made.start()
        yield made
    finally:
        await made.close()
        for pod in await admin.list("Pod", NAMESPACE):
            await admin.delete("Pod", NAMESPACE, pod["metadata"]["name"], grace=0)


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
