"""What the user is told after a resume: what came back, what did not and why, sizes and times. Whitelisted, bounded, data.

Whatever stems from inside the server (names, what it repaired) is a claim: cut to size here and escaped by whoever renders it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .model import Json, KernelProcess, Pause, SnapshotManifest, Workspace
from .ports import Absent, Restored
from .proof import Verdict
from .reasons import reason

TEXT_LIMIT = 200
LIST_LIMIT = 50
DEPTH_LIMIT = 3

FROM_GUEST = ("activity", "openssl", "hub_caches", "hub_connections", "cloud_credentials", "activity_report")
"""What of the extension's ``repaired`` goes into the receipt."""

FROM_AIDS = ("placeholders", "kept_files")
"""What of the engine's aids goes into the receipt."""

FROM_FACTS = ("not_returning", "notebooks", "terminals")
"""What of the facts before the pause goes into the receipt."""


def make(
    workspace: Workspace,
    pause: Pause,
    manifest: SnapshotManifest,
    verdict: Verdict,
    answer: Restored | Absent,
    aids: Mapping[str, Json],
) -> Mapping[str, Json]:
    """The receipt as JSON. Times are seconds; ``None`` where a clock was not set."""
    clocks = pause.clocks
    repaired = {} if isinstance(answer, Absent) else answer.repaired
    facts = pause.facts or {}
    snapshot = workspace.snapshot(pause.snapshot_id)
    return {
        "resumed": verdict.proved,
        "reasons": list(verdict.reasons),
        "notes": list(verdict.notes),
        "sentences": [reason(code).sentence for code in (*verdict.reasons, *verdict.notes)],
        "bytes": manifest.bytes or (snapshot.bytes if snapshot else 0),
        "kernels": [_kernel(k) for k in verdict.kernels_back[:LIST_LIMIT]],
        "kernels_missing": [_kernel(k) for k in verdict.kernels_missing[:LIST_LIMIT]],
        "aids": {name: claim(aids[name]) for name in FROM_AIDS if aids.get(name)},
        "repaired": {name: claim(repaired[name]) for name in FROM_GUEST if name in repaired},
        "before": {name: claim(facts[name]) for name in FROM_FACTS if name in facts},
        "seconds": {
            "pause": _between(clocks.pause_asked, clocks.freed),
            "paused": _between(clocks.freed, clocks.resume_asked),
            "waiting": _between(clocks.resume_asked, clocks.capacity_found),
            "resume": _between(clocks.resume_asked, clocks.process_back),
        },
    }


def claims(values: Mapping[str, Json]) -> Mapping[str, Json]:
    """Facts that the extension or a page sent, cut to what a record may hold."""
    return {str(name)[:TEXT_LIMIT]: claim(value) for name, value in list(values.items())[:LIST_LIMIT]}


def claim(value: object, depth: int = DEPTH_LIMIT) -> Json:
    """A value that user code may have written, cut to what a record may hold."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value[:TEXT_LIMIT].encode("utf-8", "replace").decode()
    if depth and isinstance(value, Mapping):
        return {str(k)[:TEXT_LIMIT]: claim(v, depth - 1) for k, v in list(value.items())[:LIST_LIMIT]}
    if depth and isinstance(value, Sequence):
        return [claim(v, depth - 1) for v in list(value)[:LIST_LIMIT]]
    return None


def _kernel(kernel: KernelProcess) -> Mapping[str, Json]:
    return {"id": kernel.kernel_id[:TEXT_LIMIT], "name": kernel.name[:TEXT_LIMIT]}


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else round(max(0.0, end - start), 3)
