"""Events, written as a kubelet and the autoscaler write them."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Coroutine
from typing import Any

from .api import OUTAGES, Api, Object
from .nodes import now


class Events:
    """Writes events in the background, in order for each object."""

    def __init__(self, api: Api, background: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self._api = api
        self._background = background
        self._numbers = itertools.count(1)
        self._run = secrets.token_hex(4)
        self._last: dict[str, asyncio.Task[None]] = {}

    def tell(self, about: Object, reason: str, message: str, kind: str = "Normal", *, component: str, host: str = "") -> None:
        """One event about a pod or a snapshot object."""
        meta, at = about["metadata"], now()
        namespace = meta.get("namespace", "default")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name'][:200]}.{self._run}{next(self._numbers):x}", "namespace": namespace},
            "involvedObject": {
                "kind": about.get("kind", "Pod"),
                "apiVersion": about.get("apiVersion", "v1"),
                "name": meta["name"],
                "namespace": namespace,
                "uid": meta["uid"],
            },
            "reason": reason,
            "message": message[:1024],
            "type": kind,
            "count": 1,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "source": {"component": component, **({"host": host} if host else {})},
            "reportingComponent": component,
            "reportingInstance": host,
        }
        uid = meta["uid"]
        self._last[uid] = task = self._background(self._write(event, self._last.get(uid)))
        task.add_done_callback(lambda done: self._last.pop(uid, None) if self._last.get(uid) is done else None)

    async def _write(self, event: Object, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await self._api.create(event)
        except OUTAGES:
            return  # as on a cluster: events are best effort
