"""Leaf: gVisor sandboxes on one machine that can be frozen, saved to disk and restored.

Standard library only; imports nothing else of the project. What the rest uses is in :mod:`.api` and exported here,
lazily, because the shim (one small process per sandbox) imports this package too and has to be up within milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api import Address, Sandboxes
    from .binary import probe
    from .errors import SandboxError
    from .network import Network
    from .saving import Failed, Nothing, Saved, SaveResult, Saving
    from .spec import SandboxSpec, Status

__all__ = [
    "Address",
    "Failed",
    "Network",
    "Nothing",
    "SandboxError",
    "SandboxSpec",
    "Sandboxes",
    "SaveResult",
    "Saved",
    "Saving",
    "Status",
    "probe",
]

_HOMES = {
    "Address": "api",
    "Sandboxes": "api",
    "SandboxError": "errors",
    "Network": "network",
    "probe": "binary",
    "Failed": "saving",
    "Nothing": "saving",
    "SaveResult": "saving",
    "Saved": "saving",
    "Saving": "saving",
    "SandboxSpec": "spec",
    "Status": "spec",
}


def __getattr__(name: str) -> object:
    """Import the module that defines ``name`` at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
