"""Checks of the hub's own settings: what makes servers that cannot be paused, or ends them before they are. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .findings import Finding, State, Unread, found, unread
from .values import Deployment

SHORT_CULL = 12 * 3600
"""Seconds of idleness after which a night's pause is likelier than work."""
HTTP_SECONDS = 60
START_SECONDS = 300
OURS = ("gke-workspaces", "GKEWorkspaceSpawner")
STOCK_HUB = ("quay.io/jupyterhub/k8s-hub", "jupyterhub/k8s-hub", "quay.io/jupyterhub/jupyterhub", "jupyterhub/jupyterhub")
STOCK_SERVERS = ("quay.io/jupyterhub/", "jupyterhub/", "quay.io/jupyter/", "docker.io/jupyter/", "jupyter/", "pangeo/", "rocker/")
"""Beginnings of names of public images, which have no server extension of ours."""
RIGHTS = {"NET_ADMIN", "SYS_ADMIN"}


def check_values(hub: Deployment | Unread, namespace: str) -> Iterator[Finding]:
    """All of them."""
    if isinstance(hub, Unread):
        yield unread("values", hub, namespace=namespace)
        return
    yield found(
        "values",
        State.OK,
        "The values of the chart were read." if hub.z2jh else "The config file was read, and not run: only plain values are seen.",
    )
    yield spawner(hub)
    yield from metadata(hub)
    yield culling(hub)
    yield from timeouts(hub)
    yield from images(hub)
    yield hub_image(hub)
    yield containers(hub)
    yield database(hub)


def spawner(hub: Deployment) -> Finding:
    where = "the file" if not hub.z2jh else "hub.config or hub.extraConfig"
    if hub.spawner_class is None:
        return found("values-spawner", State.UNKNOWN, f"Which spawner class is used is not said plainly in {where}.")
    if not hub.spawner_class.endswith(OURS):
        return found("values-spawner", State.FAULT, f"The spawner class is {hub.spawner_class}.")
    if not hub.configured:
        return found("values-spawner", State.FAULT, f"The spawner class is ours, and configure(c) is not called in {where}.")
    pausable = bool(hub.traits.get("pausable")) or any(
        isinstance(gke := each.get("gke"), Mapping) and gke.get("pausable") in (True, "auto") for each in hub.profiles
    )
    if not pausable:
        return found(
            "values-spawner", State.WARNING, "Neither c.GKEWorkspaceSpawner.pausable nor a profile's `gke` makes a server pausable."
        )
    return found(
        "values-spawner", State.OK, "Servers are started by our spawner class, configure(c) is called, and some servers are pausable."
    )


def metadata(hub: Deployment) -> Iterator[Finding]:
    if hub.block_metadata:
        yield found("values-metadata", State.FAULT, "singleuser.cloudMetadata.blockWithIptables is on (the chart's default).")
    privileged = [each for each in hub.init_containers if _privileged(each)]
    for each in privileged:
        what = f"The init container {each.get('name', '?')} has rights over the machine."
        yield found("values-metadata", State.FAULT, what, mend="Remove it, or do its work in the image or in a container without rights.")
    if not hub.block_metadata and not privileged:
        if hub.z2jh and not hub.network_policy:
            what = "Neither iptables nor a network policy keeps servers from the machine's metadata (169.254.169.254)."
            yield found("values-metadata", State.WARNING, what)
        else:
            yield found("values-metadata", State.OK, "No init container has rights over the machine.")


def _privileged(container: Any) -> bool:
    context = container.get("securityContext") if isinstance(container, dict) else None
    if not isinstance(context, dict):
        return False
    return bool(context.get("privileged")) or bool(RIGHTS & set((context.get("capabilities") or {}).get("add") or ()))


def culling(hub: Deployment) -> Finding:
    culler = hub.culler
    if culler is None:
        return found("values-cull", State.OK, "No culler stops idle servers.")
    if culler.users:
        return found("values-cull", State.FAULT, "The culler removes users without a running server: those whose server is paused too.")
    if culler.max_age:
        what = f"The culler stops servers {_hours(culler.max_age)} after their start, also while they work or are being paused."
        return found("values-cull", State.WARNING, what)
    if culler.remove_named:
        return found("values-cull", State.WARNING, "The culler removes named servers when it stops them.")
    if culler.timeout < SHORT_CULL:
        what = f"The culler stops a server that is idle for {_hours(culler.timeout)}: a session that was not paused by then is lost."
        return found("values-cull", State.WARNING, what)
    return found("values-cull", State.OK, f"The culler stops servers after {_hours(culler.timeout)} of idleness.")


def _hours(seconds: int) -> str:
    return f"{seconds / 3600:.3g} h" if seconds >= 3600 else f"{seconds / 60:.3g} min"


def timeouts(hub: Deployment) -> Iterator[Finding]:
    start, http = _seconds(hub, "start_timeout"), _seconds(hub, "http_timeout")
    fine = True
    if start is not None and start < START_SECONDS:
        fine = False
        what = f"start_timeout is {start:g} s: a start on a machine that has to be made first takes longer."
        yield found("values-timeouts", State.WARNING, what)
    if http is None or http < HTTP_SECONDS:
        fine = False
        said = "is not set, so it is KubeSpawner's 30 s" if http is None else f"is {http:g} s"
        yield found("values-timeouts", State.WARNING, f"http_timeout {said}: a large server may still be reading its memory back then.")
    if fine:
        yield found("values-timeouts", State.OK, "Time-outs leave room for a resume.")


def _seconds(hub: Deployment, trait: str) -> float | None:
    value = hub.traits.get(trait)
    return float(value) if isinstance(value, (int, float)) else None


def images(hub: Deployment) -> Iterator[Finding]:
    unfrozen = bool(hub.traits.get("allow_unfrozen")) or hub.traits.get("post_checkpoint") == "stop"
    if not hub.images:
        yield found("values-image", State.UNKNOWN, "The file does not say plainly which image servers have.")
    for image in hub.images:
        if image.startswith(STOCK_SERVERS):
            state = State.WARNING if unfrozen else State.FAULT
            yield found("values-image", state, f"Image {image} is a public one, without the server extension.", image=image)
        else:
            yield found(
                "values-image", State.UNKNOWN, f"Whether image {image} has the server extension cannot be seen from its name.", image=image
            )


def hub_image(hub: Deployment) -> Finding:
    if hub.hub_image is None:
        return found("values-hub-image", State.UNKNOWN, "The file does not say which image the hub has.", image="IMAGE")
    if hub.hub_image.partition(":")[0] in STOCK_HUB:
        return found(
            "values-hub-image", State.FAULT, f"The hub's image is {hub.hub_image}, which does not have this package.", image=hub.hub_image
        )
    what = f"Whether the hub's image {hub.hub_image} has this package cannot be seen from its name."
    return found("values-hub-image", State.UNKNOWN, what, image=hub.hub_image)


def containers(hub: Deployment) -> Finding:
    beside = [str(each.get("name", "?")) for each in hub.extra_containers if isinstance(each, dict)]
    if beside and hub.traits.get("post_checkpoint") != "stop":
        return found("values-containers", State.FAULT, f"Beside each server runs: {', '.join(beside)}.")
    return found("values-containers", State.OK, "Nothing that cannot be held still runs beside servers.")


def database(hub: Deployment) -> Finding:
    if hub.database_in_memory:
        return found("values-database", State.FAULT, "The hub's database is in memory: a restart forgets which servers are paused.")
    return found("values-database", State.OK, "The hub's database outlives a restart.")
