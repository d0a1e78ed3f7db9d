"""What a kind of object looks like now: one list and one watch for all servers of a Hub, for as long as the Hub lives.

It never gives up. An outage of the API server leaves the last picture standing (:attr:`Watch.fresh` says that it is old), and a
version that is too old to go on from (410 Gone) leads to a new list. Decisions that destroy something read the API server instead.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from .client import Cluster, Kind, Object
from .errors import Forbidden, Gone, KubeError, NotFound

FIRST_DELAY = 0.1
LONGEST_DELAY = 5.0
"""Seconds between two tries while the API server is away: also the longest that a Hub is blind after an outage."""
SESSION = 240
"""Seconds of one watch; then it goes on from where it was, without a list."""
WHILE = 1.0
"""Seconds after which a list and its watch have worked for a while: the next failure is another one."""
QUIET_LOG = 60.0
"""Seconds between two lines of the log about one outage."""


class Watch:
    """The objects of one kind with some labels, by ``namespace/name``."""

    def __init__(
        self, cluster: Cluster, kind: Kind, namespace: str | None, log: logging.Logger, *, labels: str = "", fields: str = ""
    ) -> None:
        self._cluster = cluster
        self._kind = kind
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._log = log
        self._task: asyncio.Task[None] | None = None
        self._loaded = asyncio.Event()
        self._changed = asyncio.Event()
        self._said = 0.0
        self.objects: dict[str, Object] = {}
        """Always the same dict; never to be changed by anybody else."""
        self.fresh = False
        """Whether the picture follows the API server now."""
        self.on_change: Callable[[str, Object], None] | None = None

    def start(self) -> None:
        """Begin; harmless when repeated."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._follow_for_ever())

    async def stop(self) -> None:
        """End it and see it ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        self.fresh = False

    async def loaded(self) -> None:
        """Wait until there was a first picture."""
        self.start()
        await self._loaded.wait()

    def get(self, namespace: str | None, name: str) -> Object | None:
        """The object as it was last seen."""
        return self.objects.get(f"{namespace}/{name}" if namespace is not None else name)

    async def next_change(self, seconds: float) -> None:
        """Wait for the next change of anything, or so many seconds."""
        changed = self._changed
        try:
            await asyncio.wait_for(changed.wait(), seconds)
        except asyncio.TimeoutError:
            return

    async def _follow_for_ever(self) -> None:
        delay = FIRST_DELAY
        version: str | None = None
        while True:
            begun = time.monotonic()
            try:
                if version is None:
                    version = await self._list()
                version = await self._follow(version)
                delay = FIRST_DELAY
                if time.monotonic() - begun <= WHILE:
                    await asyncio.sleep(FIRST_DELAY)  # a server that ends every watch at once is not asked in a loop
                continue
            except Gone:
                version = None
            except KubeError as error:
                self.fresh, version = False, None
                self._tell(error)
            except Exception as error:  # noqa: BLE001 - an answer of another shape: whoever watches must not stay with a dead picture
                self.fresh, version = False, None
                self._tell(error)
            if time.monotonic() - begun > WHILE:
                delay = FIRST_DELAY
            await asyncio.sleep(delay * random.uniform(0.75, 1.0))  # noqa: S311 - so that kinds do not call together
            delay = min(2 * delay, LONGEST_DELAY)

    async def _list(self) -> str:
        found, version = await self._cluster.list(self._kind, self._namespace, self._labels, self._fields)
        now = {key_of(each): each for each in found}
        for key in [key for key in self.objects if key not in now]:
            self._take("DELETED", self.objects[key])
        for each in found:
            if self.objects.get(key_of(each)) != each:
                self._take("MODIFIED", each)
        if not self.fresh and self._loaded.is_set():
            self._log.info("The watch of %s follows again.", self._kind.plural)
        self.fresh = True
        self._loaded.set()
        return version

    async def _follow(self, version: str) -> str:
        """Take changes until the API server ends the watch; the version to go on from."""
        async for change, each in self._cluster.watch(self._kind, self._namespace, self._labels, self._fields, version, SESSION):
            version = each["metadata"]["resourceVersion"]
            if change != "BOOKMARK":
                self._take(change, each)
        return version

    def _take(self, change: str, each: Object) -> None:
        if change == "DELETED":
            self.objects.pop(key_of(each), None)
        else:
            self.objects[key_of(each)] = each
        self._changed.set()
        self._changed = asyncio.Event()
        if self.on_change is not None:
            self.on_change(change, each)

    def _tell(self, error: Exception) -> None:
        """An outage is one line a minute; what an admin or we have to mend is an error."""
        if time.monotonic() - self._said >= QUIET_LOG:
            self._said = time.monotonic()
            level = logging.WARNING if isinstance(error, KubeError) and not isinstance(error, (Forbidden, NotFound)) else logging.ERROR
            self._log.log(level, "The watch of %s is interrupted and goes on trying: %r", self._kind.plural, error)


def key_of(each: Object) -> str:
    """``namespace/name``, or the name of what has no namespace."""
    metadata = each["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
