"""Is the server that is up the process that was paused? Computed here, never by an engine.

The engine's evidence from outside is necessary. What the server says of itself can only lower the verdict: whoever runs code in
it can replace the extension and replay every word of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import Identity, KernelProcess
from .ports import Absent, Restored, Signal

START_TOLERANCE = 0.05
"""Seconds by which a kernel's start time may differ: it is computed from clock ticks (usually 0.01 s each) and rounded."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement; ``reasons`` are codes of :mod:`.reasons`, weightiest first, and empty exactly when it is proved."""

    proved: bool
    reasons: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    kernels_back: tuple[KernelProcess, ...] = ()
    kernels_missing: tuple[KernelProcess, ...] = ()
    notes: tuple[str, ...] = ()
    """Codes of what the proof rests on where it is weaker than usual."""


def judge(recorded: Identity | None, claimed: Restored | Absent, engine_signal: str) -> Verdict:
    """The verdict on a server that was just restored.

    ``recorded``: what the snapshot holds of the paused process; ``None`` when it had no extension.
    """
    reasons: list[str] = []
    details: list[str] = []
    notes: list[str] = []
    if engine_signal == Signal.FRESH:
        reasons.append("silent_cold_start")
    elif engine_signal == Signal.LATE and recorded is not None and isinstance(claimed, Restored):
        notes.append("engine_late")
    elif engine_signal != Signal.RESTORED:
        reasons.append("engine_silent")
        details.append(f"signal {engine_signal}")
    if isinstance(claimed, Absent):
        notes.append("proof_by_engine_only")
        if recorded is not None:
            reasons.append("identity_differs")
            details.append("the server extension is gone")
        return Verdict(not reasons, tuple(reasons), tuple(details), notes=tuple(notes))
    if claimed.checkpoint_said is None:
        notes.append("checkpoint_silent")
    elif claimed.checkpoint_said != "restore":
        reasons.append("silent_cold_start" if claimed.checkpoint_said == "resume" else "identity_differs")
        details.append(f"/proc/gvisor/checkpoint said {claimed.checkpoint_said[:20]!r}")
    back: list[KernelProcess] = []
    missing: list[KernelProcess] = []
    if recorded is None:
        notes.append("proof_by_engine_only")
    else:
        if claimed.identity.boot_id != recorded.boot_id or claimed.identity.server_pid != recorded.server_pid:
            reasons.append("identity_differs")
            details.append("boot id or process id of the server differs")
        there = {(k.kernel_id, k.pid): k for k in claimed.identity.kernels}
        for kernel in recorded.kernels:
            found = there.get((kernel.kernel_id, kernel.pid))
            same = found is not None and abs(found.started - kernel.started) <= START_TOLERANCE
            (back if same else missing).append(kernel)
        if missing:
            reasons.append("kernels_missing")
            details.append(f"{len(missing)} of {len(recorded.kernels)} kernels")
    return Verdict(not reasons, tuple(dict.fromkeys(reasons)), tuple(details), tuple(back), tuple(missing), tuple(notes))
