"""The whole examination: read, then judge."""

from __future__ import annotations

from pathlib import Path

from .bucket import Bucket, check_bucket, read
from .cluster import check_cluster
from .connect import connected
from .findings import Finding, Unread, data, one_line
from .guesses import check_guesses
from .hub import check_values
from .others import check_others
from .seen import Seen, look
from .snapshots import bucket_name, check_snapshots
from .values import Deployment, Unreadable, parse

DAY = 86400


async def examine(kubeconfig: Path | None, context: str | None, namespace: str | None, values: Path | None) -> tuple[str, list[Finding]]:
    """(which cluster and namespace, the findings in the order of ``checks.toml``).

    Raises NoCluster where there is no cluster to look at.
    """
    deployment = read_values(values)
    account = None if isinstance(deployment, Unread) else deployment.service_account
    async with connected(kubeconfig, context) as (cluster, place):
        seen = await look(cluster, namespace or place.namespace, account)
    name = bucket_name(seen)
    bucket = await read(name) if name else Unread("Which bucket saved states go to could not be read from the cluster.")
    return f"{place.url}, namespace {seen.namespace}", judge(seen, bucket, deployment)


def judge(seen: Seen, bucket: Bucket | Unread, deployment: Deployment | Unread) -> list[Finding]:
    """All findings over what was read, in the order of ``checks.toml``."""
    findings = [
        *check_cluster(seen),
        *check_snapshots(seen),
        *check_others(seen),
        *check_bucket(bucket, seen, **_kept(deployment)),
        *check_values(deployment, seen.namespace),
        *check_guesses(),
    ]
    order = {check: number for number, check in enumerate(data("checks"))}
    return sorted(findings, key=lambda one: order[one.check.partition("/")[0]])


def _kept(deployment: Deployment | Unread) -> dict[str, float]:
    """How many days the hub keeps saved states, where the values say."""
    seconds = None if isinstance(deployment, Unread) else deployment.traits.get("snapshot_expires")
    return {"kept_days": seconds / DAY} if isinstance(seconds, (int, float)) else {}


def read_values(file: Path | None) -> Deployment | Unread:
    """The hub's settings, or why they could not be read."""
    if file is None:
        return Unread("No values of the hub were given.")
    try:
        return parse(file.name, file.read_text(encoding="utf-8"))
    except Unreadable as error:
        return Unread(f"{file} cannot be read as values: {error}")
    except (OSError, ValueError) as error:
        return Unread(f"{file} cannot be read: {one_line(error)}.")
