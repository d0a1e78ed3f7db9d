"""What the Hub's records say of the cluster, and what the spawner makes of a cluster that does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gke_workspaces_spawner.hub.store import ASIDE
from gke_workspaces_spawner.lifecycle.model import Key, Owner, Pause, SnapshotRef, SnapshotState, Workspace
from gke_workspaces_spawner.lifecycle.phases import OPEN, Phase
from gke_workspaces_spawner.lifecycle.reasons import TryLater
from gke_workspaces_spawner.spawners.gke import GKEWorkspaceSpawner
from gke_workspaces_spawner.spawners.reconcile import known


def records(*workspaces: Workspace, runs: bool = True, aside: Any = None) -> Any:
    row = SimpleNamespace(server=object() if runs else None)
    return SimpleNamespace(
        store=SimpleNamespace(all=lambda: iter(workspaces), extra=lambda _key: {ASIDE: aside}),
        internals=SimpleNamespace(orm_spawner=lambda _key: row),
    )


def in_phase(phase: Phase, reason: str | None = None, *shelf: SnapshotRef) -> Workspace:
    return Workspace(Key("ann"), Owner(1, "a" * 32), phase, pause=Pause("p1", reason=reason, snapshot_id="s-p1"), shelf=shelf)


@pytest.mark.parametrize("phase", sorted(OPEN))
def test_what_an_open_pause_has_in_the_cluster_is_known(phase: Phase) -> None:
    assert known(records(in_phase(phase))).pauses == {"p1"}


def test_what_a_pause_that_came_to_nothing_could_not_delete_is_nobodys() -> None:
    assert not known(records(in_phase(Phase.RUNNING, "save_timeout"))).pauses


def test_what_may_be_all_that_is_left_of_a_server_is_known() -> None:
    assert known(records(in_phase(Phase.RUNNING, "server_lost"))).pauses == {"p1"}


def test_what_is_on_the_shelf_is_known_whatever_became_of_its_pause() -> None:
    kept = SnapshotRef("s-p0", "p0", SnapshotState.SUPERSEDED, 1, 0.0, None)
    assert known(records(in_phase(Phase.RUNNING, "cancelled", kept))).pauses == {"p0"}


def test_what_a_record_of_a_newer_version_speaks_of_is_not_taken_for_an_orphan() -> None:
    """A hub that was downgraded cannot read it, and must not delete what it will be able to read again."""
    lineage = "c" * 32
    newer = {"version": 9, "owner": {"lineage": lineage}, "pause": {"id": "p7"}, "shelf": [{"pause_id": "p6"}, {"pause_id": "p7"}]}
    found = known(records(in_phase(Phase.RUNNING, "record_unreadable"), runs=False, aside=newer))
    assert {"p6", "p7"} <= found.pauses
    assert lineage in found.lineages & found.running


@pytest.mark.parametrize("phase", sorted(Phase))
def test_a_pod_may_be_there_unless_the_server_is_paused_or_the_hub_has_stopped_it(phase: Phase) -> None:
    assert bool(known(records(in_phase(phase))).running) is (phase not in (Phase.PAUSED, Phase.DELETING))
    if phase is Phase.RUNNING:
        assert not known(records(in_phase(phase), runs=False)).running


# ---------------------------------------------------------------- poll


@pytest.mark.parametrize("phase", [Phase.STOPPING, Phase.RESTORING, Phase.UNPROVEN])
async def test_a_poll_in_an_outage_says_not_known_to_have_ended_since_the_hub_stops_at_its_start_what_raises(phase: Phase) -> None:
    workspace = in_phase(phase)

    async def settle(_key: Key) -> Workspace:
        return workspace

    async def alive(_server: object) -> bool:
        raise TryLater("cluster_unreachable")

    spawner: Any = SimpleNamespace(
        workspace=workspace,
        workspace_key=workspace.key,
        workspaces=SimpleNamespace(
            supervisor=SimpleNamespace(settle=settle), engine=SimpleNamespace(alive=alive), server=lambda _key: object()
        ),
    )
    assert await GKEWorkspaceSpawner.poll(spawner) is None
