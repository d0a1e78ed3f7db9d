"""The hub of an emulated cluster: a real JupyterHub with its proxy, processes of their own, with a service account's rights."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import yaml

from gke_workspaces_spawner.cli import bring
from gke_workspaces_spawner.cli.places import cache
from tests.ports import free_port

from .api import Api, Object, condition, write_kubeconfig
from .cluster import BUCKET, NAMESPACE
from .processes import Program

CONFIG = Path(__file__).with_name("hub_config.py")
ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "helm-values"
ACCOUNT = "hub"
START_SECONDS = 90.0
POLL_SECONDS = 0.05
PLAIN_RULES = [
    {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims"], "verbs": ["get", "watch", "list", "create", "delete"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "watch", "list"]},
]
"""What z2jh gives the hub for plain KubeSpawner."""


class EmulatedHub:
    """Starts the hub in ``folder``; it can be killed and started again."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        *,
        spawner: str = "gke-workspaces",
        hub_host: str = "127.0.0.1",
        hub_port: int | None = None,
        homes: bool = True,
        set_: Mapping[str, Any] | None = None,
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self.admin_token = secrets.token_hex(16)
        self._settings: dict[str, Any] = {
            "folder": str(folder),
            "port": free_port(),
            "hub_host": hub_host,
            "hub_port": hub_port or free_port(),
            "proxy_api_port": free_port(),
            "proxy_token": secrets.token_hex(16),
            "admin_token": self.admin_token,
            "password": secrets.token_hex(8),
            "namespace": NAMESPACE,
            "spawner": spawner,
            "homes": homes,
            "set": dict(set_ or {}),
        }
        ports = self._settings
        self.url = f"http://127.0.0.1:{ports['port']}"
        proxy = [
            *(str(bring.node()), str(bring.proxy(cache()))),
            *("--ip", "127.0.0.1", "--port", str(ports["port"]), "--api-ip", "127.0.0.1", "--api-port", str(ports["proxy_api_port"])),
            *("--error-target", f"http://{hub_host}:{ports['hub_port']}/hub/error"),
        ]
        self.proxy = Program("proxy", proxy, folder, {"CONFIGPROXY_AUTH_TOKEN": ports["proxy_token"]})
        environment = {
            "EMULATOR_HUB": json.dumps(self._settings),
            "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": str(ROOT),
            "JUPYTERHUB_CRYPT_KEY": secrets.token_hex(32),
        }
        # The database's lock and the cookie secret lie where it starts.
        command = ["env", "--chdir", str(folder), sys.executable, "-m", "jupyterhub", "-f", str(CONFIG)]
        self.hub = Program("hub", command, folder, environment)

    async def start(self) -> None:
        """Proxy and hub up. Raises RuntimeError with the end of the log."""
        if not self.proxy.running:
            await self.proxy.start()
        await self.hub.start()
        end = asyncio.get_running_loop().time() + START_SECONDS
        while True:
            try:
                await self.call("GET", "/")
                return
            except (aiohttp.ClientError, OSError):
                if not self.hub.running or asyncio.get_running_loop().time() > end:
                    raise RuntimeError(f"the hub did not get ready: {self.hub.tail(3000)}") from None
                await asyncio.sleep(POLL_SECONDS)

    async def close(self) -> None:
        await self.hub.stop(15)
        await self.proxy.stop()

    async def call(self, method: str, path: str, body: object = None, *, base: str = "/hub/api") -> Any:
        """A call of the hub's REST API (or elsewhere behind its proxy) as administrator. Raises aiohttp.ClientResponseError."""
        headers = {"Authorization": f"token {self.admin_token}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, f"{self.url}{base}{path}", json=body) as response,
        ):
            text = await response.text()
            response.raise_for_status()
            return json.loads(text) if text.strip().startswith(("{", "[")) else text

    async def make_users(self, number: int) -> dict[str, dict[str, str]]:
        """Users with a token each."""
        names = ["ann", "bo@x.org", *(f"user{count}" for count in range(3, number + 1))][:number]
        found = {}
        for name in names:
            path = f"/users/{quote(name, safe='')}"
            await self.call("POST", path, {})
            answer = await self.call("POST", f"{path}/tokens", {"note": "emulator"})
            found[name] = {"token": answer["token"]}
        return found

    async def delete_users(self) -> None:
        """Delete all users that are no administrators, with whatever their servers are and have."""
        names = [user["name"] for user in await self.call("GET", "/users") if not user["admin"]]
        await asyncio.gather(*(self.call("DELETE", f"/users/{quote(name, safe='')}") for name in names))

    def forget(self) -> None:
        """Let a hub that is not running begin anew, without users."""
        for path in self.folder.glob("hub.sqlite*"):
            path.unlink()


async def hub_account(api: Api, path: Path) -> Path:
    """The hub's service account with the rights of helm-values/ (without them: z2jh's), as a kubeconfig."""
    shipped = [
        one for file in sorted((SHIPPED / "rbac").glob("*.yaml")) for one in yaml.safe_load_all(file.read_text(encoding="utf-8")) if one
    ]
    meta = {"name": ACCOUNT, "namespace": NAMESPACE}
    group = "rbac.authorization.k8s.io"
    await api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    plain: list[Object] = [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": PLAIN_RULES},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", **meta}],
        },
    ]
    for manifest in (*plain, *shipped):
        await api.apply(_in_namespace(manifest))
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7 * 86400}}
    answer = await api.call("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token", body)
    return write_kubeconfig(path, api.server, api.authority, answer["status"]["token"], NAMESPACE)


async def shipped_policies(api: Api) -> None:
    """The storage config and the policies of helm-values/, with the emulator's bucket, once they are Ready."""
    for file in sorted((SHIPPED / "policies").glob("*.yaml")):
        for manifest in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if manifest and manifest["kind"] == "PodSnapshotStorageConfig":
                manifest["spec"]["snapshotStorageConfig"]["gcs"]["bucket"] = BUCKET
            if manifest:
                await api.apply(_in_namespace(manifest))
    while any(condition(one, "Ready").get("status") != "True" for one in await api.list("PodSnapshotPolicy", NAMESPACE)):
        await asyncio.sleep(POLL_SECONDS)


def _in_namespace(manifest: Object) -> Object:
    """What is shipped without a namespace belongs into the hub's."""
    if manifest["kind"] in ("Role", "RoleBinding", "PodSnapshotPolicy", "ServiceAccount"):
        manifest["metadata"].setdefault("namespace", NAMESPACE)
        for subject in manifest.get("subjects") or ():
            subject.setdefault("namespace", NAMESPACE)
    return manifest
