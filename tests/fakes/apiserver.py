"""An API server in memory, for the parts of the engine that talk to one: objects with labels, deletions, watches; faults are attributes."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator
from typing import Any

from gke_workspaces_spawner.kube.client import Cluster, Kind, Object
from gke_workspaces_spawner.kube.errors import AlreadyExists, KubeError, NotFound


class FakeApiServer(Cluster):
    """What :class:`~gke_workspaces_spawner.kube.client.Cluster` gives, from a dictionary."""

    def __init__(self) -> None:
        """It has no client."""
        self.objects: dict[tuple[str, str], Object] = {}
        self.calls: list[tuple[str, str, str]] = []
        """(verb, kind, name) of every write."""
        self.errors: dict[str, KubeError] = {}
        """By ``verb Kind``."""
        self.held: set[str] = set()
        """Names of what a finalizer keeps."""
        self.blind: set[str] = set()
        """Names of what no list and no watch shows."""
        self._versions = itertools.count(1)
        self._changed = asyncio.Event()

    def put(self, kind: Kind, name: str, labels: dict[str, str] | None = None, **parts: Any) -> Object:
        """An object that is there, or is as follows from now."""
        metadata = {"name": name, "namespace": "hub", "uid": f"uid-{name}", "labels": labels or {}, **parts.pop("metadata", {})}
        self.objects[kind.name, name] = made = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **parts}
        self._touch(made)
        return made

    def names(self, kind: Kind) -> set[str]:
        return {name for of, name in self.objects if of == kind.name}

    def _touch(self, each: Object) -> None:
        each["metadata"]["resourceVersion"] = str(next(self._versions))
        self._changed.set()
        self._changed = asyncio.Event()

    def _fail(self, verb: str, kind: Kind) -> None:
        if (error := self.errors.get(f"{verb} {kind.name}")) is not None:
            raise error

    def _shown(self, kind: Kind, labels: str) -> list[Object]:
        wanted = [rule.partition("=") for rule in labels.split(",") if rule]
        return [
            copy.deepcopy(each)
            for (of, name), each in self.objects.items()
            if of == kind.name
            and name not in self.blind
            and all(
                key in each["metadata"]["labels"] and each["metadata"]["labels"][key] in (value or each["metadata"]["labels"][key],)
                for key, _, value in wanted
            )
        ]

    # ------------------------------------------------------------ the client's calls

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        self._fail("get", kind)
        return copy.deepcopy(self.objects.get((kind.name, name)))

    async def list(
        self, kind: Kind, namespace: str | None, labels: str = "", fields: str = "", *, cached: bool = False
    ) -> tuple[list[Object], str]:
        self._fail("list", kind)
        return self._shown(kind, labels), "0"

    async def create(self, kind: Kind, namespace: str | None, body: Object, *, dry_run: bool = False) -> Object:
        self._fail("create", kind)
        name = body["metadata"]["name"]
        if (kind.name, name) in self.objects:
            raise AlreadyExists(409, f"{name} exists")
        self.calls.append(("create", kind.name, name))
        rest = {key: value for key, value in body.items() if key not in ("metadata", "kind", "apiVersion")}
        return self.put(kind, name, body["metadata"].get("labels"), metadata=copy.deepcopy(body["metadata"]), **copy.deepcopy(rest))

    async def replace(self, kind: Kind, namespace: str | None, body: Object) -> Object:
        if (kind.name, body["metadata"]["name"]) not in self.objects:
            raise NotFound(404, body["metadata"]["name"])
        del self.objects[kind.name, body["metadata"]["name"]]
        return await self.create(kind, namespace, body)

    async def delete(self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None, grace: int | None = None) -> None:
        self._fail("delete", kind)
        each = self.objects.get((kind.name, name))
        if each is None or uid not in (None, each["metadata"]["uid"]):
            return
        self.calls.append(("delete", kind.name, name))
        if name in self.held:
            each["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self._touch(each)
        else:
            del self.objects[kind.name, name]
            self._touch(each)

    async def serves(self, kind: Kind) -> bool:
        return True

    async def watch(
        self, kind: Kind, namespace: str | None, labels: str = "", fields: str = "", version: str = "", seconds: int = 60
    ) -> AsyncIterator[tuple[str, Object]]:
        seen: dict[str, Object] = {}
        while True:
            changed = self._changed
            now = {each["metadata"]["name"]: each for each in self._shown(kind, labels)}
            for name in [name for name in seen if name not in now]:
                yield "DELETED", seen.pop(name)
            for name, each in now.items():
                if seen.get(name) != each:
                    seen[name] = each
                    yield "MODIFIED", each
            await changed.wait()
