"""The one error that leaves this package: a stable code for programs, a detail for people and logs."""

from __future__ import annotations

CODES = frozenset(
    {
        "disk_full",
        "save_timeout",
        "save_failed",
        "save_cancelled",
        "save_interrupted",
        "frozen_too_long",
        "sandbox_gone",
        "start_failed",
        "restore_failed",
        "remove_failed",
        "snapshot_changed",
        "snapshot_gone",
        "files_changed",
        "runsc_unusable",
        "not_enough_memory",
        "state_unsafe",
        "shim_unreachable",
        "busy",
    }
)
"""Every code that a :class:`SandboxError` or a failed save may carry."""


class SandboxError(Exception):
    """Something about a sandbox did not work; ``code`` is one of :data:`CODES`, ``detail`` a sentence."""

    def __init__(self, code: str, detail: str = "") -> None:
        if code not in CODES:
            raise ValueError(f"unknown code {code!r}")
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail
