"""Checks of the cluster itself: versions, kinds, gVisor, the hub's account and its rights. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..facts import name
from .findings import Finding, State, Unread, found, unread
from .seen import Right, Seen

Version = tuple[int, int, int, int]
"""Major, minor, patch, and GKE's own number; 0 where there is none."""

OLDEST: Version = (1, 32, 0, 0)
"""What this package supports."""
FIRST_PREVIEW: Version = (1, 34, 1, 3084001)
FIRST_GENERAL: Version = (1, 35, 3, 1234000)
FIRST_FEDERATED: Version = (1, 35, 3, 1737000)
"""The first with tokenSource ``federatedP4SA``."""
SANDBOX_LABEL = "sandbox.gke.io/runtime"
POOL_LABEL = "cloud.google.com/gke-nodepool"
MACHINE_LABEL = "node.kubernetes.io/instance-type"


def check_cluster(seen: Seen) -> Iterator[Finding]:
    """All of them."""
    yield api(seen)
    yield version(seen.version)
    yield runtime_class(seen)
    yield from nodes(seen)
    yield account(seen)
    yield rights(seen)
    yield node_rights(seen)


def api(seen: Seen) -> Finding:
    absent = sorted(kind for kind, served in seen.kinds.items() if not served)
    if not absent:
        return found("api", State.OK, "podsnapshot.gke.io/v1 is served with the kinds that pausing uses.")
    if len(absent) == len(seen.kinds):
        return found("api", State.FAULT, "podsnapshot.gke.io/v1 is not served.")
    return found("api", State.FAULT, f"podsnapshot.gke.io/v1 is served without {', '.join(absent)}.")


def parse_version(text: str) -> Version | None:
    """``v1.35.3-gke.1737000`` as numbers; None for what is no version."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:-gke\.(\d+))?", text)
    if match is None:
        return None
    major, minor, patch, own = (int(part or 0) for part in match.groups())
    return major, minor, patch, own


def version(text: str) -> Finding:
    parsed = parse_version(text)
    if parsed is None:
        return found("version", State.UNKNOWN, f"The API server's version ({text or 'none'}) cannot be read.")
    if parsed < OLDEST:
        return found("version", State.FAULT, f"The API server is {text}; this package needs Kubernetes 1.32 or newer.")
    if "-gke." not in text:
        return found("version", State.UNKNOWN, f"The API server is {text}, which is no version of GKE.")
    if parsed < FIRST_PREVIEW:
        return found("version", State.FAULT, f"The API server is {text}; Pod Snapshots came with 1.34.1-gke.3084001.")
    if parsed < FIRST_GENERAL:
        return found("version", State.WARNING, f"The API server is {text}, in which Pod Snapshots are a preview.")
    if parsed < FIRST_FEDERATED:
        return found("version", State.WARNING, f"The API server is {text}, which does not know tokenSource federatedP4SA yet.")
    return found("version", State.OK, f"The API server is {text}.")


def runtime_class(seen: Seen) -> Finding:
    wanted = name("runtime_class")
    if isinstance(seen.runtime_class, Unread):
        return unread("runtime-class", seen.runtime_class)
    if seen.runtime_class is None:
        return found("runtime-class", State.FAULT, f"There is no RuntimeClass {wanted}.")
    return found("runtime-class", State.OK, f"RuntimeClass {wanted} is there.")


def nodes(seen: Seen) -> Iterator[Finding]:
    if isinstance(seen.nodes, Unread):
        yield unread("nodes", seen.nodes)
        return
    pools: dict[str, set[str]] = {}
    versions: set[str] = set()
    for node in seen.nodes:
        labels = node["metadata"].get("labels") or {}
        if labels.get(SANDBOX_LABEL) != name("runtime_class"):
            continue
        pools.setdefault(labels.get(POOL_LABEL, "?"), set()).add(labels.get(MACHINE_LABEL, "?"))
        versions.add(str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion") or ""))
    if not pools:
        yield found("nodes", State.UNKNOWN, "No node with GKE Sandbox is there now: a pool may be scaled to zero, or there is none.")
        return
    for pool, machines in sorted(pools.items()):
        if any(machine.startswith("e2-") for machine in machines):
            yield found("nodes", State.WARNING, f"Pool {pool} has E2 machines, on which servers run but cannot be saved.")
        else:
            yield found("nodes", State.OK, f"Pool {pool} has GKE Sandbox on {', '.join(sorted(machines))}.")
    if len(versions) > 1:
        said = ", ".join(sorted(versions))
        yield found(
            "nodes",
            State.WARNING,
            f"Nodes with GKE Sandbox have several versions ({said}): what was saved on one is not restored on another.",
        )


def account(seen: Seen) -> Finding:
    if isinstance(seen.accounts, Unread):
        return unread("account", seen.accounts, namespace=seen.namespace)
    if any(each["metadata"]["name"] == seen.account for each in seen.accounts):
        return found("account", State.OK, f"The hub runs as {seen.account} in namespace {seen.namespace}.")
    return found("account", State.FAULT, f"Namespace {seen.namespace} has no service account {seen.account}.", namespace=seen.namespace)


def rights(seen: Seen) -> Finding:
    if isinstance(seen.needed, Unread):
        return unread("rights", seen.needed, namespace=seen.namespace)
    lacking = sorted(right for right, granted in seen.needed.items() if not granted)
    if lacking:
        return found("rights", State.FAULT, f"{seen.user} may not: {_words(lacking)}.", namespace=seen.namespace)
    return found("rights", State.OK, f"{seen.user} has the {len(seen.needed)} rights that pausing needs.")


def node_rights(seen: Seen) -> Finding:
    if isinstance(seen.optional, Unread):
        return unread("node-rights", seen.optional)
    lacking = sorted(right for right, granted in seen.optional.items() if not granted)
    if lacking:
        return found("node-rights", State.WARNING, f"{seen.user} may not: {_words(lacking)}.")
    return found("node-rights", State.OK, f"{seen.user} may read nodes.")


def _words(lacking: list[Right]) -> str:
    return ", ".join(str(right) for right in lacking)
