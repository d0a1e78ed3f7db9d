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
        self.refuses_freeze: str | None = None
        self.old = False
        """It knows nothing of freezing."""
        self.held: dict[Key, tuple[str, float, Identity]] = {}
        """Whose processes it holds: for which pause, until when, and which process it is."""
        self.says: str | None = ""
        """What it reads in /proc/gvisor/checkpoint; ``""``: the truth."""

    async def prepare(self, key: Key, pause_id: str, deadline: float, frozen_for: float | None = None) -> Prepared | Absent:
        identity = self._identity(key, "prepare")
        if identity is None:
            return Absent()
        if frozen_for is not None and self.refuses_freeze:
            raise Refused(self.refuses_freeze)
        if not self.blockers:
            self.prepared.add(key)
        frozen = frozen_for is not None and not self.old
        if frozen:
            self.held[key] = (pause_id, self.engine.clock.time() + (frozen_for or 0.0), identity)
        return Prepared(identity, {"kernels": [{"name": k.name} for k in identity.kernels]}, self.blockers, frozen)

    async def frozen(self, key: Key, pause_id: str, seconds: float) -> bool:
        identity = self._identity(key, "frozen")
        held, now = self.held.get(key), self.engine.clock.time()
        if held is None or held[0] != pause_id or held[1] < now or held[2] != identity:
            return False
        self.held[key] = (pause_id, max(held[1], now + seconds), held[2])
        return True

    async def thaw(self, key: Key, pause_id: str) -> None:
        self._identity(key, "thaw")
        self.prepared.discard(key)
        self.held.pop(key, None)

    async def restored(self, key: Key, pause_id: str, deadline: float) -> Restored | Absent:
        identity = self._identity(key, "restored")
        if identity is None:
            return Absent()
        process = self.engine.process(self._server(key))
        truth = "restore" if process and process.restored_from else None
        self.prepared.discard(key)
        self.held.pop(key, None)
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
