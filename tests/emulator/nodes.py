"""Nodes: what a machine of GKE looks like as a Node object, and what happens to machines at run time.

Everything is done through the API, so a test, a person with kubectl and the emulator may all do it. The node agent obeys two
annotations: ``emulator/power`` (``off``: the machine is dead, nothing of it is told any more) and ``emulator/preempted`` (``yes``: it
shuts down, pods get their notice, then the Node goes).
"""

from __future__ import annotations

import asyncio
import datetime
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .api import STRATEGIC, Api, ApiError, Object

POWER = "emulator/power"
PREEMPTED = "emulator/preempted"
GVISOR = "emulator/gvisor-version"
DRIVER = "emulator/gpu-driver-version"
CPU_PLATFORM = "emulator/cpu-platform"
MANAGED_ATTACH = "volumes.kubernetes.io/controller-managed-attach-detach"
"""A kubelet's sign that the controller attaches its volumes."""
LEASES = "kube-node-lease"
CPU_PLATFORMS = ("Intel Haswell", "Intel Broadwell", "Intel Skylake", "Intel Cascade Lake", "Intel Ice Lake", "Intel Sapphire Rapids")
"""Each has all the CPU features of those before it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One row of the node table."""

    name: str
    zone: str = "us-central1-a"
    machine_type: str = "n2-standard-8"
    pool: str = "workspaces"
    accelerator: str = ""
    """Value of ``cloud.google.com/gke-accelerator`` (``nvidia-l4``), or of ``gke-tpu-accelerator`` (``tpu-...``)."""
    count: int = 0
    topology: str = ""
    """Of a TPU."""
    spot: bool = False
    gvisor: str = "20251110.0"
    """gVisor's version, empty for a pool without GKE Sandbox."""
    kubelet: str = "v1.34.4-gke.1047000"
    driver: str = "580.95.05"
    cpu_platform: str = "Intel Ice Lake"
    cpu: str = "8"
    memory: str = "32Gi"
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def series(self) -> str:
        return self.machine_type.split("-", 1)[0]

    @property
    def resource(self) -> str:
        """The extended resource of its accelerator, or nothing."""
        if not self.accelerator:
            return ""
        return "google.com/tpu" if self.accelerator.startswith("tpu") else "nvidia.com/gpu"

    def manifest(self) -> Object:
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": self.zone,
            "topology.kubernetes.io/region": self.zone.rpartition("-")[0],
            "topology.gke.io/zone": self.zone,
            "node.kubernetes.io/instance-type": self.machine_type,
            "cloud.google.com/machine-family": self.series,
            "cloud.google.com/gke-nodepool": self.pool,
            "cloud.google.com/gke-os-distribution": "cos",
            **self.labels,
        }
        taints = []
        if self.gvisor:
            labels["sandbox.gke.io/runtime"] = "gvisor"
            taints.append({"key": "sandbox.gke.io/runtime", "value": "gvisor", "effect": "NoSchedule"})
        if self.spot:
            labels |= {"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-provisioning": "spot"}
        if self.resource == "nvidia.com/gpu":
            labels |= {
                "cloud.google.com/gke-accelerator": self.accelerator,
                "cloud.google.com/gke-accelerator-count": str(self.count),
                "cloud.google.com/gke-gpu": "true",
            }
        elif self.resource:
            labels |= {"cloud.google.com/gke-tpu-accelerator": self.accelerator, "cloud.google.com/gke-tpu-topology": self.topology}
        if self.resource:
            taints.append({"key": self.resource, "value": "present", "effect": "NoSchedule"})
        annotations = {POWER: "on", CPU_PLATFORM: self.cpu_platform, GVISOR: self.gvisor, MANAGED_ATTACH: "true"}
        if self.resource == "nvidia.com/gpu":
            annotations[DRIVER] = self.driver
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels, "annotations": annotations},
            "spec": {"providerID": f"gce://emulator/{self.zone}/{self.name}", "taints": taints},
        }

    def resources(self) -> dict[str, str]:
        found = {"cpu": self.cpu, "memory": self.memory, "ephemeral-storage": "90Gi", "pods": "110"}
        return {**found, self.resource: str(self.count)} if self.resource else found


DEFAULT_TABLE = (
    Machine("gke-system-1", pool="system", machine_type="e2-standard-4", gvisor="", cpu="4", memory="16Gi"),
    Machine("gke-workspaces-1"),
    Machine("gke-workspaces-2"),
)
"""A pool without sandboxes, as Standard clusters need one, and two nodes for workspaces."""


def now() -> str:
    """As the API writes times."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def ready_status() -> Object:
    """Conditions of a node that is well."""
    at = now()
    conditions = [
        {"type": "Ready", "status": "True", "reason": "KubeletReady"},
        *({"type": kind, "status": "False", "reason": "KubeletOk"} for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")),
    ]
    return {"conditions": [{**one, "message": "", "lastHeartbeatTime": at, "lastTransitionTime": at} for one in conditions]}


class Nodes:
    """The machines of a cluster; ``api`` needs the rights of an administrator."""

    def __init__(self, api: Api, kubelet_port: int) -> None:
        self._api = api
        self._kubelet_port = kubelet_port

    async def add(self, machine: Machine) -> None:
        """A new node, ready."""
        await self._api.create(machine.manifest())
        await self._renew(machine.name, create=True)
        resources = machine.resources()
        status = {
            **ready_status(),
            "capacity": resources,
            "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": machine.name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._kubelet_port}},
            "nodeInfo": {
                "kubeletVersion": machine.kubelet,
                "kubeProxyVersion": "",
                "containerRuntimeVersion": "containerd://2.0.6",
                "osImage": "Container-Optimized OS from Google",
                "kernelVersion": "6.6.105+",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "machineID": machine.name,
                "systemUUID": machine.name,
                "bootID": machine.name,
            },
        }
        await self._api.patch("Node", None, machine.name, {"status": status}, subresource="status", content=STRATEGIC)

    async def _renew(self, name: str, *, create: bool = False) -> None:
        at = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": at}
        try:
            await self._api.patch("Lease", LEASES, name, {"spec": spec})
        except ApiError as error:
            if error.status != 404 or not create:
                raise
            meta = {"name": name, "namespace": LEASES}
            await self._api.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})

    async def renew(self, name: str) -> None:
        """Say that the node lives, as a kubelet does all the time."""
        await self._renew(name, create=True)

    async def kill(self, name: str) -> None:
        """The machine is dead from one moment to the next; Kubernetes finds out by its lease."""
        await self._annotate(name, {POWER: "off"})

    async def revive(self, name: str) -> None:
        """It boots again: what ran there is gone."""
        await self._annotate(name, {POWER: "on"})

    async def preempt(self, name: str) -> None:
        """Spot: notice, shutdown, gone."""
        await self._annotate(name, {PREEMPTED: "yes"})

    async def remove(self, name: str) -> None:
        """The machine and its Node go at once, as when a pool is resized; one that is gone is none to complain of."""
        if await self._api.find("Node", None, name) is not None:
            await self._annotate(name, {POWER: "off"})
            await self._api.delete("Node", None, name)

    async def cordon(self, name: str, on: bool = True) -> None:
        await self._api.patch("Node", None, name, {"spec": {"unschedulable": on}})

    async def drain(self, name: str, seconds: float = 60.0) -> None:
        """Cordon it and evict its pods; returns when they are gone. Raises TimeoutError."""
        await self.cordon(name)
        end = asyncio.get_running_loop().time() + seconds
        while True:
            pods = [pod for pod in await self._api.list("Pod") if (pod["spec"].get("nodeName")) == name]
            if not pods:
                return
            if asyncio.get_running_loop().time() > end:
                raise asyncio.TimeoutError(f"{len(pods)} pods stay on {name}")
            for pod in pods:
                if not pod["metadata"].get("deletionTimestamp"):
                    await self._evict(pod)
            await asyncio.sleep(0.1)

    async def _evict(self, pod: Object) -> None:
        meta = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        try:
            await self._api.call("POST", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction", body)
        except ApiError as error:
            if error.status not in (404, 429):  # gone, or a disruption budget that says later
                raise

    async def upgrade(self, name: str, *, gvisor: str, kubelet: str = "v1.34.4-gke.2000000", driver: str | None = None) -> None:
        """Drain it, and bring it back with newer versions."""
        await self.drain(name)
        await self._annotate(name, {GVISOR: gvisor, **({DRIVER: driver} if driver else {})})
        status = {"status": {"nodeInfo": {"kubeletVersion": kubelet}}}
        await self._api.patch("Node", None, name, status, subresource="status", content=STRATEGIC)
        await self.cordon(name, on=False)

    async def _annotate(self, name: str, annotations: dict[str, str]) -> None:
        await self._api.patch("Node", None, name, {"metadata": {"annotations": annotations}})


def machine_of(row: dict[str, Any]) -> Machine:
    """A row of a table in TOML. Raises ValueError for a column that is none."""
    unknown = set(row) - set(asdict(Machine("x")))
    if unknown:
        raise ValueError(f"a node has no {', '.join(sorted(unknown))}")
    return replace(Machine(row["name"]), **row)
