"""After a kick: what is in the cluster and what the records say have to agree. What no record speaks of goes, with a line of the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..engines.gke import GKEEngine, Known
from ..hub.services import Workspaces
from ..hub.store import ASIDE
from ..lifecycle.model import Json, Workspace
from ..lifecycle.phases import OPEN, Phase

NO_POD = (Phase.PAUSED, Phase.DELETING)
"""Phases in which no pod of the server may exist."""


async def reconcile(workspaces: Workspaces, engine: GKEEngine) -> None:
    """Clear what is left of servers, starts and pauses that the Hub does not know (any more)."""
    for gone in await engine.clear_orphans(lambda: known(workspaces)):
        workspaces.log.warning("Removed %s, of which no record of this Hub speaks", gone)


def known(workspaces: Workspaces) -> Known:
    """What the records speak of now."""
    records = list(workspaces.store.all())
    unread = {text for workspace in records for text in _texts(workspaces.store.extra(workspace.key).get(ASIDE))}
    pauses = {workspace.pause.id for workspace in records if workspace.pause is not None and _may_have_a_save(workspace)}
    pauses |= {snapshot.pause_id for workspace in records for snapshot in workspace.shelf}
    return Known(
        lineages=frozenset(unread.union(workspace.owner.lineage for workspace in records)),
        pauses=frozenset(unread | pauses),
        running=frozenset(unread.union(workspace.owner.lineage for workspace in records if _may_have_a_pod(workspaces, workspace))),
    )


def _texts(value: Json) -> Iterator[str]:
    """Every text in a record that this version cannot read (of a newer one, say): whatever it speaks of may still be wanted."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)


def _may_have_a_save(workspace: Workspace) -> bool:
    """Whether the pause counts apart from its snapshots on the shelf: while it is open; and where the server ended before its save did,
    since that may be all that is left of it. What a pause that came to nothing could not delete is of no use to anybody."""
    return workspace.phase in OPEN or (workspace.pause is not None and workspace.pause.reason == "server_lost")


def _may_have_a_pod(workspaces: Workspaces, workspace: Workspace) -> bool:
    """In ``running`` the Hub knows: it has a row of the server from before the pod is made until after it is gone."""
    if workspace.phase is not Phase.RUNNING:
        return workspace.phase not in NO_POD
    row = workspaces.internals.orm_spawner(workspace.key)
    return row is not None and row.server is not None
