"""What the lifecycle asks of the world: five protocols and the values that they return.

The lifecycle imports nothing but the standard library; engines, the Hub and the clock are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from .model import Identity, Intent, Json, Key, Move, Owner, SnapshotManifest, Want, Workspace


@dataclass(frozen=True, slots=True)
class Server:
    """A server as an engine knows it; everything external derives its name from this."""

    key: Key
    owner: Owner


# ---------------------------------------------------------------- engine


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an engine can do, as data."""

    name: str
    freezes: bool
    """The engine freezes the processes itself; else the server extension has to (:class:`Freeze`)."""
    gpu: bool
    tpu: bool
    reserves: bool = False
    """Room is found by starting: ``capacity`` puts the server in line with what ``launch`` gave, and ``HubPort.launch`` joins it."""


class Freeze:
    """What a save of that server asks of the server extension, where the engine itself does not freeze."""

    NEEDED = "needed"
    WANTED = "wanted"
    """The admin allows a save of a server that runs on while its extension cannot freeze it."""
    NONE = "none"
    """The save itself ends the server."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a pause would take; ``refusal`` is a reason code when it would be refused before anything is touched."""

    bytes: int
    seconds_pause: float
    seconds_resume: float
    refusal: str | None = None
    detail: str = ""
    freeze: str = Freeze.NEEDED
    """One of :class:`Freeze`; without meaning where the engine freezes."""
    seconds_limit: float = 0.0
    """Seconds after which a save of that size has failed for certain; the longer of this and ``Limits.pause`` holds."""
    will_not_return: tuple[str, ...] = ()
    """Sentences: what does not come back (open network connections, GPU memory where the engine cannot)."""


@dataclass(frozen=True, slots=True)
class SaveRequest:
    pause_id: str
    snapshot_id: str
    deadline: float
    """Wall clock; a save that is not durable by then is given up and the server thawed."""
    frozen_for: float
    """Seconds that the server may stay frozen after the save, unless it is removed first."""
    identity: Identity | None
    launch: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Nothing:
    """The engine knows of no save for that pause."""


@dataclass(frozen=True, slots=True)
class Saving:
    frozen_at: float | None = None
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """Complete and durable; the server stands frozen until ``frozen_until`` (wall clock)."""

    bytes: int
    frozen_at: float
    durable_at: float
    frozen_until: float
    digest: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The save failed; ``server_alive`` says whether the server goes on."""

    reason: str
    detail: str
    server_alive: bool


Observation = Nothing | Saving | Saved | Failed


class Signal:
    """What the engine's own evidence says of a server that was just restored."""

    RESTORED = "restored"
    FRESH = "fresh"
    GONE = "gone"
    LATE = "late"
    """Nothing yet, which is usual: the engine speaks only once all of the memory is loaded. The inside proof lets clients in, and the
    snapshot stays until the engine has spoken."""
    UNKNOWN = "unknown"


class Engine(Protocol):
    """Saves and restores servers. Every method is idempotent and bounded in time."""

    abilities: Abilities

    async def estimate(self, server: Server, facts: Mapping[str, Json]) -> Estimate: ...
    async def save(self, server: Server, request: SaveRequest) -> None:
        """Start the save, or join the one of the same pause id; returns at once."""

    async def observe(self, server: Server, pause_id: str) -> Observation: ...
    async def confirm_frozen(self, server: Server, pause_id: str, seconds: float) -> bool:
        """True when nothing of the user's ran since the save and nothing will for ``seconds`` more."""

    async def thaw(self, server: Server, pause_id: str) -> None:
        """Give up the save: let the server go on; joins or ends a save under way; harmless when there is none."""

    async def manifest(self, snapshot_id: str) -> SnapshotManifest | None:
        """Read and verify the manifest beside the bytes; ``None`` when it is gone.

        Raises :class:`~.reasons.Refused` (``snapshot_changed``) when a byte is not as it was written.
        """

    def launch(self, manifest: SnapshotManifest, plain: Mapping[str, Json]) -> Mapping[str, Json]:
        """What to start instead of ``plain`` (today's cold start) so that it is a restore. Pure.

        Raises ``Refused('policy_changed')`` when the manifest holds what today's plain spec would not grant.
        """

    async def capacity(self, server: Server, manifest: SnapshotManifest, launch: Mapping[str, Json] | None) -> Want | None:
        """``None`` when a restore fits now; else what it waits for.

        ``launch``: what is to be started, for an engine that reserves.
        """

    async def alive(self, server: Server) -> bool:
        """Whether anything of that server (a sandbox, a pod) exists and runs."""

    async def signal(self, server: Server, manifest: SnapshotManifest) -> str:
        """One of :class:`Signal`: evidence from outside the user's reach."""

    async def aids(self, server: Server) -> Mapping[str, Json]:
        """What a restore of that server needed besides the snapshot, for the receipt.

        ``placeholders``: paths in the home that were missing and stand there empty now; ``kept_files``: files outside of the home
        that have changed since the pause and of which the server goes on with the old bytes.
        """

    async def settled(self, server: Server) -> bool:
        """Whether the engine's evidence of the last restore of that running server is complete (or it was none).

        Until then no snapshot that proved itself is let go.
        """

    async def remove(self, server: Server) -> None:
        """End the server and everything of it but its home and its snapshots; returns when it is gone."""

    async def delete(self, snapshot_id: str) -> None:
        """Returns when the bytes are gone."""

    async def list(self) -> tuple[SnapshotManifest, ...]: ...


# ---------------------------------------------------------------- guest


@dataclass(frozen=True, slots=True)
class Prepared:
    """Answer of the extension to ``prepare``."""

    identity: Identity
    facts: Mapping[str, Json] = field(default_factory=dict)
    blockers: tuple[str, ...] = ()
    frozen: bool = False
    """The extension has stopped the user's processes."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Answer of the extension to ``restored``."""

    identity: Identity
    checkpoint_said: str | None
    """``restore``, ``resume``, ``error`` or ``None`` (the file is absent or silent)."""
    repaired: Mapping[str, Json] = field(default_factory=dict)


class Absent:
    """The server runs without the extension (or with one too old for that call)."""


class Guest(Protocol):
    """The server extension inside the server. All answers are claims: they can lower a verdict, never raise it.

    Raises ``Refused('guest_unreachable')`` when no valid signed answer came in time.
    """

    async def prepare(self, key: Key, pause_id: str, deadline: float, frozen_for: float | None = None) -> Prepared | Absent:
        """Close and refuse connections until ``deadline``; with ``frozen_for`` also stop the user's processes, for so many seconds at most.

        Raises ``Refused('freeze_unavailable')`` or ``Refused('freeze_incomplete')`` when it cannot stop (all of) them.
        """

    async def frozen(self, key: Key, pause_id: str, seconds: float) -> bool:
        """Whether the extension has held the user's processes without a break since ``prepare``, and will for ``seconds`` more."""

    async def thaw(self, key: Key, pause_id: str) -> None: ...
    async def restored(self, key: Key, pause_id: str, deadline: float) -> Restored | Absent: ...


# ---------------------------------------------------------------- hub, store, clock


class HubPort(Protocol):
    """JupyterHub, as far as a step needs it."""

    async def unroute(self, key: Key) -> None: ...
    async def route(self, key: Key) -> None:
        """Let clients through to the server again; harmless when they are.

        Raises :class:`~.reasons.Conflict` (``not_running``) when the Hub has no server of that name to route to.
        """

    async def stop(self, key: Key) -> None:
        """The Hub's own stop; returns when it has ended. The spawner removes the server through the engine.

        Harmless when the Hub has no such server (any more).
        """

    async def suspend_tokens(self, key: Key) -> None:
        """Make every token that the snapshot may hold powerless."""

    async def plain_launch(self, key: Key) -> Mapping[str, Json]:
        """Today's cold-start spec of that server, rendered from its saved options; of a resume inside of a start of the Hub alone.

        Raises ``Refused('not_allowed')`` when the owner may not start it any more.
        """

    def check_rights(self, key: Key) -> None:
        """Raises ``Refused('not_allowed')`` when the owner may not start that server any more. Cheap: asked again and again."""

    def starting(self, key: Key) -> bool:
        """Whether the Hub has a start of that server under way, inside of which a restore is possible now."""

    async def begin(self, key: Key) -> None:
        """Have the Hub begin its start of a server whose resume has found room; returns when that is as :meth:`starting` says.

        Raises :class:`~.reasons.TryLater` where the Hub may do it later (``too_many``), :class:`~.reasons.Refused` where it will not.
        """

    async def launch(self, key: Key, spec: Mapping[str, Json], manifest: SnapshotManifest) -> None:
        """Start the spec; returns when the engine's start has returned (not when the server answers)."""

    async def routed(self, key: Key, timeout: float) -> bool:
        """Wait until the Hub calls the server ready; False when its spawn ended otherwise."""

    async def start(self, key: Key, fresh: bool) -> None:
        """Start the server without a handler (an intent was stored); a resume of it that waits for room is one that was begun."""


class Store(Protocol):
    """Sole writer of workspaces."""

    def exclusive(self, key: Key) -> AbstractAsyncContextManager[None]: ...
    def read(self, key: Key) -> Workspace: ...
    def commit(self, workspace: Workspace, move: Move) -> Workspace:
        """Check MOVES and that the phase is still the one that ``workspace`` had, write, tell observers.

        ``move.intent is None`` keeps the intent as it is in the store now (also one recorded after ``workspace`` was read);
        any other value replaces it. Raises :class:`~.reasons.Conflict` (``phase_conflict``) when the phase moved.
        """

    def ask(self, key: Key, intent: Intent) -> Workspace:
        """Record an intent (any time, without the lock)."""

    def note_progress(self, key: Key, fraction: float | None, waits_for: Want | None = None) -> None:
        """How far the phase is, and what it waits for: for people, kept in memory alone."""

    async def asked(self, key: Key) -> Intent:
        """Wait until an intent other than NONE is recorded; returns it."""

    def observe(self, observer: Callable[[Workspace, Workspace], None]) -> None: ...


class Clock(Protocol):
    """The one clock that tests control."""

    def time(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, all of them; traitlets of the spawner set them."""

    prepare: float = 10.0
    pause: float = 300.0
    confirm_frozen: float = 60.0
    waiting: float = 600.0
    restore: float = 120.0
    routed: float = 60.0
    poll: float = 0.02
    capacity_poll: float = 1.0
    expires: float | None = 14 * 86400.0
    keep_last: int = 1
    release_after: float = 0.0
    """For how long a server has to run before a snapshot that proved itself is let go."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything a step may touch."""

    engine: Engine
    guest: Guest
    hub: HubPort
    store: Store
    clock: Clock
    limits: Limits
    hub_boot: str
    """Random id of this life of the Hub."""
