"""``gke-workspaces uninstall``: what pausing has left in a cluster and in the Hub, and its removal."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..hubclient import HubClient, HubError, server_path
from .say import Stopped, say

if TYPE_CHECKING:
    from ..kube.leftovers import Leftovers

TOKEN = "JUPYTERHUB_API_TOKEN"  # noqa: S105 - the name of an environment variable
KINDS = {
    "pods": "servers that run and can be paused",
    "triggers": "triggers of saves",
    "snapshots": "saved states (PodSnapshots, with their files in the bucket)",
    "secrets": "Secrets of servers and saved states",
    "policies": "policies of saves",
    "storages": "storage configs (they belong to the cluster and stay)",
}
ASKED = 30.0
"""Seconds for a question to the Hub."""
HELD = 600.0
"""Seconds for one discard: the Hub answers when the bytes are gone."""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    hub_url: str | None = None
    """The Hub's REST (``https://HOST/hub/api``)."""
    yes: bool = False
    json: bool = False


def uninstall(options: Options) -> int:
    """List what is there, and remove it where ``yes`` was said. Raises Stopped."""
    if find_spec("kubernetes_asyncio") is None:
        raise Stopped("This needs the Kubernetes client: pip install 'gke-workspaces-spawner[hub]'.")
    hub = _hub(options.hub_url, HELD if options.yes else ASKED)
    workspaces = [] if hub is None else _workspaces(hub)
    return asyncio.run(_uninstall(options, hub, workspaces))


async def _uninstall(options: Options, hub: HubClient | None, workspaces: list[dict[str, Any]]) -> int:
    from ..kube import leftovers
    from ..kube.doctor.connect import connected
    from ..kube.doctor.seen import NoCluster
    from ..kube.errors import KubeError

    try:
        async with connected(options.kubeconfig, options.context) as (cluster, place):
            namespace = options.namespace or place.namespace
            there = await leftovers.find(cluster, namespace)
            _show(namespace, there, hub is not None, workspaces, as_json=options.json)
            if not options.yes:
                return 0
            if there.pods:
                raise Stopped(f"Servers that can be paused still run ({', '.join(there.pods)}): stop them first.")
            for each in workspaces:
                if hub is not None:
                    _discard(hub, each)
            await leftovers.remove(cluster, namespace, await leftovers.find(cluster, namespace), say)
    except (NoCluster, leftovers.Stuck) as error:
        raise Stopped(str(error)) from error
    except KubeError as error:
        raise Stopped(f"The API server refused, or did not answer: {error}.") from error
    return 0


def _hub(url: str | None, seconds: float) -> HubClient | None:
    if url is None:
        return None
    token = os.environ.get(TOKEN, "")
    if not token:
        raise Stopped(f"The Hub is asked with a token of an admin: put one into the environment variable {TOKEN}.")
    if not url.startswith(("http://", "https://")):
        raise Stopped(f"{url} is no address of a Hub's REST: https://HOST/hub/api.")
    return HubClient(url, token, seconds)


def _workspaces(hub: HubClient) -> list[dict[str, Any]]:
    try:
        return hub.workspaces()
    except HubError as error:
        raise Stopped(f"The Hub did not say what is paused: {error}.") from error


def _discard(hub: HubClient, workspace: dict[str, Any]) -> None:
    """Discard every saved state of a workspace; the Hub drops its record with the last one."""
    where = server_path(workspace["user"], workspace["server"])
    for snapshot in workspace.get("snapshots") or ():
        try:
            hub.call("DELETE", f"{where}/pause/{snapshot['pause_id']}")
        except HubError as error:
            raise Stopped(f"The Hub did not discard what is saved of {_name(workspace)}: {error}.") from error
        say(f"discarded a saved state of {_name(workspace)}")


def _name(workspace: dict[str, Any]) -> str:
    return f"{workspace['user']}/{workspace['server']}" if workspace["server"] else str(workspace["user"])


def _show(namespace: str, there: Leftovers, asked: bool, workspaces: list[dict[str, Any]], *, as_json: bool) -> None:
    kept = [each for each in workspaces if each.get("snapshots")]
    if as_json:
        records = [{"user": each["user"], "server": each["server"], "phase": each["phase"]} for each in kept]
        say(json.dumps({"namespace": namespace, **there.as_json(), "records": records if asked else None}, indent=2))
        return
    say(f"In namespace {namespace}:")
    for field, words in KINDS.items():
        names = getattr(there, field)
        say(f"  {len(names)} {words}{': ' if names else ''}{', '.join(names)}")
    if asked:
        said = ", ".join(f"{_name(each)} ({each['phase']})" for each in kept)
        say(f"In the Hub: {len(kept)} records with saved states, and the tokens that go with them{': ' if kept else ''}{said}")
    else:
        say("The Hub was not asked for its records: give --hub-url, with an admin's token in JUPYTERHUB_API_TOKEN.")
