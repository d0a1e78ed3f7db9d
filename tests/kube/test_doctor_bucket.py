"""The doctor reads a bucket's settings and grants with Google's own client; what is refused or absent is said, never raised."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gke_workspaces_spawner.kube.doctor import State
from gke_workspaces_spawner.kube.doctor.bucket import AGENT, FINALIZER, Bucket, check_bucket, read
from gke_workspaces_spawner.kube.doctor.findings import Unread
from tests.fakes.buckets import Buckets, buckets
from tests.fakes.cluster import well

NAME = "hub-snapshots"


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Buckets]:
    """Object storage with one bucket that is as it should be."""
    with buckets() as known:
        known.settings[NAME] = {
            "location": "US-CENTRAL1",
            "hierarchicalNamespace": {"enabled": True},
            "softDeletePolicy": {"retentionDurationSeconds": "0"},
            "lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": 60}}]},
            "iamConfiguration": {"publicAccessPrevention": "enforced", "uniformBucketLevelAccess": {"enabled": True}},
        }
        known.grants[NAME] = [
            {"role": "roles/storage.objectUser", "members": [f"serviceAccount:service-1{FINALIZER}"]},
            {"role": "roles/storage.admin", "members": [f"serviceAccount:service-1{AGENT}"]},
        ]
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", known.url)
        yield known


async def bad() -> dict[str, State]:
    return {one.check: one.state for one in check_bucket(await read(NAME), well()) if one.state is not State.OK}


async def test_a_bucket_that_is_well_is_read_as_such(storage: Buckets) -> None:
    assert await bad() == {}


async def test_each_fault_of_a_bucket_is_read(storage: Buckets) -> None:
    storage.settings[NAME] = {"location": "EU", "softDeletePolicy": {"retentionDurationSeconds": "604800"}, "iamConfiguration": {}}
    storage.grants[NAME].append({"role": "roles/storage.objectViewer", "members": ["allUsers"]})
    assert await bad() == {
        "bucket-region": State.FAULT,
        "bucket-hierarchical": State.FAULT,
        "bucket-soft-delete": State.WARNING,
        "bucket-lifecycle": State.WARNING,
        "bucket-public": State.FAULT,
        "bucket-uniform": State.FAULT,
        "bucket-readers": State.FAULT,
    }


async def test_a_bucket_that_is_not_there_is_a_fault(storage: Buckets) -> None:
    storage.settings.clear()
    assert await bad() == {"bucket": State.FAULT}


async def test_what_may_not_be_read_is_unknown(storage: Buckets) -> None:
    storage.refused = {"iam"}
    answer = await read(NAME)
    assert isinstance(answer, Bucket)
    assert await bad() == {"bucket-readers": State.UNKNOWN}
    storage.refused = {NAME}
    answer = await read(NAME)
    assert isinstance(answer, Unread)
    assert "may not look" in answer.sentence


async def test_storage_that_is_away_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    with buckets() as known:
        url = known.url
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    assert await bad() == {"bucket": State.UNKNOWN}
