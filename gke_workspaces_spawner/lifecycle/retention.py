"""Which snapshots may go now. Pure: the clock is handed in, nothing is deleted here.

Never one that the open pause speaks of while the proof is not given, never a pinned one. Superseded and unproven ones stay until
somebody discards them or they expire; of those that proved themselves only the last ``keep_last`` stay.
"""

from __future__ import annotations

from collections.abc import Iterable

from .model import SnapshotRef, SnapshotState, Workspace
from .phases import Phase


def expired(shelf: Iterable[SnapshotRef], now: float) -> tuple[SnapshotRef, ...]:
    """Those whose time is over."""
    return tuple(s for s in shelf if s.state is not SnapshotState.PINNED and s.expires is not None and s.expires <= now)


def may_go(workspace: Workspace, now: float, keep_last: int, release_after: float = 0.0) -> tuple[SnapshotRef, ...]:
    """Snapshots that nothing needs any more, oldest first; empty while a pause or a resume is open.

    The state of a paused server that has expired goes by way of ``deleting`` (:func:`paused_state_expired`), not by this.
    """
    if workspace.phase is not Phase.RUNNING:
        return ()
    over = {s.id for s in expired(workspace.shelf, now)}
    proved = sorted((s for s in workspace.shelf if s.state is SnapshotState.CURRENT), key=lambda s: s.created)
    if now - workspace.phase_since >= release_after:
        over.update(s.id for s in proved[: max(0, len(proved) - max(0, keep_last))])
    return tuple(sorted((s for s in workspace.shelf if s.id in over), key=lambda s: s.created))


def paused_state_expired(workspace: Workspace, now: float) -> bool:
    """Whether a paused server's own state has expired (it is then discarded with the reason ``expired``)."""
    if workspace.phase is not Phase.PAUSED or workspace.pause is None:
        return False
    current = workspace.snapshot(workspace.pause.snapshot_id)
    return current is not None and current in expired((current,), now)
