"""A world that fits in memory: an engine, a guest, a Hub, a store and a clock that tests control.

They keep the promises of :mod:`gke_workspaces_spawner.lifecycle.ports` and break them where a test says so. What a real kill leaves
behind (processes, snapshots, the database, the Hub's rows) lives on in :class:`World`; what it takes away is made anew by
:meth:`World.boot`.
"""

from __future__ import annotations

from .clock import FakeClock
from .engine import FakeEngine, Process
from .guest import FakeGuest
from .hub import FakeHub
from .store import FakeStore
from .world import Killed, World

__all__ = ["FakeClock", "FakeEngine", "FakeGuest", "FakeHub", "FakeStore", "Killed", "Process", "World"]
