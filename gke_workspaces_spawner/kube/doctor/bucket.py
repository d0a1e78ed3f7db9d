"""Checks of the bucket: read with google-cloud-storage where it is installed, judged by pure functions over plain data."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ..client import Object
from .findings import Finding, State, Unread, found, one_line, unread
from .seen import Seen
from .snapshots import bucket_name

T = TypeVar("T")
CALL_SECONDS = 10.0
ALL_SECONDS = 40.0
"""For finding credentials and all calls; what takes longer is given up and asked no more."""
REGION_LABEL = "topology.kubernetes.io/region"
DAY = 86400
KEPT_DAYS = 14
"""Days that the hub keeps saved states when nothing else is set (``snapshot_expires``)."""
FINALIZER = "@container-engine-robot.iam.gserviceaccount.com"
AGENT = "@gcp-sa-gkenode.iam.gserviceaccount.com"
"""Ends of the names of GKE's own accounts: the one that deletes, and the one that writes and reads."""
CREATED_WITH = "--uniform-bucket-level-access --public-access-prevention --enable-hierarchical-namespace --soft-delete-duration=0"
PUBLIC = frozenset({"allUsers", "allAuthenticatedUsers"})
WRITES = frozenset({"roles/storage.admin", "roles/storage.objectUser", "roles/storage.objectAdmin"})


@dataclass(frozen=True, slots=True)
class Bucket:
    """What Cloud Storage says of a bucket."""

    name: str
    settings: Object
    """The bucket resource of the JSON API."""
    grants: dict[str, frozenset[str]] | Unread
    """Role -> members, of the bucket's own IAM policy."""


async def read(name: str) -> Bucket | Unread:
    """The bucket as it is, within :data:`ALL_SECONDS`."""
    try:
        return await asyncio.wait_for(_in_thread(lambda: _read(name)), ALL_SECONDS)
    except asyncio.TimeoutError:
        return Unread(f"Cloud Storage did not answer within {ALL_SECONDS:.0f} s.")


def _read(name: str) -> Bucket | Unread:
    try:
        from google.api_core.exceptions import Forbidden, GoogleAPIError, NotFound
        from google.auth.exceptions import GoogleAuthError
        from google.cloud import storage
    except ImportError:
        return Unread("google-cloud-storage is not installed: the bucket was not asked.")
    # urllib3 and requests raise errors of their own when nobody answers, all of them OSErrors
    try:
        client = storage.Client(project="none")
        bucket = client.get_bucket(name, timeout=CALL_SECONDS, retry=None)
    except NotFound:
        return Unread(f"There is no bucket {name}.", absent=True)
    except Forbidden:
        return Unread(f"Your Google account may not look at the bucket {name}.")
    except (GoogleAPIError, GoogleAuthError, OSError, ValueError) as error:
        return Unread(f"The bucket {name} could not be asked: {one_line(error)}.")
    grants: dict[str, frozenset[str]] | Unread
    try:
        policy = bucket.get_iam_policy(requested_policy_version=3, timeout=CALL_SECONDS, retry=None)
        grants = {}
        for binding in policy.bindings:
            role = str(binding["role"])
            grants[role] = grants.get(role, frozenset()) | {str(member) for member in binding.get("members") or ()}
    except (GoogleAPIError, GoogleAuthError, OSError, ValueError) as error:
        grants = Unread(f"Who reads the bucket {name} could not be asked: {one_line(error)}.")
    return Bucket(name, dict(bucket._properties), grants)


async def _in_thread(call: Callable[[], T]) -> T:
    """Run it in a thread that keeps no process from ending: finding credentials may wait for a metadata server that is not there."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(act: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            act(value)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], Any] = (future.set_result, call())
        except BaseException as error:  # noqa: BLE001 - handed to who waits, whatever it is
            outcome = (future.set_exception, error)
        try:
            loop.call_soon_threadsafe(tell, *outcome)
        except RuntimeError:
            return  # nobody waits any more and the loop is closed

    threading.Thread(target=run, daemon=True, name="bucket").start()
    return await future


# ---------------------------------------------------------------- judging


def check_bucket(bucket: Bucket | Unread, seen: Seen, kept_days: float = KEPT_DAYS) -> Iterator[Finding]:
    """All of them; ``kept_days`` is how long the hub keeps saved states."""
    if isinstance(bucket, Unread):
        name = bucket_name(seen) or "BUCKET"
        if bucket.absent:
            make = f"gcloud storage buckets create gs://{name} --location=REGION {CREATED_WITH}"
            yield found("bucket", State.FAULT, bucket.sentence, mend=f"Name your bucket in the storage config, or make it: {make}")
        else:
            yield unread("bucket", bucket, bucket=name)
        return
    yield found("bucket", State.OK, f"Bucket {bucket.name} is there.")
    yield region(bucket, regions(seen))
    yield hierarchical(bucket)
    yield soft_delete(bucket)
    yield lifecycle(bucket, kept_days)
    yield public(bucket)
    yield uniform(bucket)
    yield from readers(bucket)


def regions(seen: Seen) -> set[str]:
    """The regions of the cluster's nodes; empty where nodes may not be read, or there are none."""
    if isinstance(seen.nodes, Unread):
        return set()
    return {labels[REGION_LABEL] for each in seen.nodes if REGION_LABEL in (labels := each["metadata"].get("labels") or {})}


def region(bucket: Bucket, nodes: set[str]) -> Finding:
    where = str(bucket.settings.get("location") or "").lower()
    if not where:
        return found("bucket-region", State.UNKNOWN, f"Cloud Storage does not say where {bucket.name} is.")
    if not nodes:
        return found("bucket-region", State.UNKNOWN, f"Bucket {bucket.name} is in {where}; where the cluster is could not be read.")
    cluster = ", ".join(sorted(nodes))
    if nodes == {where}:
        return found("bucket-region", State.OK, f"Bucket and nodes are in {where}.")
    return found("bucket-region", State.FAULT, f"Bucket {bucket.name} is in {where}, the nodes are in {cluster}.", region=sorted(nodes)[0])


def hierarchical(bucket: Bucket) -> Finding:
    if (bucket.settings.get("hierarchicalNamespace") or {}).get("enabled"):
        return found("bucket-hierarchical", State.OK, "Hierarchical namespace is on.")
    where = str(bucket.settings.get("location") or "REGION").lower()
    return found("bucket-hierarchical", State.FAULT, f"Bucket {bucket.name} has no hierarchical namespace.", region=where)


def soft_delete(bucket: Bucket) -> Finding:
    policy = bucket.settings.get("softDeletePolicy")
    if policy is None:
        what = "Cloud Storage does not say whether deleted files stay readable (soft delete)."
        return found("bucket-soft-delete", State.UNKNOWN, what, bucket=bucket.name)
    seconds = int(policy.get("retentionDurationSeconds") or 0)
    if seconds == 0:
        return found("bucket-soft-delete", State.OK, "Soft delete is off: what is deleted is gone.")
    what = f"Deleted files stay in {bucket.name} for {seconds / DAY:g} days (soft delete)."
    return found("bucket-soft-delete", State.WARNING, what, bucket=bucket.name)


def lifecycle(bucket: Bucket, kept_days: float) -> Finding:
    days = str(int(2 * kept_days) + 1)
    rules = [one for one in (bucket.settings.get("lifecycle") or {}).get("rule") or () if (one.get("action") or {}).get("type") == "Delete"]
    ages = [int(age) for one in rules if (age := (one.get("condition") or {}).get("age")) is not None]
    if any(age <= kept_days for age in ages):
        what = f"A lifecycle rule deletes files of {min(ages)} days; the hub keeps saved states for {kept_days:g}."
        return found("bucket-lifecycle", State.FAULT, what, bucket=bucket.name, days=days)
    if ages:
        return found(
            "bucket-lifecycle", State.OK, f"A lifecycle rule deletes what is older than {min(ages)} days, later than the hub does."
        )
    if rules:
        what = "Lifecycle rules delete by other things than age: see that none deletes what the hub still keeps."
        return found("bucket-lifecycle", State.WARNING, what, bucket=bucket.name, days=days)
    what = "No lifecycle rule deletes files whose saved state is gone: what GKE leaves behind stays, and is billed."
    return found("bucket-lifecycle", State.WARNING, what, bucket=bucket.name, days=days)


def public(bucket: Bucket) -> Finding:
    iam = bucket.settings.get("iamConfiguration")
    if iam is None:
        return found("bucket-public", State.UNKNOWN, "Cloud Storage does not say whether public access is prevented.", bucket=bucket.name)
    if iam.get("publicAccessPrevention") == "enforced":
        return found("bucket-public", State.OK, "Public access prevention is enforced.")
    return found("bucket-public", State.FAULT, f"Public access to {bucket.name} is not prevented by the bucket itself.", bucket=bucket.name)


def uniform(bucket: Bucket) -> Finding:
    iam = bucket.settings.get("iamConfiguration")
    if iam is None:
        return found("bucket-uniform", State.UNKNOWN, "Cloud Storage does not say whether access is uniform.", bucket=bucket.name)
    if (iam.get("uniformBucketLevelAccess") or {}).get("enabled"):
        return found("bucket-uniform", State.OK, "Access is uniform, by IAM alone.")
    return found("bucket-uniform", State.FAULT, f"Single objects of {bucket.name} can have access lists of their own.", bucket=bucket.name)


def readers(bucket: Bucket) -> Iterator[Finding]:
    if isinstance(bucket.grants, Unread):
        yield unread("bucket-readers", bucket.grants, bucket=bucket.name)
        return
    members = {member for each in bucket.grants.values() for member in each}
    if members & PUBLIC:
        yield found(
            "bucket-readers", State.FAULT, f"{', '.join(sorted(members & PUBLIC))} has a role on {bucket.name}.", bucket=bucket.name
        )
    for end, needs, does in (
        (FINALIZER, WRITES, "deletes the files of deleted saved states"),
        (AGENT, frozenset({"roles/storage.admin"}), "writes and reads saved states (federatedP4SA)"),
    ):
        if not any(member.endswith(end) for role in needs for member in bucket.grants.get(role, ())):
            role = "roles/storage.objectUser" if end == FINALIZER else "roles/storage.admin"
            kind = "container-engine-robot" if end == FINALIZER else "gcp-sa-gkenode"
            add = (
                f"gcloud storage buckets add-iam-policy-binding gs://{bucket.name} --role={role} "
                f"--member=serviceAccount:service-PROJECT_NUMBER@{kind}.iam.gserviceaccount.com"
            )
            what = f"GKE's account {kind}, which {does}, has no role for it on the bucket itself; the project may grant it."
            yield found("bucket-readers", State.WARNING, what, mend=add)
    others = sorted(member for member in members - PUBLIC if not member.endswith((FINALIZER, AGENT)) and not member.startswith("project"))
    if others:
        yield found("bucket-readers", State.WARNING, f"Others have roles on {bucket.name}: {', '.join(others)}.", bucket=bucket.name)
    elif not members & PUBLIC:
        yield found(
            "bucket-readers", State.OK, f"On {bucket.name} itself nobody but GKE and the project's owners, editors and viewers has a role."
        )
