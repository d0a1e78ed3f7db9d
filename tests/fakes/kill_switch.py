"""Kills the Hub right after a phase was persisted, where a test has asked for it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from gke_workspaces_spawner.lifecycle.model import Workspace

PHASES = [
    ("preparing", False),
    ("checkpointing", False),
    ("saved", False),
    ("stopping", False),
    ("paused", False),
    ("waiting", False),
    ("restoring", False),
    ("restoring", True),
    ("running", False),
]
"""Phase that is persisted, and whether it is the proof within it."""


def arm(folder: Path, phase: str, *, proof: bool = False, group: bool = False) -> None:
    """Let the Hub of that folder kill itself right after it has persisted that phase (or, in ``restoring``, the proof)."""
    path = folder / "kill.json"
    path.with_suffix(".new").write_text(json.dumps({"phase": phase, "proof": proof, "group": group}))
    path.with_suffix(".new").replace(path)


def disarm(folder: Path) -> None:
    """Let it live: that phase was not to come."""
    (folder / "kill.json").unlink(missing_ok=True)


class KillSwitch:
    """Observer of the store: the Hub kills itself (SIGKILL) when the phase that ``kill.json`` names has been persisted."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "kill.json"

    def __call__(self, before: Workspace, after: Workspace) -> None:
        if not self._path.exists():
            return
        wanted = json.loads(self._path.read_text())
        proofs = [w.pause is not None and w.pause.attempt is not None and w.pause.attempt.proof is not None for w in (before, after)]
        reached = proofs == [False, True] if wanted["proof"] else before.phase is not after.phase
        if after.phase.value == wanted["phase"] and reached:
            self._path.unlink()
            if wanted["group"]:
                os.killpg(os.getpgid(0), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
