"""An engine whose processes are objects: it freezes, saves and restores them, and fails on demand."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gke_workspaces_spawner.lifecycle.model import Identity, Json, KernelProcess, SnapshotManifest, Want
from gke_workspaces_spawner.lifecycle.ports import (
    Abilities,
    Estimate,
    Failed,
    Freeze,
    Nothing,
    Observation,
    Saved,
    SaveRequest,
    Saving,
    Server,
    Signal,
)
from gke_workspaces_spawner.lifecycle.reasons import Refused

from .clock import FakeClock

SNAPSHOT_BYTES = 1_200_000_000


@dataclass
class Process:
    """A server's processes, as one."""

    identity: Identity
    alive: bool = True
    frozen_until: float | None = None
    frozen_for: str | None = None
    """The pause that froze it, while it stands still for it."""
    restored_from: str | None = None
    unbroken: set[str] = field(default_factory=set)
    """Pauses since whose save it has not run."""


@dataclass
class _Save:
    request: SaveRequest
    started: float
    failed: Failed | None = None
    ended: float | None = None


class FakeEngine:
    """Implements the Engine protocol; attributes are its faults."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.abilities = Abilities("fake", freezes=True, cancel_while_saving=True, gpu=False, tpu=False)
        self.processes: dict[str, Process] = {}
        self.snapshots: dict[str, tuple[SnapshotManifest, Identity]] = {}
        self.saves: dict[str, _Save] = {}
        self.launches = 0
        self.deleted: list[str] = []
        self._boots = itertools.count(1)
        # faults
        self.refusal: str | None = None
        self.save_seconds = 0.2
        self.save_fails: Failed | None = None
        self.save_hangs = False
        self.freeze = Freeze.NEEDED
        self.seconds_limit = 0.0
        self.stops = False
        """A save ends the server."""
        self.breaks_freeze = False
        self.room_from = 0.0
        self.no_room_code = "no_capacity"
        self.restore_gives = Signal.RESTORED
        self.changed: set[str] = set()
        self.policy_changed = False
        self.aids_given: Mapping[str, Json] = {}
        self.survives_remove = 0
        self.errors: dict[str, Exception] = {}

    async def aids(self, server: Server) -> Mapping[str, Json]:
        return self.aids_given

    # ------------------------------------------------------------ what tests look at

    def process(self, server: Server) -> Process | None:
        """The process of that lineage, if it is alive."""
        self._let_go()
        process = self.processes.get(server.owner.lineage)
        return process if process and process.alive else None

    def crash(self, server: Server) -> None:
        """The processes end by themselves."""
        if process := self.processes.get(server.owner.lineage):
            process.alive = False

    def start(self, server: Server) -> Process:
        """A cold start."""
        if self.process(server):
            raise AssertionError("two processes of one lineage")
        number = next(self._boots)
        kernels = tuple(KernelProcess(f"k{number}-{i}", 100 + i, 5.0 + i, "python3") for i in range(2))
        process = self.processes[server.owner.lineage] = Process(Identity(f"boot-{number}", 7, kernels))
        return process

    def start_launch(self, server: Server, spec: Mapping[str, Json]) -> None:
        """What the spawner does with a spec of :meth:`launch`."""
        self._fail("start_launch")
        if self.abilities.reserves and self.process(server):
            return  # it was put in line by ``capacity``
        self.launches += 1
        snapshot_id = spec.get("restore")
        if snapshot_id is None or self.restore_gives == Signal.FRESH:
            self.start(server)
            return
        if self.process(server):
            raise AssertionError("two processes of one lineage")
        identity = self.snapshots[snapshot_id][1]
        alive = self.restore_gives != Signal.GONE
        self.processes[server.owner.lineage] = Process(identity, alive=alive, restored_from=snapshot_id)

    # ------------------------------------------------------------ protocol

    async def estimate(self, server: Server, facts: Mapping[str, Json]) -> Estimate:
        self._fail("estimate")
        return Estimate(
            SNAPSHOT_BYTES,
            1.0,
            1.0,
            self.refusal,
            freeze=self.freeze,
            seconds_limit=self.seconds_limit,
            will_not_return=("Open network connections end.",),
        )

    async def save(self, server: Server, request: SaveRequest) -> None:
        self._fail("save")
        if request.pause_id in self.saves:
            return
        process = self.process(server)
        if process is None:
            raise Refused("sandbox_gone")
        if self.abilities.freezes:
            process.frozen_for = request.pause_id
            process.frozen_until = max(request.deadline, self.clock.time() + request.frozen_for)
            process.unbroken.add(request.pause_id)
        self.saves[request.pause_id] = _Save(request, self.clock.time())

    async def observe(self, server: Server, pause_id: str) -> Observation:
        self._fail("observe")
        save = self.saves.get(pause_id)
        if save is None:
            return Nothing()
        process = self.process(server)
        if save.failed is None and save.ended is None:
            self._go_on(server, save, process)
        if save.failed is not None:
            return replace(save.failed, server_alive=process is not None)
        if save.ended is None:
            return Saving(save.started, min(1.0, (self.clock.time() - save.started) / self.save_seconds))
        until = (process.frozen_until if process else None) or save.ended
        return Saved(SNAPSHOT_BYTES, save.started, save.ended, until, "d" * 64)

    async def confirm_frozen(self, server: Server, pause_id: str, seconds: float) -> bool:
        self._fail("confirm_frozen")
        process = self.process(server)
        if not self.abilities.freezes:
            ended = self.saves[pause_id].ended is not None if pause_id in self.saves else False
            return ended and (process is not None or self.stops)
        if process is None or pause_id not in process.unbroken or process.frozen_for != pause_id or self.breaks_freeze:
            return False
        process.frozen_until = max(process.frozen_until or 0.0, self.clock.time() + seconds)
        return True

    async def thaw(self, server: Server, pause_id: str) -> None:
        self._fail("thaw")
        save = self.saves.get(pause_id)
        if save and save.ended is None and save.failed is None:
            save.failed = Failed("save_cancelled", "", True)
        process = self.process(server)
        if process and process.frozen_for == pause_id:
            self._run(process)

    async def manifest(self, snapshot_id: str) -> SnapshotManifest | None:
        self._fail("manifest")
        if snapshot_id in self.changed:
            raise Refused("snapshot_changed")
        found = self.snapshots.get(snapshot_id)
        return found[0] if found else None

    def launch(self, manifest: SnapshotManifest, plain: Mapping[str, Json]) -> Mapping[str, Json]:
        if self.policy_changed:
            raise Refused("policy_changed")
        return {**plain, "restore": manifest.snapshot_id}

    async def capacity(self, server: Server, manifest: SnapshotManifest, launch: Mapping[str, Json] | None) -> Want | None:
        self._fail("capacity")
        if self.abilities.reserves:
            assert launch is not None
            if self.process(server) is None:
                self.start_launch(server, launch)
        return None if self.clock.time() >= self.room_from else Want(self.no_room_code, "no machine has room")

    async def alive(self, server: Server) -> bool:
        self._fail("alive")
        return self.process(server) is not None

    async def signal(self, server: Server, manifest: SnapshotManifest) -> str:
        self._fail("signal")
        process = self.process(server)
        if process is None:
            return Signal.GONE
        if self.restore_gives in (Signal.UNKNOWN, Signal.LATE):
            return self.restore_gives
        return Signal.RESTORED if process.restored_from == manifest.snapshot_id else Signal.FRESH

    async def settled(self, server: Server) -> bool:
        self._fail("settled")
        return self.restore_gives != Signal.LATE

    async def remove(self, server: Server) -> None:
        self._fail("remove")
        if self.survives_remove:
            self.survives_remove -= 1
            return
        self.processes.pop(server.owner.lineage, None)

    async def delete(self, snapshot_id: str) -> None:
        self._fail("delete")
        if self.snapshots.pop(snapshot_id, None):
            self.deleted.append(snapshot_id)

    async def list(self) -> tuple[SnapshotManifest, ...]:
        return tuple(manifest for manifest, _ in self.snapshots.values())

    # ------------------------------------------------------------ private

    def _fail(self, method: str) -> None:
        if method in self.errors:
            raise self.errors[method]

    def _go_on(self, server: Server, save: _Save, process: Process | None) -> None:
        """What the save came to by now."""
        if process is None:
            save.failed = Failed("sandbox_gone", "it ended", False)
        elif self.save_fails is not None:
            save.failed = self.save_fails
            if not save.failed.server_alive:
                process.alive = False
            self._run(process)
        elif self.clock.time() > save.request.deadline:
            save.failed = Failed("save_timeout", "", True)
            self._run(process)
        elif not self.save_hangs and self.clock.time() >= save.started + self.save_seconds:
            save.ended = self.clock.time()
            request = save.request
            manifest = SnapshotManifest(
                request.snapshot_id,
                request.pause_id,
                server.key,
                server.owner,
                "fake",
                save.ended,
                SNAPSHOT_BYTES,
                request.launch,
                identity=request.identity,
            )
            self.snapshots[request.snapshot_id] = (manifest, process.identity)
            if self.stops:
                process.alive = False

    def _let_go(self) -> None:
        """Frozen processes go on by themselves when their time is over."""
        for process in self.processes.values():
            if process.frozen_until is not None and self.clock.time() > process.frozen_until:
                self._run(process)

    @staticmethod
    def _run(process: Process) -> None:
        process.frozen_until = process.frozen_for = None
        process.unbroken.clear()
