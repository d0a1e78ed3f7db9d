"""The server extension inside the fake engine's processes."""

from __future__ import annotations

from gke_workspaces_spawner.lifecycle.model import Identity, Key
from gke_workspaces_spawner.lifecycle.ports import Absent, Prepared, Restored, Server
from gke_workspaces_spawner.lifecycle.reasons import Refused

from .engine import FakeEngine
from .store import FakeStore


class FakeGuest:
    """Answers from the process that runs; attributes are its faults."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.store: FakeStore | None = None
        self.prepared: set[Key] = set()
        self.absent = False
        self.unreachable: set[str] = set()
        self.blockers: tuple[str, ...] = ()
        self.replays: Identity | None = None
        """An identity that user code replays instead of its own."""
        self.says: str | None = ""
        """What it reads in /proc/gvisor/checkpoint; ``""``: the truth."""

    async def prepare(self, key: Key, pause_id: str, deadline: float) -> Prepared | Absent:
        identity = self._identity(key, "prepare")
        if identity is None:
            return Absent()
        if not self.blockers:
            self.prepared.add(key)
        return Prepared(identity, {"kernels": [{"name": k.name} for k in identity.kernels]}, self.blockers)

    async def thaw(self, key: Key, pause_id: str) -> None:
        self._identity(key, "thaw")
        self.prepared.discard(key)

    async def restored(self, key: Key, pause_id: str, deadline: float) -> Restored | Absent:
        identity = self._identity(key, "restored")
        if identity is None:
            return Absent()
        process = self.engine.process(self._server(key))
        truth = "restore" if process and process.restored_from else None
        self.prepared.discard(key)
        return Restored(identity, truth if self.says == "" else self.says, {"openssl": {"server": True}, "secret": "not for the receipt"})

    def _server(self, key: Key) -> Server:
        if self.store is None:
            raise AssertionError("no store")
        return Server(key, self.store.read(key).owner)

    def _identity(self, key: Key, verb: str) -> Identity | None:
        process = self.engine.process(self._server(key))
        if process is None or process.frozen_for or verb in self.unreachable:
            raise Refused("guest_unreachable", verb)
        return None if self.absent else self.replays or process.identity
