"""What Google's objects say: every documented and reported shape of a save, a restore and a wait."""

from __future__ import annotations

from typing import Any

import pytest

from gke_workspaces_spawner.kube import facts, reading
from gke_workspaces_spawner.lifecycle.reasons import table

NAME = "0b7e6c1e-5f0e-4c42-9c0b-3d1f8f2a9a11"


def thing(*conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "uid": "u1"}, "spec": {}, "status": {"conditions": list(conditions), **status}}


def said(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


# ---------------------------------------------------------------- a save


@pytest.mark.parametrize(
    ("each", "kind", "state"),
    [
        (thing(), "PodSnapshotManualTrigger", None),
        (thing(said("Triggered", "True", "Complete")), "PodSnapshotManualTrigger", "done"),
        (thing(said("Triggered", "False", "Failed", "deadline exceeded")), "PodSnapshotManualTrigger", "failed"),
        (thing(said("Triggered", "False", "Error")), "PodSnapshotManualTrigger", "failed"),
        (thing(said("Triggered", "False", "Pending")), "PodSnapshotManualTrigger", None),
        (thing(said("Ready", "False", "AwaitingCheckpoint")), "PodSnapshot", None),
        (thing(said("Checkpoint", "True", "Succeeded")), "PodSnapshot", None),
        (thing(said("Checkpoint", "True", "Succeeded"), said("Ready", "True", "AllSnapshotsAvailable")), "PodSnapshot", "done"),
        (thing(said("Checkpoint", "False", "Failed")), "PodSnapshot", "failed"),
        (thing(said("Checkpoint", "True", "Succeeded"), said("StorageReplicated", "False", "Error")), "PodSnapshot", "failed"),
        (thing(said("Ready", "True", "AllSnapshotsAvailable"), said("StorageReplicated", "False", "Failed")), "PodSnapshot", "failed"),
        (thing(said("Ready", "False", "Deleting")), "PodSnapshot", "deleting"),
        (thing(said("Ready", "False", "TriggerFailed", "403")), "PodSnapshotPolicy", "failed"),
    ],
)
def test_every_shape_of_a_save_is_known(each: dict[str, Any], kind: str, state: str | None):
    assert reading.state(each, kind)[0] == state


def test_what_is_being_deleted_is_not_ready_whatever_its_conditions_say():
    each = thing(said("Ready", "True", "AllSnapshotsAvailable"))
    each["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z"
    assert reading.state(each, "PodSnapshot")[0] == "deleting"


@pytest.mark.parametrize("created", [NAME, {"name": NAME}])
def test_both_shapes_of_the_created_snapshot_are_read(created: Any):
    assert reading.snapshot_created(thing(snapshotCreated=created)) == NAME
    assert reading.snapshot_created(thing(snapshotCreated={})) is None


# ---------------------------------------------------------------- a restore


def pod(
    *conditions: dict[str, Any], state: dict[str, Any] | None = None, last: dict[str, Any] | None = None, phase: str = "Running"
) -> Any:
    return {
        "metadata": {"name": "jupyter-ann", "uid": "u1"},
        "spec": {"containers": [{"name": "notebook"}]},
        "status": {
            "phase": phase,
            "conditions": list(conditions),
            "containerStatuses": [{"name": "notebook", "state": state or {"running": {}}, "lastState": last or {}, "restartCount": 0}],
        },
    }


def event(reason: str, message: str, uid: str = "u1", at: str = "2026-11-30T00:00:00Z") -> dict[str, Any]:
    return {"reason": reason, "message": message, "involvedObject": {"uid": uid}, "lastTimestamp": at}


SNAPSHOTTING = "GKEPodSnapshotting"
CRASH = {"exitCode": 128, "reason": "StartError", "message": "failed to start container: OCI runtime restore failed: no such file"}


@pytest.mark.parametrize(
    ("each", "events", "outcome"),
    [
        (pod(), [], None),
        (pod(said("PodRestored", "True", "", f"restored from hub/{NAME}")), [], "restored"),
        (pod(said("PodRestored", "True", "", "restored from hub/another")), [], None),
        (pod(said("PodRestored", "True", "", f"restored from hub/{NAME}-2")), [], None),
        (pod(said("PodRestored", "False", "", NAME)), [], None),
        (pod(), [event(SNAPSHOTTING, f"Successfully restored the pod from PodSnapshot hub/{NAME}")], "restored"),
        (pod(), [event(SNAPSHOTTING, f"Successfully restored the pod from PodSnapshot hub/{NAME}", uid="u2")], None),
        (pod(), [event(SNAPSHOTTING, "no match, falling back to a cold start of pod hub/jupyter-ann")], "cold"),
        (pod(state={"terminated": CRASH}, phase="Failed"), [], "crashed"),
        (pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, last={"terminated": CRASH}), [], "crashed"),
        (pod(state={"waiting": {"reason": "RunContainerError", "message": "oci runtime restore failed"}}), [], "crashed"),
    ],
)
def test_every_outcome_of_a_restore_is_told_apart(each: Any, events: list[Any], outcome: str | None):
    assert reading.outcome(each, events, NAME)[0] == outcome


def test_a_server_whose_container_has_ended_does_not_run_also_where_another_container_does():
    assert reading.runs(pod())
    assert reading.runs(pod(phase="Pending"))
    assert not reading.runs(pod(state={"terminated": {"exitCode": 137}}))
    assert not reading.runs(pod(phase="Succeeded"))


def test_only_a_pod_that_ended_whole_and_well_was_ended_by_its_save():
    assert reading.stopped_by_save(pod(state={"terminated": {"exitCode": 0}}, phase="Succeeded"))
    assert not reading.stopped_by_save(pod(state={"terminated": {"exitCode": 0}}, phase="Failed"))
    assert not reading.stopped_by_save(pod(state={"terminated": {"exitCode": 143}}, phase="Succeeded"))
    assert not reading.stopped_by_save(pod())


# ---------------------------------------------------------------- waiting

UNSCHEDULABLE = said("PodScheduled", "False", "Unschedulable", "0/3 nodes are available: 2 Insufficient nvidia.com/gpu.")


@pytest.mark.parametrize(
    ("conditions", "events", "code"),
    [
        ((), (), "waiting_for_scheduler"),
        ((UNSCHEDULABLE,), (), "no_capacity"),
        ((), (("FailedScheduling", "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."),), "no_machine_type"),
        ((), (("FailedScheduling", "0/3 nodes: 1 node(s) had volume node affinity conflict."),), "disk_elsewhere"),
        ((), (("FailedScheduling", "Insufficient cpu"), ("TriggeredScaleUp", "pod triggered scale-up: [...]")), "waiting_for_node"),
        ((), (("TriggeredScaleUp", "..."), ("FailedScaleUp", "Node scale up in zones failed: GCE quota exceeded")), "quota_exhausted"),
        ((), (("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached"),), "no_capacity"),
        (
            (),
            (("NotTriggerScaleUp", "pod didn't trigger scale-up: 2 node(s) didn't match Pod's node affinity/selector"),),
            "no_machine_type",
        ),
    ],
)
def test_why_a_pod_waits_is_read_from_scheduler_and_autoscaler(conditions: Any, events: Any, code: str):
    spoken = [event(reason, message, at=f"2026-11-30T00:00:0{number}Z") for number, (reason, message) in enumerate(events)]
    assert reading.why_waiting(pod(*conditions, phase="Pending"), spoken)[0] == code


def test_what_was_said_of_an_earlier_pod_of_that_name_does_not_count():
    old = event("NotTriggerScaleUp", "max node group size reached", uid="u0")
    assert reading.why_waiting(pod(phase="Pending"), [old])[0] == "waiting_for_scheduler"


def test_every_code_of_an_event_has_a_sentence():
    outcomes = {reading.RESTORED, reading.COLD, reading.CRASHED}
    codes = {row["code"] for row in facts.data("events")["event"]} - outcomes
    assert codes <= set(table())
