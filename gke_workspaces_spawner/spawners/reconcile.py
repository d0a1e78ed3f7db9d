"""After a scan: what is in the cluster and what the records say have to agree. What no record speaks of goes, with a line of the log."""

from __future__ import annotations

from ..engines.gke import GKEEngine, Known
from ..hub.services import Workspaces
from ..lifecycle.model import Workspace
from ..lifecycle.phases import Phase

NO_POD = (Phase.PAUSED, Phase.DELETING)
"""Phases in which no pod of the server may exist."""


async def reconcile(workspaces: Workspaces, engine: GKEEngine) -> None:
    """Clear what is left of servers, starts and pauses that the Hub does not know (any more)."""
    for gone in await engine.clear_orphans(lambda: known(workspaces)):
        workspaces.log.warning("Removed %s, of which no record of this Hub speaks", gone)


def known(workspaces: Workspaces) -> Known:
    """What the records speak of now."""
    records = list(workspaces.store.all())
    pauses = {workspace.pause.id for workspace in records if workspace.pause is not None}
    pauses |= {snapshot.pause_id for workspace in records for snapshot in workspace.shelf}
    return Known(
        lineages=frozenset(workspace.owner.lineage for workspace in records),
        pauses=frozenset(pauses),
        running=frozenset(workspace.owner.lineage for workspace in records if _may_have_a_pod(workspaces, workspace)),
    )


def _may_have_a_pod(workspaces: Workspaces, workspace: Workspace) -> bool:
    """In ``running`` the Hub knows: it has a row of the server from before the pod is made until after it is gone."""
    if workspace.phase is not Phase.RUNNING:
        return workspace.phase not in NO_POD
    row = workspaces.internals.orm_spawner(workspace.key)
    return row is not None and row.server is not None
