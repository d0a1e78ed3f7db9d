"""Pause and resume JupyterHub servers with their memory.

Names are imported when they are first used, so that ``jupyterhub_config.py`` pays only for what it names.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .configure import configure
    from .spawners.gke import GKEWorkspaceSpawner
    from .spawners.local import LocalWorkspaceSpawner

__all__ = ["GKEWorkspaceSpawner", "LocalWorkspaceSpawner", "configure"]

_HOMES = {"GKEWorkspaceSpawner": ".spawners.gke", "LocalWorkspaceSpawner": ".spawners.local", "configure": ".configure"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = found
    return found


class _Package(ModuleType):
    """Whoever imports a module of an export's name makes Python put the module into the export's place; it stays out of it."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
