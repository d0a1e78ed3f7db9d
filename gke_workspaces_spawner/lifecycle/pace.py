"""How long things take here and how far they are: progress that is measured, or elapsed time of what the last ones took.

Nothing here ever says that something is done: that is a phase, not a number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from .model import Workspace
from .phases import Phase

FIXED_SECONDS = 0.8
BYTES_A_SECOND = 1.0e9
"""First guess of a restore, until this Hub has seen one end."""

REMEMBERED = 8
"""Restores that the estimate learns from: the last ones, since machines and disks change."""

MOST = 0.95
"""What a part of a wait is shown as at most, however long it goes on."""

SAYS_SOMETHING = 0.1
"""From this part of a wait on the time that it took says how long the rest takes."""


class Ended(NamedTuple):
    """A restore that was proved."""

    bytes: int
    seconds: float


class Progress(NamedTuple):
    """How far a phase is: a fraction below 1, and seconds that are left; ``None`` where it is not known."""

    fraction: float | None = None
    remaining: float | None = None


def first_guess(size: int) -> float:
    """Seconds that a restore of that many bytes takes on a machine of today."""
    return FIXED_SECONDS + size / BYTES_A_SECOND


class Pace:
    """Estimates of restores: the first guess, corrected by the median of what the last ones took in its terms.

    The median, so that one restore from a cold disk does not count for all that follow.
    """

    def __init__(self, ended: Iterable[Ended] = ()) -> None:
        self._factors: deque[float] = deque(maxlen=REMEMBERED)
        for each in ended:
            self.learn(each)

    def learn(self, ended: Ended) -> None:
        if ended.seconds > 0:
            self._factors.append(ended.seconds / first_guess(ended.bytes))

    def seconds(self, size: int) -> float:
        """What a restore of that many bytes is expected to take from its start until the server is ready."""
        return first_guess(size) * (median(self._factors) if self._factors else 1.0)


def restore_of(workspace: Workspace) -> Ended | None:
    """The resume that a running server came from, as its receipt and clocks have it."""
    pause = workspace.pause
    if workspace.phase is not Phase.RUNNING or pause is None or pause.receipt is None or pause.receipt.get("resumed") is not True:
        return None
    size, begun = pause.receipt.get("bytes"), pause.clocks.capacity_found
    if not isinstance(size, int) or begun is None or workspace.phase_since <= begun:
        return None
    return Ended(size, workspace.phase_since - begun)


def progress(workspace: Workspace, pace: Pace, now: float) -> Progress:
    """How far the phase is: what the engine says, or of a restore the elapsed part of what it is expected to take."""
    elapsed = max(0.0, now - workspace.phase_since)
    if workspace.progress is not None:
        fraction = min(max(0.0, workspace.progress), 0.99)  # written is not durable yet
        return Progress(fraction, elapsed * (1 - fraction) / fraction if fraction >= SAYS_SOMETHING else None)
    pause = workspace.pause
    snapshot = workspace.snapshot(pause.snapshot_id) if pause else None
    if workspace.phase is not Phase.RESTORING or pause is None or pause.reason or snapshot is None:
        return Progress()
    expected = pace.seconds(snapshot.bytes)
    return Progress(min(elapsed / expected, MOST), expected - elapsed if elapsed < expected else None)
