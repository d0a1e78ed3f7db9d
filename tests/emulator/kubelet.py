"""One pod on its node, from the binding to the end: what a kubelet does with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .api import Object
from .faults import Fault
from .nodes import now
from .podstatus import PodStatus, running, terminated, waiting
from .resolve import NotResolved
from .runtime import Ended, Image, Instance, Launch, RestoreCrashed

if TYPE_CHECKING:
    from .agent import NodeAgent

FIRST_BACKOFF, LONGEST_BACKOFF = 0.5, 5.0
"""Seconds before a container is started again (ten seconds to five minutes on a cluster)."""
RETRY_SECONDS = 0.2
"""Wait before what was missing (image, Secret, volume) is looked for again."""
SHUTDOWN_GRACE = 2.0
"""Seconds that pods get when their machine shuts down (15 on a cluster)."""
START_ERROR = 128


class PodWorker:
    """Runs one pod; :meth:`update` tells it each change of the object."""

    def __init__(self, agent: NodeAgent, pod: Object) -> None:
        self.agent = agent
        self.pod = pod
        self.namespace: str = pod["metadata"]["namespace"]
        self.name: str = pod["metadata"]["name"]
        self.uid: str = pod["metadata"]["uid"]
        self.node: str = pod["spec"]["nodeName"]
        self.status = PodStatus(pod)
        self._resolver = agent.resolver(self.node)
        self.instance: Instance | None = None
        self.restored_from: str | None = None
        self.saving = False
        """A checkpoint of it is under way."""
        self._stopped_by_snapshot = False
        self._failed_start = ""
        self._undeletable = False
        self._deleting = asyncio.Event()
        self._shutdown: tuple[str, str] | None = None
        self._conditions: dict[str, Object] = {}
        self._task = asyncio.ensure_future(self._live())
        agent.watch(self._task)

    # ------------------------------------------------------------ from outside

    def update(self, pod: Object) -> None:
        """The object has changed."""
        gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
        self.pod = self.status.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            self._deleting.set()
        elif gates and self.status.phase == "Running":
            self.agent.background(self._write_if_gates_changed())

    def shut_down(self, reason: str, message: str) -> None:
        """The machine shuts down, or the pod is evicted by it: end it, and leave it Failed."""
        self._shutdown = (reason, message)
        self._deleting.set()

    async def lost(self) -> None:
        """The machine died or the object is gone: nothing is written any more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self.instance is not None:
            await self.instance.kill()
        self.agent.let_go(self)

    @property
    def running(self) -> bool:
        return self.status.phase == "Running" and self.instance is not None

    async def stop_after_checkpoint(self) -> None:
        """postCheckpoint ``stop``: it is over at once, with exit code 0, and nothing is started again."""
        self._stopped_by_snapshot = True
        if self.instance is not None:
            await self.instance.kill("Completed")

    async def oom(self) -> None:
        """The kernel ends it for memory."""
        if self.instance is not None:
            await self.instance.kill("OOMKilled")

    # ------------------------------------------------------------ life

    async def _live(self) -> None:
        if self.pod["metadata"].get("deletionTimestamp"):
            self._deleting.set()
        main = asyncio.ensure_future(self._main())
        deleting = asyncio.ensure_future(self._deleting.wait())
        try:
            await asyncio.wait({main, deleting}, return_when=asyncio.FIRST_COMPLETED)
            if main.done():
                main.result()
                await deleting
        finally:
            for task in (main, deleting):
                task.cancel()
            await asyncio.gather(main, deleting, return_exceptions=True)
        await self._finish()

    async def _main(self) -> None:
        before = self.pod.get("status") or {}
        if before.get("phase") in ("Succeeded", "Failed"):
            return
        statuses: list[Object] = before.get("containerStatuses") or []
        if any("running" in one["state"] for one in statuses):
            # The machine has booted since: what ran is gone.
            self.status.restarts = statuses[0]["restartCount"]
            self.status.initialized = True
            if await self._over(Ended(137, "Unknown")):
                return
        image = await self._pulled()
        backoff = FIRST_BACKOFF
        while True:
            ended = await self._run_once(image)
            if await self._over(ended):
                return
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, LONGEST_BACKOFF)
            self.status.restarts += 1

    async def _run_once(self, image: Image | None) -> Ended:
        """Start (or restore) the container and wait for its end."""
        started = now()
        try:
            self.instance = await self._started(image)
        except RestoreCrashed as error:
            fault = self.agent.faults.look("restore-crashes", self.name, self.node)
            self._undeletable = fault is not None and fault.get("undeletable") == "yes"
            self._failed_start = str(error)
            return Ended(START_ERROR, "StartError")
        self._failed_start = ""
        self.status.ip = self.instance.ip
        self.status.phase = "Running"
        self.status.initialized = True
        self.status.state = running(started)
        await self._write()
        self._event("Started", f"Started container {self.pod['spec']['containers'][0]['name']}")
        telling = self.agent.background(self._tell_restored())
        oom = self.agent.background(self._maybe_oom())
        try:
            return await self.instance.ended()
        finally:
            telling.cancel()
            oom.cancel()

    async def _started(self, image: Image | None) -> Instance:
        launch = await self._launch(image)
        for name in self.agent.container_names(self.pod):
            self._event("Created", f"Created container: {name}")
        decision = await self.agent.restores.decide(self.pod, self.node)
        self.restored_from = None
        if decision.warning:
            self._event("GKEPodSnapshotting", decision.warning, "Warning")
        if decision.snapshot is None:
            return await self.agent.runtime.start(launch)
        folder = await self.agent.restores.fetch(decision)
        slow = self.agent.faults.take("restore-slow", self.name, self.node)
        if slow is not None:
            await self.agent.faults.while_on("restore-slow", self.name, self.node, slow.seconds(5))
        if self.agent.faults.take("restore-crashes", self.name, self.node) is not None:
            raise RestoreCrashed(
                "failed to create containerd task: OCI runtime restore failed: loading checkpoint: failed to walk: no such file"
            )
        instance = await self.agent.runtime.restore(launch, folder)
        self.restored_from = decision.snapshot
        return instance

    async def _launch(self, image: Image | None) -> Launch:
        """Resolve until everything is there."""
        there = self.agent.faults.look("checkpoint-file-absent", self.name, self.node) is None
        told = ""
        assert image is not None
        while True:
            try:
                launch = await self._resolver.launch(self.pod, image, checkpoint_file=there)
                await self.agent.mount(self)
                return launch
            except NotResolved as error:
                if str(error) != told:
                    told = str(error)
                    self.status.state = waiting(error.reason, told)
                    self._event("FailedMount" if error.reason == "ContainerCreating" else "Failed", told, "Warning")
                    await self._write()
                await asyncio.sleep(RETRY_SECONDS)

    async def _pulled(self) -> Image | None:
        """Wait for the image."""
        name = self.pod["spec"]["containers"][0]["image"]
        told = ""
        while True:
            image = self.agent.images.find(name)
            missing = image is None or image.runs == "missing" or self.agent.faults.look("image-missing", self.name, self.node)
            if not missing:
                self._event("Pulled", f'Container image "{name}" already present on machine')
                return image
            reason = "ImagePullBackOff" if told else "ErrImagePull"
            if reason != told:
                told = reason
                self.status.state = waiting(reason, f'failed to pull and unpack image "{name}": not found')
                self._event("Failed", f'Failed to pull image "{name}": not found', "Warning")
                await self._write()
            await asyncio.sleep(RETRY_SECONDS)

    async def _over(self, ended: Ended) -> bool:
        """Write what an end means; True when the pod has ended with it."""
        policy = self.pod["spec"].get("restartPolicy", "Always")
        message = self._failed_start
        started = self.status.state.get("running", {}).get("startedAt")
        state = terminated(ended.code, ended.reason or ("Error" if ended.code else "Completed"), started, message)
        again = policy == "Always" or (policy == "OnFailure" and ended.code != 0)
        if self._stopped_by_snapshot or not again:
            self.status.phase = "Failed" if ended.code else "Succeeded"
            self.status.state = state
        else:
            self.status.last = state
            crashed = message or ended.code
            self.status.state = waiting(
                "CrashLoopBackOff" if crashed else "ContainerCreating", message or "back-off restarting failed container"
            )
            self._event("Failed" if message else "BackOff", message or "Back-off restarting failed container", "Warning")
        await self._write()
        return self._stopped_by_snapshot or not again

    async def _finish(self) -> None:
        """The pod shall go: SIGTERM, its grace, SIGKILL; then it is deleted, or left Failed where its machine goes."""
        faults = self.agent.faults
        if self._undeletable and self._shutdown is None:
            await asyncio.Event().wait()  # until somebody forces it, then the object is gone
        await faults.while_on("deletion-unfinished", self.name, self.node)
        if self.instance is not None and self.status.phase == "Running":
            grace = self.pod["metadata"].get("deletionGracePeriodSeconds", 30) if self._shutdown is None else SHUTDOWN_GRACE
            self._event("Killing", f"Stopping container {self.pod['spec']['containers'][0]['name']}")
            self.instance.terminate()
            try:
                ended = await asyncio.wait_for(self.instance.ended(), grace)
            except asyncio.TimeoutError:
                ended = Ended(137, "Error")
            await self.instance.kill()
            started = self.status.state.get("running", {}).get("startedAt")
            self.status.state = terminated(ended.code, ended.reason or "Error", started)
            self.status.phase = "Failed" if ended.code or self._shutdown else "Succeeded"
            if self._shutdown is not None:
                self.status.reason, self.status.message = self._shutdown
            await self._write()
        if self._shutdown is None:
            await self.agent.insist(lambda: self.agent.api.delete("Pod", self.namespace, self.name, grace=0, uid=self.uid))
        self.agent.let_go(self)

    # ------------------------------------------------------------ words

    async def _tell_restored(self) -> None:
        """Condition and event, once the memory is loaded."""
        snapshot, faults = self.restored_from, self.agent.faults
        if snapshot is None or faults.look("pod-restored-missing", self.name, self.node):
            return
        late = faults.take("pod-restored-late", self.name, self.node)
        if late is not None:
            await faults.while_on("pod-restored-late", self.name, self.node, late.seconds(10))
        message = f"Successfully restored the pod from PodSnapshot {self.namespace}/{snapshot}"
        condition = {"type": "PodRestored", "status": "True", "reason": "Restored", "message": message, "lastTransitionTime": now()}
        self._conditions["PodRestored"] = condition
        await self._write()
        self._event("GKEPodSnapshotting", message)
        await self.agent.restores.accessed(self.namespace, snapshot)

    async def _maybe_oom(self) -> None:
        fault: Fault | None = None
        while fault is None:
            fault = self.agent.faults.take("pod-oom", self.name, self.node)
            if fault is None:
                await self.agent.faults.next_change()
        await self.oom()

    def tell(self, reason: str, message: str, kind: str = "Normal") -> None:
        """An event about this pod."""
        self._event(reason, message, kind)

    def _event(self, reason: str, message: str, kind: str = "Normal") -> None:
        self.agent.events.tell(self.pod, reason, message, kind, component="kubelet", host=self.node)

    async def _write(self) -> None:
        body = self.status.patch(self._conditions)
        await self.agent.insist(lambda: self.agent.write_status(self, body))

    async def _write_if_gates_changed(self) -> None:
        ready = next(one for one in self.status.patch()["status"]["conditions"] if one["type"] == "Ready")
        current = next((one for one in (self.pod.get("status") or {}).get("conditions") or () if one["type"] == "Ready"), None)
        if current is None or current["status"] != ready["status"]:
            await self._write()

    def log_text(self) -> str:
        return self.instance.log() if self.instance is not None else ""
