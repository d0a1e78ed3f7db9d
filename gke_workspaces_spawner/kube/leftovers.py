"""What pausing has put into a namespace, and its removal in the order that loses no files: snapshots first, policies last.

GKE finds a snapshot's files through its policy: when the policy goes first, the files stay in the bucket, unseen and billed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from .client import POD, POLICY, SECRET, SNAPSHOT, TRIGGER, Cluster, Kind, Object
from .errors import NotFound
from .facts import LINEAGE, PART
from .facts import POLICY as POLICY_LABEL

GONE_SECONDS = 300.0
"""Seconds to wait until GKE has removed the files of all deleted snapshots."""
LOOK = 1.0


class Stuck(Exception):
    """Something does not go away; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Names, by kind."""

    pods: tuple[str, ...]
    """Servers that run and can be paused."""
    triggers: tuple[str, ...]
    snapshots: tuple[str, ...]
    secrets: tuple[str, ...]
    policies: tuple[str, ...]
    storages: tuple[str, ...]
    """Storage configs that the policies name; they belong to the cluster and are never removed here."""

    def as_json(self) -> dict[str, list[str]]:
        return {field: list(getattr(self, field)) for field in self.__slots__}


async def find(cluster: Cluster, namespace: str) -> Leftovers:
    """What is there now. Raises KubeError."""
    policies = [each for each in await _all(cluster, POLICY, namespace) if _ours(each)]
    names = {each["metadata"]["name"] for each in policies}
    snapshots = await _all(cluster, SNAPSHOT, namespace)
    return Leftovers(
        pods=_names(await _all(cluster, POD, namespace, LINEAGE)),
        triggers=_names(await _all(cluster, TRIGGER, namespace, LINEAGE)),
        snapshots=_names([each for each in snapshots if _has(each, LINEAGE) or (each.get("spec") or {}).get("policyName") in names]),
        secrets=_names(await _all(cluster, SECRET, namespace, PART)),
        policies=_names(policies),
        storages=tuple(sorted({str(each["spec"]["storageConfigName"]) for each in policies if each["spec"].get("storageConfigName")})),
    )


async def remove(cluster: Cluster, namespace: str, there: Leftovers, tell: Callable[[str], None], seconds: float = GONE_SECONDS) -> None:
    """Remove all of it. Raises Stuck, with the policies still there, and KubeError; it may be called again after either."""
    if there.pods:
        raise Stuck(f"Servers that can be paused still run ({', '.join(there.pods)}): stop them first.")
    await _delete(cluster, namespace, TRIGGER, there.triggers, tell)
    await _delete(cluster, namespace, SNAPSHOT, there.snapshots, tell)
    end = time.monotonic() + seconds
    while rest := set(there.snapshots) & set(_names(await _all(cluster, SNAPSHOT, namespace))):
        if time.monotonic() > end:
            raise Stuck(
                f"{len(rest)} deleted snapshots are not gone after {seconds:.0f} s (the first: {min(rest)}); the policies stay, "
                "since GKE finds the files through them: look at the events, and call this again later."
            )
        await asyncio.sleep(LOOK)
    await _delete(cluster, namespace, SECRET, there.secrets, tell)
    await _delete(cluster, namespace, POLICY, there.policies, tell)


async def _delete(cluster: Cluster, namespace: str, kind: Kind, names: tuple[str, ...], tell: Callable[[str], None]) -> None:
    for name in names:
        await cluster.delete(kind, namespace, name)
        tell(f"deleted {kind.name} {name}")


async def _all(cluster: Cluster, kind: Kind, namespace: str, label: str = "") -> list[Object]:
    try:
        found, _version = await cluster.list(kind, namespace, label)
    except NotFound:
        return []  # a cluster without the kind has none of them
    return found


def _ours(policy: Object) -> bool:
    return POLICY_LABEL in ((policy["spec"].get("selector") or {}).get("matchLabels") or {})


def _has(each: Object, label: str) -> bool:
    return label in (each["metadata"].get("labels") or {})


def _names(objects: list[Object]) -> tuple[str, ...]:
    return tuple(sorted(each["metadata"]["name"] for each in objects))
