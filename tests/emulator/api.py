"""A small client of the Kubernetes API, in plain JSON: what the emulator's controllers and its tests speak.

Plain dictionaries instead of a client library's classes: a node agent copies and changes whole objects thousands of times.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml

Json = Any
Object = dict[str, Any]
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
RELIST_SECONDS = 0.3
"""Wait before a watch that broke is opened again."""

PLACES: dict[str, tuple[str, str, bool]] = {
    # kind -> (group and version as a path, plural, namespaced)
    "Pod": ("api/v1", "pods", True),
    "Node": ("api/v1", "nodes", False),
    "Event": ("api/v1", "events", True),
    "Secret": ("api/v1", "secrets", True),
    "ConfigMap": ("api/v1", "configmaps", True),
    "Namespace": ("api/v1", "namespaces", False),
    "ResourceQuota": ("api/v1", "resourcequotas", True),
    "ServiceAccount": ("api/v1", "serviceaccounts", True),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims", True),
    "PersistentVolume": ("api/v1", "persistentvolumes", False),
    "Lease": ("apis/coordination.k8s.io/v1", "leases", True),
    "Role": ("apis/rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("apis/rbac.authorization.k8s.io/v1", "rolebindings", True),
    "ClusterRole": ("apis/rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "RuntimeClass": ("apis/node.k8s.io/v1", "runtimeclasses", False),
    "PriorityClass": ("apis/scheduling.k8s.io/v1", "priorityclasses", False),
    "StorageClass": ("apis/storage.k8s.io/v1", "storageclasses", False),
    "CSIDriver": ("apis/storage.k8s.io/v1", "csidrivers", False),
    "VolumeAttachment": ("apis/storage.k8s.io/v1", "volumeattachments", False),
    "CustomResourceDefinition": ("apis/apiextensions.k8s.io/v1", "customresourcedefinitions", False),
    "ValidatingAdmissionPolicy": ("apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies", False),
    "ValidatingAdmissionPolicyBinding": ("apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", False),
    "PodSnapshot": ("apis/podsnapshot.gke.io/v1", "podsnapshots", True),
    "PodSnapshotPolicy": ("apis/podsnapshot.gke.io/v1", "podsnapshotpolicies", True),
    "PodSnapshotManualTrigger": ("apis/podsnapshot.gke.io/v1", "podsnapshotmanualtriggers", True),
    "PodSnapshotStorageConfig": ("apis/podsnapshot.gke.io/v1", "podsnapshotstorageconfigs", False),
}


class ApiError(Exception):
    """An answer of 400 or more."""

    def __init__(self, status: int, body: Json) -> None:
        self.status = status
        self.reason: str = body.get("reason", "") if isinstance(body, dict) else ""
        self.message: str = body.get("message", "") if isinstance(body, dict) else str(body)
        super().__init__(f"{status} {self.reason}: {self.message[:600]}")


def path_of(kind: str, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
    """Path of a collection or an object."""
    group, plural, namespaced = PLACES[kind]
    parts = [group, *(("namespaces", namespace) if namespaced and namespace else ()), plural]
    return "/" + "/".join([*parts, *(part for part in (name, subresource) if part)])


def write_kubeconfig(path: Path, server: str, authority: str, token: str, namespace: str = "default") -> Path:
    """A kubeconfig for whoever has that token, 0600; ``authority`` is base64 of a PEM."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "emulator",
        "clusters": [{"name": "emulator", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "emulator", "context": {"cluster": "emulator", "user": "me", "namespace": namespace}}],
    }
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        yaml.safe_dump(config, file)
    return path


class Api:
    """One identity at one server; ``async with`` it."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server: str = cluster["server"]
        self.token: str = user["token"]
        self.authority: str = cluster["certificate-authority-data"]
        self._tls = ssl.create_default_context(cadata=base64.b64decode(self.authority).decode())
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Api:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        self._session = aiohttp.ClientSession(
            self.server, connector=connector, headers={"Authorization": f"Bearer {self.token}", "User-Agent": "gke-emulator"}
        )
        return self

    async def __aexit__(self, *_exception: object) -> None:
        assert self._session is not None
        await self._session.close()

    # ------------------------------------------------------------ calls

    async def call(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
        seconds: float = 30.0,
    ) -> Object:
        """One request. Raises :class:`ApiError`, and aiohttp's errors where nobody answers."""
        assert self._session is not None
        async with self._session.request(
            method,
            path,
            params=dict(query or {}),
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": content},
            timeout=aiohttp.ClientTimeout(total=seconds),
        ) as response:
            text = await response.text()
            try:
                answer = json.loads(text) if text else {}
            except ValueError:
                answer = text
            if response.status >= 400:
                raise ApiError(response.status, answer)
            return answer if isinstance(answer, dict) else {"text": answer}

    async def get(self, kind: str, namespace: str | None, name: str) -> Object:
        return await self.call("GET", path_of(kind, namespace, name))

    async def find(self, kind: str, namespace: str | None, name: str) -> Object | None:
        """The object, or ``None`` where there is none."""
        try:
            return await self.get(kind, namespace, name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, kind: str, namespace: str | None = None, selector: str = "") -> list[Object]:
        answer = await self.call("GET", path_of(kind, namespace), query={"labelSelector": selector} if selector else None)
        items: list[Object] = answer["items"]
        return items

    async def create(self, manifest: Object) -> Object:
        """Create what the manifest says, where it says; a typo is refused."""
        meta = manifest["metadata"]
        return await self.call("POST", path_of(manifest["kind"], meta.get("namespace")), manifest, query={"fieldValidation": "Strict"})

    async def apply(self, manifest: Object) -> Object:
        """Create or replace by server-side apply."""
        meta = manifest["metadata"]
        return await self.call(
            "PATCH",
            path_of(manifest["kind"], meta.get("namespace"), meta["name"]),
            manifest,
            query={"fieldManager": "gke-emulator", "force": "true"},
            content="application/apply-patch+yaml",
        )

    async def patch(
        self, kind: str, namespace: str | None, name: str, body: Json, *, subresource: str | None = None, content: str = MERGE
    ) -> Object:
        return await self.call("PATCH", path_of(kind, namespace, name, subresource), body, content=content)

    async def delete(self, kind: str, namespace: str | None, name: str, *, grace: int | None = None, uid: str | None = None) -> None:
        """Ask for its deletion; an object that is gone is none to complain of."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self.call("DELETE", path_of(kind, namespace, name), options)
        except ApiError as error:
            if error.status != 404 and not (error.status == 409 and uid is not None):
                raise

    async def watch(self, kind: str, version: str, namespace: str | None = None) -> AsyncIterator[tuple[str, Object]]:
        """Events after ``version`` until the server ends the stream."""
        assert self._session is not None
        query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "600"}
        async with self._session.get(path_of(kind, namespace), params=query, timeout=aiohttp.ClientTimeout(sock_connect=10)) as response:
            if response.status >= 400:
                raise ApiError(response.status, await response.json())
            buffer = b""
            async for chunk in response.content.iter_any():
                buffer += chunk
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    yield event["type"], event["object"]


OUTAGES = (ApiError, aiohttp.ClientError, asyncio.TimeoutError, ConnectionError, OSError)
"""What a call raises while the server is away, slow or refuses."""


class Informer:
    """All objects of a kind, kept up to date by a watch that survives every outage; tells listeners each change.

    ``items`` maps (namespace, name) to the object. A listener gets ``(old, new)``; either may be ``None``.
    """

    def __init__(self, api: Api, kind: str) -> None:
        self.kind = kind
        self.items: dict[tuple[str, str], Object] = {}
        self.synced = asyncio.Event()
        self._api = api
        self._listeners: list[Callable[[Object | None, Object | None], None]] = []
        self._changed = asyncio.Condition()

    def listen(self, listener: Callable[[Object | None, Object | None], None]) -> None:
        """Call it for each change from now on."""
        self._listeners.append(listener)

    def get(self, namespace: str, name: str) -> Object | None:
        return self.items.get((namespace, name))

    async def run(self) -> None:
        """List and watch, for ever."""
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                async for kind, found in self._api.watch(self.kind, version):
                    if kind == "ERROR":
                        version = ""
                        break
                    version = found["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        self._tell(key_of(found), None if kind == "DELETED" else found)
            except ApiError as error:
                version = "" if error.status in (400, 404, 410) else version
                await asyncio.sleep(RELIST_SECONDS)
            except OUTAGES:
                await asyncio.sleep(RELIST_SECONDS)

    async def _list(self) -> str:
        answer = await self._api.call("GET", path_of(self.kind))
        found = {key_of(item): item for item in answer["items"]}
        for item in found.values():
            item.setdefault("kind", self.kind)
        for key in [key for key in self.items if key not in found]:
            self._tell(key, None)
        for key, item in found.items():
            self._tell(key, item)
        self.synced.set()
        version: str = answer["metadata"]["resourceVersion"]
        return version

    def _tell(self, key: tuple[str, str], new: Object | None) -> None:
        old = self.items.get(key)
        if new is None:
            self.items.pop(key, None)
        elif old is not None and old["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"]:
            return
        else:
            self.items[key] = new
        for listener in self._listeners:
            listener(old, new)


class Keyed:
    """Runs one task per key at a time: ``poke(key)`` runs the handler soon, again if poked meanwhile; retries after outages."""

    def __init__(self, handler: Callable[[Any], Awaitable[None]]) -> None:
        self._handler = handler
        self._tasks: dict[Any, asyncio.Task[None]] = {}
        self._dirty: set[Any] = set()

    def poke(self, key: Any) -> None:
        self._dirty.add(key)
        if key not in self._tasks:
            self._tasks[key] = asyncio.ensure_future(self._work(key))

    async def _work(self, key: Any) -> None:
        try:
            while key in self._dirty:
                self._dirty.discard(key)
                try:
                    await self._handler(key)
                except OUTAGES:
                    await asyncio.sleep(RELIST_SECONDS)
                    self._dirty.add(key)
        finally:
            del self._tasks[key]

    async def close(self) -> None:
        """Cancel what runs."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def key_of(item: Object) -> tuple[str, str]:
    """(namespace, name); the namespace is empty for what belongs to the cluster."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def condition(item: Object | None, kind: str) -> Object:
    """That condition of an object's status, or an empty one."""
    conditions = ((item or {}).get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), {})
