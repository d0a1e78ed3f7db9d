"""A real control plane on the loopback: etcd, kube-apiserver, kube-scheduler, kube-controller-manager, up in seconds.

Who may call it, by token: ``admin`` (cluster-admin, what a person has), ``gke`` (what Google's own controllers and agents are: the
emulator; the admission policy that protects PodSnapshot lets only this one write them), and whichever service account somebody makes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import signal
from pathlib import Path

import aiohttp
import yaml

from tests.ports import free_port

from .api import OUTAGES, Api, write_kubeconfig
from .binaries import Binaries
from .certificates import make_certificates
from .processes import Program

SERVICE_RANGE = "10.0.0.0/24"
SERVICE_IP = "10.0.0.1"
READY_SECONDS = 60.0
GKE_USER = "system:gke-pod-snapshot"
IDENTITIES = {
    # name of the kubeconfig -> user, groups
    "admin": ("admin@example.org", ("system:masters",)),
    "gke": (GKE_USER, ("system:masters",)),
    "scheduler": ("system:kube-scheduler", ()),
    "controller-manager": ("system:kube-controller-manager", ()),
}
TOLERATION_SECONDS = 5
"""How long a pod stays on a node that is not ready or unreachable (five minutes on a cluster)."""
NODE_GRACE_SECONDS = 8
"""How long a node may not renew its lease before it is not ready (40 or 50 seconds on a cluster)."""


class ControlPlane:
    """All programs of one control plane in ``folder``; the apiserver can be killed and started again with the same data."""

    def __init__(self, folder: Path, programs: Binaries) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.port = free_port()
        self._etcd_port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        make_certificates(folder, SERVICE_IP)
        self._write_identities()
        self.etcd = self._program("etcd", programs, self._etcd_flags())
        self.apiserver = self._program("kube-apiserver", programs, self._apiserver_flags())
        self.scheduler = self._program("kube-scheduler", programs, self._scheduler_flags())
        self.controllers = self._program("kube-controller-manager", programs, self._controller_flags())

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Start all; returns when the apiserver is ready. Raises RuntimeError with the end of a log."""
        await self.etcd.start()
        await self.etcd.listens(self._etcd_port)
        await self.start_apiserver()
        await self.scheduler.start()
        await self.controllers.start()

    async def start_apiserver(self) -> None:
        """Start it (again) and wait until it is ready."""
        await self.apiserver.start()
        end = asyncio.get_running_loop().time() + READY_SECONDS
        async with Api(self.kubeconfig("admin")) as api:
            while True:
                try:
                    await api.call("GET", "/readyz", seconds=5)
                    return
                except OUTAGES:
                    if not self.apiserver.running or asyncio.get_running_loop().time() > end:
                        raise RuntimeError(f"kube-apiserver did not get ready: {self.apiserver.tail()}\n{self.etcd.tail()}") from None
                    await asyncio.sleep(0.05)

    async def kill_apiserver(self) -> None:
        """SIGKILL it: every connection and watch breaks."""
        await self.apiserver.kill()

    async def expire_watches(self) -> None:
        """Throw all old revisions away and restart the apiserver: whoever goes on from an old one gets 410 Gone."""
        async with aiohttp.ClientSession(f"http://127.0.0.1:{self._etcd_port}") as etcd:
            async with etcd.post("/v3/kv/range", json={"key": base64.b64encode(b"x").decode()}) as answer:
                revision = (await answer.json())["header"]["revision"]
            async with etcd.post("/v3/kv/compaction", json={"revision": revision, "physical": True}) as answer:
                await answer.read()
        await self.kill_apiserver()
        await self.start_apiserver()

    def hold_apiserver(self) -> None:
        """It stands still: connections stay open and nothing answers."""
        self.apiserver.send(signal.SIGSTOP)

    def let_apiserver_go(self) -> None:
        self.apiserver.send(signal.SIGCONT)

    async def close(self) -> None:
        """End all, whatever state they are in."""
        self.let_apiserver_go()
        await asyncio.gather(self.scheduler.kill(), self.controllers.kill())
        await self.apiserver.kill()
        await self.etcd.kill()

    # ------------------------------------------------------------ identities

    def kubeconfig(self, identity: str) -> Path:
        return self.folder / f"{identity}.kubeconfig"

    def _write_identities(self) -> None:
        lines = []
        for name, (user, groups) in IDENTITIES.items():
            token = secrets.token_hex(16)
            quoted = json.dumps(",".join(groups))
            lines.append(f"{token},{user},{name},{quoted}" if groups else f"{token},{user},{name}")
            authority = base64.b64encode((self.folder / "ca.crt").read_bytes()).decode()
            write_kubeconfig(self.kubeconfig(name), self.url, authority, token)
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text("\n".join(lines) + "\n", encoding="ascii")

    # ------------------------------------------------------------ flags

    def _program(self, name: str, programs: Binaries, flags: list[str]) -> Program:
        return Program(name, [programs.path(name), *flags], self.folder, {"GOGC": "100"})

    def _etcd_flags(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{free_port()}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver_flags(self) -> list[str]:
        place = self.folder
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--tls-cert-file={place / 'server.crt'}",
            f"--tls-private-key-file={place / 'server.key'}",
            f"--service-account-key-file={place / 'accounts.key'}",
            f"--service-account-signing-key-file={place / 'accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={place / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            "--endpoint-reconciler-type=none",  # it would refuse to advertise a loopback address
            f"--default-not-ready-toleration-seconds={TOLERATION_SECONDS}",
            f"--default-unreachable-toleration-seconds={TOLERATION_SECONDS}",
            "--enable-admission-plugins=ExtendedResourceToleration",  # as on GKE: pods that ask for GPUs tolerate their taint
            "--event-ttl=1h",
        ]

    def _scheduler_flags(self) -> list[str]:
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig("scheduler")), "qps": 500, "burst": 1000},
            "leaderElection": {"leaderElect": False},
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 2,
        }
        path = self.folder / "scheduler.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return [f"--config={path}", "--secure-port=0"]

    def _controller_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig('controller-manager')}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--service-account-private-key-file={self.folder / 'accounts.key'}",
            f"--root-ca-file={self.folder / 'ca.crt'}",
            "--use-service-account-credentials=true",
            "--controllers=*,-cloud-node-lifecycle-controller,-node-route-controller,-service-lb-controller",
            "--node-monitor-period=1s",
            f"--node-monitor-grace-period={NODE_GRACE_SECONDS}s",
            "--node-startup-grace-period=30s",
            "--terminated-pod-gc-threshold=200",
            "--attach-detach-reconcile-sync-period=1m",
            "--kube-api-qps=300",
            "--kube-api-burst=600",
        ]
