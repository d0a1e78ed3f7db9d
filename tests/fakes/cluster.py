"""A cluster in memory for the doctor: what helm-values ships, Ready, on GKE; and a client of it that answers as the API server would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gke_workspaces_spawner.kube.client import Kind
from gke_workspaces_spawner.kube.doctor.seen import (
    ACCOUNT,
    ADMISSION_BINDING,
    ADMISSION_POLICY,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    NODE,
    REVIEW,
    ROLE,
    ROLE_BINDING,
    RUNTIME_CLASS,
    SELF_REVIEW,
    SNAPSHOT_KINDS,
    WHO_AM_I,
    Roles,
    Seen,
    rights,
)
from gke_workspaces_spawner.kube.errors import KubeError, of_status

HELM_VALUES = Path(__file__).resolve().parents[2] / "helm-values"
NAMESPACE = "hub"
VERSION = "v1.35.4-gke.1000000"
READY = {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}]}

Object = dict[str, Any]


def shipped() -> Iterator[Object]:
    """Every object of helm-values, as somebody applies it in namespace ``hub``."""
    for file in sorted(HELM_VALUES.rglob("*.yaml")):
        for each in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if each["kind"].startswith("PodSnapshot"):
                each["status"] = {"conditions": [dict(one) for one in READY["conditions"]]}
            yield each


def node(name: str = "n1") -> Object:
    """A node with GKE Sandbox."""
    labels = {
        "sandbox.gke.io/runtime": "gvisor",
        "cloud.google.com/gke-nodepool": "workspaces",
        "node.kubernetes.io/instance-type": "n2-standard-8",
        "topology.kubernetes.io/region": "us-central1",
    }
    return {"metadata": {"name": name, "labels": labels}, "status": {"nodeInfo": {"kubeletVersion": "v1.35.4-gke.1000000"}}}


def of_kind(kind: str) -> list[Object]:
    return [each for each in shipped() if each["kind"] == kind]


def well() -> Seen:
    """A cluster in which nothing is wrong."""
    return Seen(
        namespace=NAMESPACE,
        account="hub",
        version=VERSION,
        kinds={kind.plural: True for kind in SNAPSHOT_KINDS},
        runtime_class={"metadata": {"name": "gvisor"}, "handler": "gvisor"},
        accounts=[{"metadata": {"name": "hub"}}, {"metadata": {"name": "default"}}],
        needed=dict.fromkeys(rights("needed"), True),
        optional=dict.fromkeys(rights("optional"), True),
        policies=of_kind("PodSnapshotPolicy"),
        storages=of_kind("PodSnapshotStorageConfig"),
        admission=of_kind("ValidatingAdmissionPolicy"),
        admission_bindings=of_kind("ValidatingAdmissionPolicyBinding"),
        nodes=[node()],
        roles=Roles(of_kind("Role"), of_kind("RoleBinding"), of_kind("ClusterRole"), of_kind("ClusterRoleBinding")),
    )


class FakeCluster:
    """Answers calls from ``objects``; ``errors`` (plural -> status) are raised instead."""

    def __init__(self) -> None:
        self.objects: dict[str, list[Object]] = {}
        for each in shipped():
            self.objects.setdefault(_plural(each["kind"]), []).append(each)
        self.objects |= {ACCOUNT.plural: [{"metadata": {"name": "hub"}}], NODE.plural: [node()]}
        self.objects[RUNTIME_CLASS.plural] = [{"metadata": {"name": "gvisor"}}]
        self.errors: dict[str, int] = {}
        self.me = "admin@example.org"
        self.asked: list[tuple[str, Object]] = []
        """Reviews: (plural, spec)."""
        self.deleted: list[tuple[str, str]] = []
        self.stuck: set[str] = set()
        """Names of what is deleted and does not go."""

    async def version(self) -> Object:
        self._fail("version")
        return {"gitVersion": VERSION}

    async def serves(self, kind: Kind) -> bool:
        return kind.plural not in self.errors

    async def list(self, kind: Kind, namespace: str | None, labels: str = "") -> tuple[list[Object], str]:
        self._fail(kind.plural)
        there = self.objects.get(kind.plural, [])
        return [each for each in there if not labels or labels in (each["metadata"].get("labels") or {})], "1"

    async def delete(self, kind: Kind, namespace: str | None, name: str) -> None:
        self._fail(kind.plural)
        self.deleted.append((kind.plural, name))
        if name not in self.stuck:
            self.objects[kind.plural] = [each for each in self.objects[kind.plural] if each["metadata"]["name"] != name]

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        self._fail(kind.plural)
        return next((each for each in self.objects.get(kind.plural, ()) if each["metadata"]["name"] == name), None)

    async def create(self, kind: Kind, namespace: str | None, body: Object) -> Object:
        self._fail(kind.plural)
        if kind == WHO_AM_I:
            return {"status": {"userInfo": {"username": self.me}}}
        assert kind in (REVIEW, SELF_REVIEW)
        self.asked.append((kind.plural, body["spec"]))
        return {"status": {"allowed": True}}

    def _fail(self, plural: str) -> None:
        if plural in self.errors:
            status = self.errors[plural]
            error: KubeError = of_status(status, f"no {plural}")
            raise error


def _plural(kind: str) -> str:
    kinds = (*SNAPSHOT_KINDS, ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ADMISSION_POLICY, ADMISSION_BINDING)
    return next(each.plural for each in kinds if each.name == kind)
