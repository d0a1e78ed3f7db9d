"""The whole emulator: control plane, what Google adds, nodes, object storage; started together, ended together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.ports import free_port

from .agent import NodeAgent
from .api import OUTAGES, Api, ApiError, Informer, Object, path_of
from .autoscaler import Autoscaler, Pool
from .binaries import Binaries
from .controlplane import ControlPlane
from .faults import Faults
from .logs import KubeletPort
from .nodes import DEFAULT_TABLE, Machine, Nodes
from .outages import Outages
from .pretend import PretendRuntime
from .provisioner import Provisioner
from .restores import Restores
from .runtime import Images, Runtime
from .snapshots import Snapshots
from .storage import ObjectStorage

HERE = Path(__file__).parent
NAMESPACE = "hub"
BUCKET = "hub-snapshots"
KINDS = (
    "Pod", "Node", "ConfigMap", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "VolumeAttachment",
    "PodSnapshotStorageConfig", "PodSnapshotPolicy", "PodSnapshotManualTrigger", "PodSnapshot",
)  # fmt: skip
SETTLE_SECONDS = 30.0


class Cluster:
    """One emulated GKE in ``folder``; ``async with`` it, or :meth:`start` and :meth:`close`."""

    def __init__(
        self,
        folder: Path,
        programs: Binaries,
        *,
        table: Sequence[Machine] = DEFAULT_TABLE,
        pools: Sequence[Pool] = (),
        runtime: Callable[[Images, Path], Runtime] = lambda images, _folder: PretendRuntime(images),
    ) -> None:
        self.folder = folder
        self.plane = ControlPlane(folder / "control-plane", programs)
        self.storage = ObjectStorage(folder)
        self._table = table
        self._pools = list(pools)
        self._make_runtime = runtime
        self._port = free_port()
        self._api = Api(self.plane.kubeconfig("gke"))
        self._tasks: list[asyncio.Future[Any]] = []
        self._parts: contextlib.AsyncExitStack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Cluster:
        await self.start()
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Everything up, nodes ready, one bucket and one namespace made. Raises RuntimeError; nothing is left running then."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def _start(self) -> None:
        self._parts.push_async_callback(self.plane.close)
        self._parts.push_async_callback(self.storage.close)
        await asyncio.gather(self.plane.start(), self.storage.start())
        await self.storage.make_bucket(BUCKET)
        api = await self._parts.enter_async_context(self._api)
        await install(api)
        informers = {kind: Informer(api, kind) for kind in KINDS}
        self._build(api, informers)
        for informer in informers.values():
            self._task(informer.run())
        await asyncio.gather(*(informer.synced.wait() for informer in informers.values()))
        nodes = Nodes(api, self._port)
        await asyncio.gather(*(nodes.add(machine) for machine in self._table))
        await self._settled(informers["Node"])
        await self._protected()

    def _build(self, api: Api, informers: dict[str, Informer]) -> None:
        """All of ours on top, wired together."""
        faults, images = Faults(informers["ConfigMap"]), Images()
        agent: NodeAgent
        provisioner = Provisioner(
            api,
            self.folder / "volumes",
            lambda call: agent.insist(call),
            claims=informers["PersistentVolumeClaim"],
            volumes=informers["PersistentVolume"],
            classes=informers["StorageClass"],
            attachments=informers["VolumeAttachment"],
            nodes=informers["Node"],
        )
        agent = NodeAgent(
            api,
            pods=informers["Pod"],
            nodes=informers["Node"],
            volumes=provisioner,
            faults=faults,
            images=images,
            runtime=self._make_runtime(images, self.folder),
            kubelet_port=self._port,
            folder=self.folder,
        )
        agent.restores = Restores(
            api,
            informers["PodSnapshot"],
            informers["PodSnapshotPolicy"],
            informers["Node"],
            self.storage,
            faults,
            self.folder / "restoring",
            agent.insist,
        )
        snapshots = Snapshots(
            api,
            agent,
            agent.restores,
            self.storage,
            faults,
            self.folder / "saving",
            configs=informers["PodSnapshotStorageConfig"],
            policies=informers["PodSnapshotPolicy"],
            triggers=informers["PodSnapshotManualTrigger"],
            snapshots=informers["PodSnapshot"],
            nodes=informers["Node"],
        )
        nodes = Nodes(api, self._port)
        autoscaler = Autoscaler(api, nodes, agent.events, faults, informers["Pod"], informers["Node"], self._pools, agent.background)
        port = KubeletPort(self._port, self.plane.folder, agent.worker_of)
        self._tasks.append(agent.failed)
        self._parts.push_async_callback(agent.close)
        self._parts.push_async_callback(snapshots.close)
        self._parts.push_async_callback(provisioner.close)
        self._parts.push_async_callback(port.close)
        self._parts.push_async_callback(self._end_tasks)
        for part in (agent.run(), snapshots.run(), autoscaler.run(), Outages(api, self.plane, faults).run(), port.start()):
            self._task(part)

    def _task(self, work: Any) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def _settled(self, nodes: Informer) -> None:
        """Until the nodes have no taint of a node that is coming, so that a first pod is not refused."""
        end = asyncio.get_running_loop().time() + SETTLE_SECONDS
        while True:
            there = [node for node in nodes.items.values() if not _is_tainted(node)]
            if len(there) >= len(self._table):
                return
            if asyncio.get_running_loop().time() > end:
                raise RuntimeError("nodes did not get ready")
            await asyncio.sleep(0.05)

    async def _protected(self) -> None:
        """Until the admission policy is in force: an apiserver takes a moment to learn of one."""
        manifest: Object = {
            "apiVersion": "podsnapshot.gke.io/v1",
            "kind": "PodSnapshot",
            "metadata": {"name": "probe", "namespace": NAMESPACE},
            "spec": {"policyName": "probe"},
        }
        async with Api(self.plane.kubeconfig("admin")) as admin:
            while True:
                try:
                    await admin.call("POST", path_of("PodSnapshot", NAMESPACE), manifest, query={"dryRun": "All"})
                except ApiError as error:
                    if error.status == 422:
                        return
                await asyncio.sleep(0.05)

    async def failed(self) -> None:
        """Wait until a part of the emulator has failed, and raise what it failed with."""
        done, _ = await asyncio.wait([task for task in self._tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """End everything, in the reverse order of its start."""
        await self._parts.aclose()

    def facts(self) -> dict[str, Any]:
        """What a ready file says of the cluster."""
        return {
            "kubeconfig": str(self.plane.kubeconfig("admin")),
            "gke_kubeconfig": str(self.plane.kubeconfig("gke")),
            "api_url": self.plane.url,
            "namespace": NAMESPACE,
            "bucket": BUCKET,
            "bucket_url": f"{self.storage.url}/storage/v1/b/{BUCKET}",
            "storage_emulator_host": self.storage.url,
            "kubelet_port": self._port,
            "folder": str(self.folder),
            "pids": {name: getattr(self.plane, name).pid for name in ("etcd", "apiserver", "scheduler", "controllers")},
        }


def _is_tainted(node: Object) -> bool:
    taints = (node["spec"].get("taints")) or ()
    return any(taint["key"].startswith("node.kubernetes.io/") for taint in taints)


async def install(api: Api) -> None:
    """The definitions, the admission policy, classes, and the hub's namespace."""
    definitions = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((HERE / "crds").glob("*.yaml"))]
    others = list(yaml.safe_load_all((HERE / "manifests" / "cluster.yaml").read_text(encoding="utf-8")))
    namespaces = [one for one in others if one["kind"] == "Namespace"]
    await asyncio.gather(*(api.apply(one) for one in (*definitions, *namespaces)))
    await asyncio.gather(*(api.apply(one) for one in others if one["kind"] != "Namespace"))
    await api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    end = asyncio.get_running_loop().time() + SETTLE_SECONDS
    for kind in ("PodSnapshotStorageConfig", "PodSnapshotPolicy", "PodSnapshotManualTrigger", "PodSnapshot"):
        while True:
            try:
                await api.list(kind)
                break
            except OUTAGES:
                if asyncio.get_running_loop().time() > end:
                    raise
                await asyncio.sleep(0.05)


def write_ready_file(path: Path, facts: dict[str, Any]) -> None:
    """0600, there whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=1)
    new.replace(path)
