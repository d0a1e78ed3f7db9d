"""The nodes' agents in one: renews leases, runs each bound pod, obeys what is done to machines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from .api import OUTAGES, RELIST_SECONDS, STRATEGIC, Api, ApiError, Informer, Object, condition, key_of
from .events import Events
from .faults import Faults
from .kubelet import PodWorker
from .nodes import POWER, PREEMPTED, Nodes, ready_status
from .provisioner import Provisioner
from .resolve import Resolver
from .restores import Restores
from .runtime import Images, Runtime

T = TypeVar("T")
LEASE_SECONDS = 1.5
GONE = frozenset({404, 409})
"""Answers after which a write makes no sense any more: the object is gone, or is another one of that name."""
SHUTDOWN_REASON = "Terminated"
SHUTDOWN_MESSAGE = "Pod was terminated in response to imminent node shutdown."


class NodeAgent:
    """One for all nodes of the cluster."""

    def __init__(
        self,
        api: Api,
        *,
        pods: Informer,
        nodes: Informer,
        volumes: Provisioner,
        faults: Faults,
        images: Images,
        runtime: Runtime,
        kubelet_port: int,
        folder: Path,
    ) -> None:
        self.api = api
        self.faults = faults
        self.images = images
        self.runtime = runtime
        self.restores: Restores
        self.events = Events(api, self.background)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Gets the exception of the first thing that failed in the background."""
        self.workers: dict[str, PodWorker] = {}
        """By pod UID."""
        self._pods = pods
        self._nodes = nodes
        self._volumes = volumes
        self._api_nodes = Nodes(api, kubelet_port)
        self._folder = folder
        self._tasks: set[asyncio.Task[Any]] = set()
        self._mounted: dict[str, dict[str, list[str]]] = {}
        """Node -> pod UID -> what it has mounted, as a node reports it."""
        self._reporting: dict[str, asyncio.Lock] = {}
        """By node: what is reported last is what there is."""
        pods.listen(self._pod_changed)
        nodes.listen(self._node_changed)

    # ------------------------------------------------------------ for workers

    def resolver(self, node: str) -> Resolver:
        """Resolves what pods on that node name."""
        return Resolver(self.api, lambda namespace, claim: self._volumes.folder_of(namespace, claim, node), self._folder / "pods")

    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run it beside everything else; ended with the agent."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def watch(self, task: asyncio.Task[Any]) -> None:
        """Let the whole emulator fail when that task does."""
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self.failed.done():
            self.failed.set_exception(task.exception() or AssertionError)

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """Repeat a call until it is answered; ``None`` when its object is gone."""
        while True:
            try:
                return await call()
            except ApiError as error:
                if error.status in GONE:
                    return None
                if error.status in (400, 422):
                    raise  # we said what cannot be
            except OUTAGES:
                pass
            await asyncio.sleep(RELIST_SECONDS)

    async def write_status(self, worker: PodWorker, body: Object) -> None:
        await self.api.patch("Pod", worker.namespace, worker.name, body, subresource="status", content=STRATEGIC)

    def let_go(self, worker: PodWorker) -> None:
        """The worker has nothing left to do."""
        if self.workers.get(worker.uid) is worker:
            del self.workers[worker.uid]
        if self._mounted.get(worker.node, {}).pop(worker.uid, None) and self._is_powered(worker.node):
            self.background(self._report_volumes(worker.node))

    async def mount(self, worker: PodWorker) -> None:
        """The node has that pod's disks in use from now; nobody takes them away until it is gone."""
        volumes = worker.pod["spec"].get("volumes") or ()
        claims = [one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one]
        handles = self._volumes.handles(worker.namespace, claims)
        if handles:
            self._mounted.setdefault(worker.node, {})[worker.uid] = handles
            await self._report_volumes(worker.node)

    async def _report_volumes(self, node: str) -> None:
        async with self._reporting.setdefault(node, asyncio.Lock()):
            used = sorted({handle for handles in self._mounted.get(node, {}).values() for handle in handles})
            body = {"status": {"volumesInUse": used or None}}
            await self.insist(lambda: self.api.patch("Node", None, node, body, subresource="status", content=STRATEGIC))

    def worker_of(self, namespace: str, name: str) -> PodWorker | None:
        """The worker of the pod of that name."""
        return next((one for one in self.workers.values() if (one.namespace, one.name) == (namespace, name)), None)

    # ------------------------------------------------------------ pods and nodes

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        if old is not None and (new is None or old["metadata"]["uid"] != new["metadata"]["uid"]):
            worker = self.workers.get(old["metadata"]["uid"])
            if worker is not None:
                self.background(worker.lost())
        if new is None:
            return
        worker = self.workers.get(new["metadata"]["uid"])
        if worker is not None:
            worker.update(new)
        elif self._is_powered(new["spec"].get("nodeName", "")):
            self._begin(new)

    def _begin(self, pod: Object) -> None:
        if pod["metadata"].get("deletionGracePeriodSeconds") == 0:
            return  # ended already, something else holds the object
        self.workers[pod["metadata"]["uid"]] = PodWorker(self, pod)

    def _is_powered(self, node: str) -> bool:
        found = self._nodes.items.get(("", node))
        return found is not None and (found["metadata"].get("annotations") or {}).get(POWER) == "on"

    def _node_changed(self, old: Object | None, new: Object | None) -> None:
        name = key_of(new or old or {})[1]
        was, is_on = _annotation(old, POWER) == "on", _annotation(new, POWER) == "on"
        if was and not is_on:
            for worker in [one for one in self.workers.values() if one.node == name]:
                self.background(worker.lost())
        if is_on and not was:
            if old is not None:  # it boots again, and has nothing mounted
                self.background(self._report_volumes(name))
            for pod in self._pods.items.values():
                if pod["spec"].get("nodeName") == name and pod["metadata"]["uid"] not in self.workers:
                    self._begin(pod)
        if _annotation(new, PREEMPTED) == "yes" and _annotation(old, PREEMPTED) != "yes":
            self.background(self._shut_node_down(name))

    async def _shut_node_down(self, name: str) -> None:
        """Graceful node shutdown, then the machine and its Node are gone."""
        status = {"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "node is shutting down"}]}
        await self.insist(lambda: self.api.patch("Node", None, name, {"status": status}, subresource="status", content=STRATEGIC))
        workers = [one for one in self.workers.values() if one.node == name]
        for worker in workers:
            worker.shut_down(SHUTDOWN_REASON, SHUTDOWN_MESSAGE)
        while any(self.workers.get(worker.uid) is worker for worker in workers):
            await asyncio.sleep(RELIST_SECONDS / 3)
        await self.insist(lambda: self.api.delete("Node", None, name))

    # ------------------------------------------------------------ life

    async def run(self) -> None:
        """Renew leases for ever."""
        while True:
            for name in [key[1] for key in self._nodes.items]:
                if self._is_powered(name):
                    try:
                        await self._renew(name)
                    except OUTAGES:
                        continue
            await asyncio.sleep(LEASE_SECONDS)

    async def _renew(self, name: str) -> None:
        """The lease; and the conditions, where the node was taken for dead meanwhile."""
        await self._api_nodes.renew(name)
        node = self._nodes.items.get(("", name))
        if node is not None and condition(node, "Ready").get("status") != "True" and _annotation(node, PREEMPTED) != "yes":
            await self.api.patch("Node", None, name, {"status": ready_status()}, subresource="status", content=STRATEGIC)

    async def close(self) -> None:
        """End all pods at once, as when all machines are switched off."""
        await asyncio.gather(*(worker.lost() for worker in list(self.workers.values())))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.runtime.close()

    @staticmethod
    def container_names(pod: Object) -> list[str]:
        """Init containers first."""
        spec = pod["spec"]
        return [one["name"] for one in (*(spec.get("initContainers") or ()), *spec["containers"])]


def _annotation(node: Object | None, name: str) -> str:
    return str(((node or {}).get("metadata") or {}).get("annotations", {}).get(name, ""))
