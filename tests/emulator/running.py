"""The emulator as a process of its own, for tests; and what tests do with a cluster over and over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from .api import Api, Object, condition, write_kubeconfig
from .cluster import BUCKET

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
BUILD_SECONDS = 1800.0
WAIT_SECONDS = 30.0
POLL_SECONDS = 0.05
T = TypeVar("T")


class NotYet(AssertionError):
    """Something did not come to be in time."""


class RunningEmulator:
    """``python -m tests.emulator`` with a ready file; ended with everything that it started."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._ready = folder / "ready.json"
        self._command = [
            sys.executable,
            "-m",
            "tests.emulator",
            "--folder",
            str(folder / "emulator"),
            "--ready-file",
            str(self._ready),
            *arguments,
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.facts: dict[str, Any] = {}

    @classmethod
    def there(cls, ready: Path) -> RunningEmulator:
        """One that somebody else has started, and ends."""
        found = cls(ready.parent)
        found.facts = json.loads(ready.read_text(encoding="utf-8"))
        return found

    def start(self, seconds: float = START_SECONDS) -> None:
        """Start it and wait for its ready file. Raises NotYet with what it said; whatever ends the wait, it is ended then."""
        with (self.folder / "emulator.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env={**os.environ}
            )
        end = time.monotonic() + seconds
        try:
            while not self._ready.exists():
                if self._process.poll() is not None or time.monotonic() > end:
                    raise NotYet(f"the emulator is not ready: {self.log[-3000:]}")
                time.sleep(POLL_SECONDS)
        except BaseException:
            self.close()
            raise
        self.facts = json.loads(self._ready.read_text(encoding="utf-8"))

    @property
    def log(self) -> str:
        return (self.folder / "emulator.log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def close(self) -> None:
        """End it: asked first, then by force, also where somebody has no patience; what it had started goes with it."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(20)
            finally:
                self._process.kill()  # harmless where it has ended
                self._process.wait()


async def eventually(what: str, look: Callable[[], Awaitable[T | None]], seconds: float = WAIT_SECONDS) -> T:
    """Look until it gives something true. Raises NotYet."""
    end = time.monotonic() + seconds
    while True:
        found = await look()
        if found:
            return found
        if time.monotonic() > end:
            raise NotYet(f"{what} did not come to be in {seconds:.0f} s")
        await asyncio.sleep(POLL_SECONDS)


class Space:
    """One namespace of one test: pods, triggers and snapshots in it, in few words."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    # ------------------------------------------------------------ making

    async def policy(self, name: str = "notebooks", *, post: str = "stop", keep: int = 2, **spec: Any) -> Object:
        """A policy that selects label ``pausable=yes`` and groups by ``lineage``, Ready."""
        manifest = {
            "apiVersion": "podsnapshot.gke.io/v1",
            "kind": "PodSnapshotPolicy",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "storageConfigName": BUCKET,
                "selector": {"matchLabels": {"pausable": "yes"}},
                "triggerConfig": {"type": "manual", "postCheckpoint": post},
                "snapshotGroupingRules": {
                    "groupByLabelValue": {"labels": ["lineage"], "groupRetentionPolicy": {"maxSnapshotCountPerGroup": keep}}
                },
                **spec,
            },
        }
        await self.api.create(manifest)
        return await self.until("PodSnapshotPolicy", name, lambda item: condition(item, "Ready").get("status") == "True")

    def pod_manifest(self, name: str, *, lineage: str = "a", restore: str | None = None, **spec: Any) -> Object:
        """A pausable pod; ``restore`` is its ps-name."""
        annotations = {} if restore is None else {"podsnapshot.gke.io/ps-name": restore}
        container = {
            "name": "notebook",
            "image": "example.org/singleuser:1",
            "ports": [{"containerPort": 8888, "name": "notebook-port"}],
            "env": [{"name": "JUPYTERHUB_SERVICE_PREFIX", "value": f"/user/{name}/"}],
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {"pausable": "yes", "lineage": lineage},
                "annotations": annotations,
            },
            "spec": {
                "runtimeClassName": "gvisor",
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "containers": [container],
                **spec,
            },
        }

    async def pod(self, name: str = "jupyter-ann", *, wait: bool = True, **how: Any) -> Object:
        """Create a pod and wait until it is ready."""
        created = await self.api.create(self.pod_manifest(name, **how))
        return await self.until_ready(name) if wait else created

    async def trigger(self, name: str = "pause-1", pod: str = "jupyter-ann") -> Object:
        return await self.api.create(
            {
                "apiVersion": "podsnapshot.gke.io/v1",
                "kind": "PodSnapshotManualTrigger",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"targetPod": pod},
            }
        )

    async def saved(self, name: str = "pause-1", pod: str = "jupyter-ann") -> Object:
        """Trigger, and wait for the PodSnapshot that is Ready."""
        await self.trigger(name, pod)
        done = await self.until_triggered(name)
        assert condition(done, "Triggered")["status"] == "True", done["status"]
        return await self.until(
            "PodSnapshot", done["status"]["snapshotCreated"]["name"], lambda item: condition(item, "Ready").get("status") == "True"
        )

    # ------------------------------------------------------------ looking

    async def get(self, kind: str, name: str) -> Object | None:
        return await self.api.find(kind, self.namespace, name)

    async def until(self, kind: str, name: str, holds: Callable[[Object], Any], seconds: float = WAIT_SECONDS) -> Object:
        """The object, once that holds. Raises NotYet with the object as it is."""
        last: Object | None = None

        async def look() -> Object | None:
            nonlocal last
            last = await self.get(kind, name)
            return last if last is not None and holds(last) else None

        try:
            return await eventually(f"{kind} {name}", look, seconds)
        except NotYet as error:
            raise NotYet(f"{error}; it is {json.dumps((last or {}).get('status'))}") from None

    async def until_ready(self, name: str, seconds: float = WAIT_SECONDS) -> Object:
        return await self.until("Pod", name, lambda pod: condition(pod, "Ready").get("status") == "True", seconds)

    async def until_triggered(self, name: str, seconds: float = WAIT_SECONDS) -> Object:
        """The trigger once it is decided, True or False."""
        return await self.until("PodSnapshotManualTrigger", name, lambda one: condition(one, "Triggered"), seconds)

    async def until_gone(self, kind: str, name: str, seconds: float = WAIT_SECONDS) -> None:
        async def look() -> bool:
            return await self.get(kind, name) is None

        await eventually(f"the end of {kind} {name}", look, seconds)

    async def events(self, pod: str) -> list[tuple[str, str, str]]:
        """(type, reason, message) of all events about a pod."""
        found = await self.api.list("Event", self.namespace)
        return [(one["type"], one["reason"], one.get("message", "")) for one in found if one["involvedObject"]["name"] == pod]

    async def until_event(self, pod: str, reason: str, text: str = "") -> tuple[str, str, str]:
        async def look() -> tuple[str, str, str] | None:
            return next((one for one in await self.events(pod) if one[1] == reason and text in one[2]), None)

        return await eventually(f"event {reason} {text!r} of {pod}", look)

    async def delete_pod(self, name: str = "jupyter-ann", grace: int = 1) -> None:
        """Delete and wait until it is gone."""
        await self.api.delete("Pod", self.namespace, name, grace=grace)
        await self.until_gone("Pod", name)


async def make_space(api: Api, namespace: str) -> Space:
    """The namespace, and the storage config that all share."""
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    config = {
        "apiVersion": "podsnapshot.gke.io/v1",
        "kind": "PodSnapshotStorageConfig",
        "metadata": {"name": BUCKET},
        "spec": {"snapshotStorageConfig": {"gcs": {"bucket": BUCKET, "path": "hub-a", "tokenSource": "federatedP4SA"}}},
    }
    await api.apply(config)

    async def accounts() -> Object | None:
        return await api.find("ServiceAccount", namespace, "default")

    await eventually("the namespace's service account", accounts)
    return Space(api, namespace)


async def account_kubeconfig(api: Api, namespace: str, name: str, path: Path) -> Path:
    """A kubeconfig of a service account, made if it is not there; what it may do is up to Roles."""
    if await api.find("ServiceAccount", namespace, name) is None:
        await api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}})
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}}
    answer = await api.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", body)
    return write_kubeconfig(path, api.server, api.authority, answer["status"]["token"], namespace)
