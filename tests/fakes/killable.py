"""The spawner with a Hub that kills itself right after a phase was persisted, where a test has asked for it."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from gke_workspaces_spawner.hub.services import Workspaces
from gke_workspaces_spawner.spawners.gke import GKEWorkspaceSpawner
from tests.fakes.kill_switch import KillSwitch


class KillableSpawner(GKEWorkspaceSpawner):
    """What is configured for :class:`GKEWorkspaceSpawner` holds for it; the switch lies where the Hub was started."""

    @classmethod
    def make_workspaces(cls, settings: MutableMapping[str, Any], spawner: Any) -> Workspaces:
        workspaces = super().make_workspaces(settings, spawner)
        workspaces.store.observe(KillSwitch(Path.cwd()))
        return workspaces
