"""A Hub as the lifecycle meets it: rows that outlive it, routes, and a spawner that acts on the phase only."""

from __future__ import annotations

from collections.abc import Mapping

from gke_workspaces_spawner.lifecycle import resuming
from gke_workspaces_spawner.lifecycle.drive import drive
from gke_workspaces_spawner.lifecycle.model import Json, Key, SnapshotManifest, Workspace
from gke_workspaces_spawner.lifecycle.phases import RESUME_UNDER_WAY, Phase
from gke_workspaces_spawner.lifecycle.ports import Ports, Server
from gke_workspaces_spawner.lifecycle.reasons import Conflict, Refused

from .engine import FakeEngine
from .store import FakeStore


class FakeHub:
    """Implements the HubPort protocol; attributes are its faults."""

    def __init__(self, engine: FakeEngine, rows: set[Key]) -> None:
        self.engine = engine
        self.rows = rows
        """Servers that the Hub's database calls running: survives a kill."""
        self.routes: set[Key] = set()
        self.spawning: set[Key] = set()
        """Servers that this life of the Hub is starting."""
        self.begun = 0
        """Starts that resumes have asked for which had found room."""
        self.suspended: set[Key] = set()
        self.store: FakeStore | None = None
        self.ports: Ports | None = None
        self.reachable = True
        self.allowed = True
        self.start_refused: Exception | None = None
        self.stop_fails: Exception | None = None

    # ------------------------------------------------------------ protocol

    async def unroute(self, key: Key) -> None:
        self.routes.discard(key)

    async def route(self, key: Key) -> None:
        if key not in self.rows:
            raise Conflict("not_running")
        self.routes.add(key)

    async def stop(self, key: Key) -> None:
        self._begin_cold(key)
        await self._take_down(key)

    async def _take_down(self, key: Key) -> None:
        """What the Hub's stop does to a server, whoever ended it."""
        if self.stop_fails:
            raise self.stop_fails
        self.routes.discard(key)
        self.rows.discard(key)
        workspace = self._workspace(key)
        if workspace.phase is not Phase.PAUSED:
            await self.engine.remove(Server(key, workspace.owner))
        workspace = self._workspace(key)
        if workspace.phase in RESUME_UNDER_WAY or workspace.phase is Phase.UNPROVEN:
            self.suspended.add(key)
            self._store().commit(workspace, resuming.interrupted(workspace))

    async def suspend_tokens(self, key: Key) -> None:
        self.suspended.add(key)

    async def plain_launch(self, key: Key) -> Mapping[str, Json]:
        self.check_rights(key)
        if self._workspace(key).phase in RESUME_UNDER_WAY and key not in self.spawning:
            raise AssertionError("rendered outside of a start")
        return {"image": "jupyter"}

    def check_rights(self, key: Key) -> None:
        if not self.allowed:
            raise Refused("not_allowed")

    def starting(self, key: Key) -> bool:
        return key in self.spawning

    async def begin(self, key: Key) -> None:
        if self.start_refused:
            raise self.start_refused
        self.begun += 1
        self.spawning.add(key)

    async def launch(self, key: Key, spec: Mapping[str, Json], manifest: SnapshotManifest) -> None:
        self.suspended.discard(key)
        self.engine.start_launch(Server(key, self._workspace(key).owner), spec)

    async def routed(self, key: Key, timeout: float) -> bool:
        if key in self.rows and self.reachable:
            self.routes.add(key)
            return True
        self.rows.discard(key)  # the Hub gave its spawn up
        return False

    async def start(self, key: Key, fresh: bool) -> None:
        """The Hub's start with the spawner's: a cold start in ``running``, what the intent says in ``paused``."""
        if self.start_refused:
            raise self.start_refused
        store, workspace = self._store(), self._workspace(key)
        if workspace.phase is Phase.PAUSED and not fresh:
            store.commit(workspace, resuming.begin_resume(workspace, store.clock.time(), self._ports().hub_boot))
            self.spawning.add(key)
            await drive(self._ports(), key)
            return
        async with store.exclusive(key):
            if workspace.phase is Phase.PAUSED:
                workspace = store.commit(workspace, resuming.begin_fresh(workspace, store.clock.time()))
            if workspace.phase is not Phase.RUNNING:
                raise Conflict("phase_conflict")
            self._begin_cold(key)
            await self.engine.remove(Server(key, workspace.owner))
            self.engine.start(Server(key, workspace.owner))
            self.rows.add(key)
            self.routes.add(key)
            self.suspended.discard(key)

    # ------------------------------------------------------------ the Hub's own life

    def on_commit(self, before: Workspace, after: Workspace) -> None:
        """The spawner's ``start`` returns when the proof, or the verdict against it, is persisted: the row says running."""
        if after.phase not in RESUME_UNDER_WAY:
            self.spawning.discard(after.key)
        if after.phase is Phase.UNPROVEN and before.phase is not Phase.UNPROVEN:
            self.rows.add(after.key)
            self.routes.add(after.key)
        elif _proved(after) and not _proved(before) and after.key in self.spawning:
            self.rows.add(after.key)

    async def poll(self, key: Key) -> None:
        """What the Hub does about a server that its database calls running and that is gone, or paused."""
        workspace = self._workspace(key)
        if key in self.rows and (workspace.phase is Phase.PAUSED or not await self.engine.alive(Server(key, workspace.owner))):
            move = resuming.fall_back(workspace, self._store().clock.time())
            own = workspace.pause.snapshot_id if workspace.pause else None  # the spawner compares owner and lineage
            if move is not None and move.pause is not None and move.pause.snapshot_id == own:
                self.suspended.add(key)
                self._store().commit(workspace, move)
            await self._take_down(key)

    def _begin_cold(self, key: Key) -> None:
        workspace = self._workspace(key)
        move = resuming.begin_cold(workspace)
        if move is not None:
            self._store().commit(workspace, move)

    async def restarted(self) -> None:
        """Routes of servers that the database calls running come back, those of open pauses do not."""
        self.spawning.clear()
        self.routes = {key for key in self.rows if self._workspace(key).phase in (Phase.RUNNING, Phase.UNPROVEN)}

    def _store(self) -> FakeStore:
        if self.store is None:
            raise AssertionError("no store")
        return self.store

    def _ports(self) -> Ports:
        if self.ports is None:
            raise AssertionError("no ports")
        return self.ports

    def _workspace(self, key: Key) -> Workspace:
        return self._store().read(key)


def _proved(workspace: Workspace) -> bool:
    attempt = workspace.pause.attempt if workspace.pause else None
    return workspace.phase is Phase.RESTORING and attempt is not None and attempt.proof == resuming.PROVED
