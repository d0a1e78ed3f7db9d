"""The heart: phases, records, the steps of a pause and of a resume, proof and receipt. Standard library only, no I/O.

Everything of the world is handed in through :mod:`.ports`; who is killed between any two lines is recovered by
:func:`~.drive.drive`, the one driver.
"""

from __future__ import annotations

from .drive import STEPS, discard_kept, drive, follow_up, purge, retain
from .model import (
    Attempt,
    Clocks,
    Identity,
    Intent,
    KernelProcess,
    Key,
    Move,
    Owner,
    Pause,
    SnapshotManifest,
    SnapshotRef,
    SnapshotState,
    Want,
    Workspace,
    apply,
    from_json,
    manifest_from_json,
    manifest_to_json,
    to_json,
)
from .pausing import begin_pause, snapshot_id_of
from .phases import CALLS, MOVES, OPEN, PAUSE_UNDER_WAY, RESUME_UNDER_WAY, Answer, Call, Outcome, Phase, calls_markdown
from .ports import Limits, Ports, Server
from .reasons import Broken, Conflict, LifecycleError, Lost, Reason, Refused, TryLater, reason
from .resuming import accept, begin_discard, begin_fresh, begin_resume, interrupted, retry
from .retention import expired, may_go, paused_state_expired
from .steps import names_pause, remembered
from .words import Sentence, actions, call_answer, describe, sentence

__all__ = [
    "CALLS",
    "MOVES",
    "OPEN",
    "PAUSE_UNDER_WAY",
    "RESUME_UNDER_WAY",
    "STEPS",
    "Answer",
    "Attempt",
    "Broken",
    "Call",
    "Clocks",
    "Conflict",
    "Identity",
    "Intent",
    "KernelProcess",
    "Key",
    "LifecycleError",
    "Limits",
    "Lost",
    "Move",
    "Outcome",
    "Owner",
    "Pause",
    "Phase",
    "Ports",
    "Reason",
    "Refused",
    "Sentence",
    "Server",
    "SnapshotManifest",
    "SnapshotRef",
    "SnapshotState",
    "TryLater",
    "Want",
    "Workspace",
    "accept",
    "actions",
    "apply",
    "begin_discard",
    "begin_fresh",
    "begin_pause",
    "begin_resume",
    "call_answer",
    "calls_markdown",
    "describe",
    "discard_kept",
    "drive",
    "expired",
    "follow_up",
    "from_json",
    "interrupted",
    "manifest_from_json",
    "manifest_to_json",
    "may_go",
    "names_pause",
    "paused_state_expired",
    "purge",
    "reason",
    "remembered",
    "retain",
    "retry",
    "sentence",
    "snapshot_id_of",
    "to_json",
]
