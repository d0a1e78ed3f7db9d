"""The doctor about the bucket: each setting that costs money, time or secrets is found, and what cannot be asked is unknown."""

from __future__ import annotations

import asyncio
import copy
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

from gke_workspaces_spawner.kube.doctor import bucket as module
from gke_workspaces_spawner.kube.doctor.bucket import AGENT, FINALIZER, Bucket, check_bucket
from gke_workspaces_spawner.kube.doctor.findings import State, Unread
from tests.fakes.cluster import well

FAULT, WARNING, UNKNOWN = State.FAULT, State.WARNING, State.UNKNOWN
GOOGLES = {
    "roles/storage.objectUser": frozenset({f"serviceAccount:service-1{FINALIZER}"}),
    "roles/storage.admin": frozenset({f"serviceAccount:service-1{AGENT}"}),
    "roles/storage.legacyBucketOwner": frozenset({"projectOwner:p", "projectEditor:p"}),
}
GOOD = Bucket(
    "hub-snapshots",
    {
        "location": "US-CENTRAL1",
        "hierarchicalNamespace": {"enabled": True},
        "softDeletePolicy": {"retentionDurationSeconds": "0"},
        "lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": 60}}]},
        "iamConfiguration": {"publicAccessPrevention": "enforced", "uniformBucketLevelAccess": {"enabled": True}},
    },
    GOOGLES,
)


def bad(bucket: Bucket | Unread, **kept: float) -> dict[str, State]:
    worst: dict[str, State] = {}
    for one in check_bucket(bucket, well(), **kept):
        if one.state is not State.OK:
            assert one.why
            assert one.mend
            worst[one.check] = min(one.state, worst.get(one.check, one.state), key=list(State).index)
    return worst


def having(name: str, value: Any) -> Bucket:
    settings = copy.deepcopy(GOOD.settings)
    if value is None:
        del settings[name]
    else:
        settings[name] = value
    return replace(GOOD, settings=settings)


def granting(role: str, *members: str) -> Bucket:
    return replace(GOOD, grants={**GOOGLES, role: frozenset(members)})


def rule(**condition: Any) -> dict[str, Any]:
    return {"rule": [{"action": {"type": "Delete"}, "condition": condition}]}


def test_nothing_is_said_of_a_bucket_that_is_well():
    assert bad(GOOD) == {}


@pytest.mark.parametrize(
    ("bucket", "check", "state"),
    [
        (having("location", "EUROPE-WEST1"), "bucket-region", FAULT),
        (having("location", "US"), "bucket-region", FAULT),
        (having("location", None), "bucket-region", UNKNOWN),
        (having("hierarchicalNamespace", None), "bucket-hierarchical", FAULT),
        (having("softDeletePolicy", {"retentionDurationSeconds": "604800"}), "bucket-soft-delete", WARNING),
        (having("softDeletePolicy", None), "bucket-soft-delete", UNKNOWN),
        (having("lifecycle", None), "bucket-lifecycle", WARNING),
        (having("lifecycle", rule(age=7)), "bucket-lifecycle", FAULT),
        (having("lifecycle", rule(age=14)), "bucket-lifecycle", FAULT),
        (having("lifecycle", rule(numNewerVersions=3)), "bucket-lifecycle", WARNING),
        (having("lifecycle", {"rule": [{"action": {"type": "SetStorageClass"}, "condition": {"age": 1}}]}), "bucket-lifecycle", WARNING),
        (
            having("iamConfiguration", {"publicAccessPrevention": "inherited", "uniformBucketLevelAccess": {"enabled": True}}),
            "bucket-public",
            FAULT,
        ),
        (having("iamConfiguration", {"publicAccessPrevention": "enforced"}), "bucket-uniform", FAULT),
        (granting("roles/storage.objectViewer", "allUsers"), "bucket-readers", FAULT),
        (granting("roles/storage.objectViewer", "user:eve@example.org"), "bucket-readers", WARNING),
        (granting("roles/storage.objectUser"), "bucket-readers", WARNING),
        (granting("roles/storage.admin"), "bucket-readers", WARNING),
        (replace(GOOD, grants=Unread("Who reads it could not be asked.")), "bucket-readers", UNKNOWN),
        (Unread("There is no bucket.", absent=True), "bucket", FAULT),
        (Unread("Not asked."), "bucket", UNKNOWN),
    ],
)
def test_each_setting_of_the_bucket_is_found(bucket: Bucket | Unread, check: str, state: State):
    assert bad(bucket) == {check: state}


def test_a_bucket_that_says_nothing_of_access_is_unknown():
    assert bad(having("iamConfiguration", None)) == {"bucket-public": UNKNOWN, "bucket-uniform": UNKNOWN}


def test_a_lifecycle_rule_is_measured_by_what_the_hub_keeps():
    assert bad(having("lifecycle", rule(age=60)), kept_days=90) == {"bucket-lifecycle": FAULT}


def test_without_nodes_the_region_is_unknown():
    (told,) = (one for one in check_bucket(GOOD, replace(well(), nodes=[])) if one.check == "bucket-region")
    assert told.state is UNKNOWN


async def test_without_the_client_of_cloud_storage_nothing_is_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "google.cloud.storage", None)
    monkeypatch.setitem(sys.modules, "google.cloud", None)
    answer = await module.read("hub-snapshots")
    assert isinstance(answer, Unread)
    assert "not installed" in answer.sentence


async def test_storage_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch):
    end = threading.Event()
    monkeypatch.setattr(module, "_read", lambda _name: end.wait(60))
    monkeypatch.setattr(module, "ALL_SECONDS", 0.01)
    try:
        answer = await asyncio.wait_for(module.read("hub-snapshots"), 5)
    finally:
        end.set()
    assert isinstance(answer, Unread)
    assert "did not answer" in answer.sentence
    for thread in threading.enumerate():
        if thread.name == "bucket":
            thread.join(5)
