"""Calls of the API server: few verbs, objects as plain JSON, a time limit on each, and every write checked strictly.

Objects are dicts as in YAML, never the client's models: they go into Secrets and are compared field by field, and a field that the
client library does not know yet must not get lost.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from kubernetes_asyncio.client import ApiClient

from .errors import KubeError, NotFound, Unavailable, of_status

Object = dict[str, Any]
"""A Kubernetes object as JSON."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object: where the API server keeps it."""

    name: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


SNAPSHOT_GROUP = "podsnapshot.gke.io"

POD = Kind("Pod", "pods")
SECRET = Kind("Secret", "secrets")
EVENT = Kind("Event", "events")
CLAIM = Kind("PersistentVolumeClaim", "persistentvolumeclaims")
NODE = Kind("Node", "nodes", namespaced=False)
TRIGGER = Kind("PodSnapshotManualTrigger", "podsnapshotmanualtriggers", SNAPSHOT_GROUP)
SNAPSHOT = Kind("PodSnapshot", "podsnapshots", SNAPSHOT_GROUP)
POLICY = Kind("PodSnapshotPolicy", "podsnapshotpolicies", SNAPSHOT_GROUP)
STORAGE = Kind("PodSnapshotStorageConfig", "podsnapshotstorageconfigs", SNAPSHOT_GROUP, namespaced=False)

MOST_IN_A_LIST = 500
"""Objects that one answer to a list holds; longer lists come in pieces."""


class Cluster:
    """The API server, seen through the client that KubeSpawner has configured. Raises :class:`~.errors.KubeError` alone."""

    def __init__(self, api: ApiClient, seconds: float = 10.0) -> None:
        self._api = api
        self._seconds = seconds

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """The object as it is now, or None."""
        try:
            return await self._call("GET", path(kind, namespace, name))
        except NotFound:
            return None

    async def list(
        self, kind: Kind, namespace: str | None, labels: str = "", fields: str = "", *, cached: bool = False
    ) -> tuple[list[Object], str]:
        """The objects, and the version to watch from. ``cached``: whatever the API server has in memory will do."""
        query = {"labelSelector": labels, "fieldSelector": fields, **({"resourceVersion": "0"} if cached else {"limit": MOST_IN_A_LIST})}
        found: list[Object] = []
        while True:
            answer = await self._call("GET", path(kind, namespace), query)
            # a list leaves out what each object says of itself when it is read alone
            found += [{"apiVersion": kind.api_version, "kind": kind.name, **item} for item in answer.get("items") or ()]
            more = (answer.get("metadata") or {}).get("continue")
            if not more:
                return found, answer["metadata"]["resourceVersion"]
            query["continue"] = more

    async def create(self, kind: Kind, namespace: str | None, body: Object, *, dry_run: bool = False) -> Object:
        """Create the object; a field that the API server does not know is an error (:class:`~.errors.Invalid`)."""
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        return await self._call("POST", path(kind, namespace), query, body)

    async def replace(self, kind: Kind, namespace: str | None, body: Object) -> Object:
        """Write the object whole; its ``resourceVersion`` makes a write on top of another's a conflict (``AlreadyExists``)."""
        return await self._call("PUT", path(kind, namespace, body["metadata"]["name"]), {"fieldValidation": "Strict"}, body)

    async def delete(self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None, grace: int | None = None) -> None:
        """Begin the deletion; harmless when there is no such object, or none of that ``uid``. ``grace``: seconds, for pods."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            await self._call("DELETE", path(kind, namespace, name), body=body)
        except NotFound:
            return
        except KubeError as error:
            if uid is None or error.status != 409:
                raise

    async def watch(
        self, kind: Kind, namespace: str | None, labels: str = "", fields: str = "", version: str = "", seconds: int = 60
    ) -> AsyncIterator[tuple[str, Object]]:
        """Changes from that version on: (``ADDED`` | ``MODIFIED`` | ``DELETED`` | ``BOOKMARK``, object), until ``seconds`` are over.

        Raises :class:`~.errors.Gone` when the version is too old.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": seconds,
            "labelSelector": labels,
            "fieldSelector": fields,
        }
        limit = aiohttp.ClientTimeout(total=seconds + self._seconds, sock_connect=self._seconds)
        try:
            async with await self._request("GET", path(kind, namespace), query, None, limit) as response:
                if response.status >= 400:
                    raise _error(response.status, await response.read())
                async for line in _lines(response):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise of_status(int(status.get("code") or 500), str(status.get("message")), str(status.get("reason")))
                    yield event["type"], event["object"]
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as error:
            raise Unavailable(0, f"watch of {kind.plural}: {error!r}") from error

    async def serves(self, kind: Kind) -> bool:
        """Whether the API server has that kind; one that may not be asked for counts as absent."""
        try:
            answer = await self._call("GET", f"/apis/{kind.group}/{kind.version}")
        except KubeError as error:
            if error.status in (401, 403, 404):
                return False
            raise
        return any(resource.get("name") == kind.plural for resource in answer.get("resources") or ())

    async def version(self) -> Object:
        """What the API server says of itself; ``gitVersion`` names its version."""
        return await self._call("GET", "/version")

    async def _call(self, method: str, where: str, query: Mapping[str, Any] | None = None, body: Object | None = None) -> Object:
        try:
            async with await self._request(method, where, query or {}, body, self._seconds) as response:
                data = await response.read()
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise Unavailable(0, f"{method} {where}: {error!r}") from error
        if response.status >= 400:
            raise _error(response.status, data)
        try:
            answer = json.loads(data)
        except ValueError as error:
            raise Unavailable(response.status, f"{method} {where}: no JSON") from error
        return answer if isinstance(answer, dict) else {}

    async def _request(self, method: str, where: str, query: Mapping[str, Any], body: Object | None, limit: Any) -> Any:
        return await self._api.call_api(
            where,
            method,
            query_params=[(name, value) for name, value in query.items() if value != ""],
            header_params={"Accept": "application/json", "Content-Type": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=limit,
        )


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length: one pod can be longer than a stream reader's limit for a line."""
    rest = b""
    async for chunk in response.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line


def path(kind: Kind, namespace: str | None, name: str = "") -> str:
    """Where the API server keeps those objects, or that one; ``namespace`` None is all of them."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    inside = f"/namespaces/{namespace}" if kind.namespaced and namespace is not None else ""
    return f"{root}{inside}/{kind.plural}" + (f"/{name}" if name else "")


def _error(status: int, data: bytes) -> KubeError:
    try:
        answer = json.loads(data)
    except ValueError:
        answer = {}
    if not isinstance(answer, dict):
        answer = {}
    return of_status(status, str(answer.get("message") or data[:500].decode("utf-8", "replace")), str(answer.get("reason") or ""))
