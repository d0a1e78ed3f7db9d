"""What is read of a cluster: each part an answer, or why it could not be read. Nothing is written; reviews are asked, not stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from ..client import POLICY, SNAPSHOT, STORAGE, TRIGGER, Cluster, Kind, Object
from ..errors import Forbidden, KubeError, NotFound
from ..facts import name
from .findings import Unread, data, one_line

T = TypeVar("T")

RBAC, ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
ROLE = Kind("Role", "roles", RBAC)
ROLE_BINDING = Kind("RoleBinding", "rolebindings", RBAC)
CLUSTER_ROLE = Kind("ClusterRole", "clusterroles", RBAC, namespaced=False)
CLUSTER_ROLE_BINDING = Kind("ClusterRoleBinding", "clusterrolebindings", RBAC, namespaced=False)
ACCOUNT = Kind("ServiceAccount", "serviceaccounts")
NODE = Kind("Node", "nodes", namespaced=False)
RUNTIME_CLASS = Kind("RuntimeClass", "runtimeclasses", "node.k8s.io", namespaced=False)
ADMISSION_POLICY = Kind("ValidatingAdmissionPolicy", "validatingadmissionpolicies", ADMISSION, namespaced=False)
ADMISSION_BINDING = Kind("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", ADMISSION, namespaced=False)
REVIEW = Kind("SubjectAccessReview", "subjectaccessreviews", "authorization.k8s.io", namespaced=False)
SELF_REVIEW = Kind("SelfSubjectAccessReview", "selfsubjectaccessreviews", "authorization.k8s.io", namespaced=False)
WHO_AM_I = Kind("SelfSubjectReview", "selfsubjectreviews", "authentication.k8s.io", namespaced=False)

SNAPSHOT_KINDS = (TRIGGER, SNAPSHOT, POLICY, STORAGE)
AT_ONCE = 8
"""Calls under way at a time."""
HUB_ROLE = "gke-workspaces-hub"
"""Name of the RoleBinding of helm-values."""
DEFAULT_ACCOUNT = "hub"
"""What Zero to JupyterHub calls the hub's account."""


class NoCluster(Exception):
    """There is no cluster to look at; the message is one sentence with the way out."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One thing that an account may do, or not."""

    verb: str
    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"


@dataclass(frozen=True, slots=True)
class Roles:
    """Who is given what, as far as RBAC knows."""

    roles: list[Object]
    bindings: list[Object]
    cluster_roles: list[Object]
    cluster_bindings: list[Object]


@dataclass(frozen=True, slots=True)
class Seen:
    """All that was read of the cluster."""

    namespace: str
    account: str
    """Name of the hub's service account."""
    version: str
    """``gitVersion`` of the API server."""
    kinds: dict[str, bool]
    """Plural -> served, for the kinds of Pod Snapshots."""
    runtime_class: Object | Unread | None
    accounts: list[Object] | Unread
    needed: dict[Right, bool] | Unread
    """Rights of the hub's account in its namespace."""
    optional: dict[Right, bool] | Unread
    """Rights of the hub's account in the whole cluster."""
    policies: list[Object] | Unread
    storages: list[Object] | Unread
    admission: list[Object] | Unread
    admission_bindings: list[Object] | Unread
    nodes: list[Object] | Unread
    roles: Roles | Unread

    @property
    def user(self) -> str:
        """The hub's account as the API server names it."""
        return user_of(self.namespace, self.account)


def user_of(namespace: str, account: str) -> str:
    """A service account as the API server names it."""
    return f"system:serviceaccount:{namespace}:{account}"


def rights(which: str) -> list[Right]:
    """The rights of ``rights.toml``: ``needed`` or ``optional``."""
    return [
        Right(verb, group, resource)
        for row in data("rights")[which]
        for group in row["groups"]
        for resource in row["resources"]
        for verb in row["verbs"]
    ]


async def look(cluster: Cluster, namespace: str, account: str | None) -> Seen:
    """Read all of it, many calls at once. Raises NoCluster when the API server does not answer, or does not know who asks."""
    try:
        version = str((await cluster.version()).get("gitVersion") or "")
    except KubeError as error:
        raise NoCluster(_no_cluster(error)) from error
    few = asyncio.Semaphore(AT_ONCE)

    async def limited(call: Awaitable[T]) -> T | Unread:
        async with few:
            return await _asked(call)

    async def listed(kind: Kind, inside: str | None = None) -> list[Object] | Unread:
        answer = await limited(cluster.list(kind, inside))
        return answer if isinstance(answer, Unread) else answer[0]

    served = asyncio.gather(*(limited(cluster.serves(kind)) for kind in SNAPSHOT_KINDS))
    bindings = await listed(ROLE_BINDING, namespace)
    if account is None:
        account = account_of(bindings, namespace)
    reviews = _Reviews(cluster, few, namespace, account)
    lists = asyncio.gather(
        *(listed(kind, namespace) for kind in (ACCOUNT, ROLE, POLICY)),
        *(listed(kind) for kind in (STORAGE, ADMISSION_POLICY, ADMISSION_BINDING, NODE, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)),
    )
    runtime = await limited(cluster.get(RUNTIME_CLASS, None, name("runtime_class")))
    accounts, roles, policies, storages, admission, admission_bindings, nodes, cluster_roles, cluster_bindings = await lists
    await reviews.prepare()
    needed, optional = await asyncio.gather(reviews.of(rights("needed"), namespace), reviews.of(rights("optional"), None))
    return Seen(
        namespace=namespace,
        account=account,
        version=version,
        kinds={kind.plural: answer is True for kind, answer in zip(SNAPSHOT_KINDS, await served, strict=True)},
        runtime_class=runtime,
        accounts=accounts,
        needed=needed,
        optional=optional,
        policies=policies,
        storages=storages,
        admission=admission,
        admission_bindings=admission_bindings,
        nodes=nodes,
        roles=_roles(roles, bindings, cluster_roles, cluster_bindings),
    )


def account_of(bindings: list[Object] | Unread, namespace: str) -> str:
    """The hub's account by the RoleBinding of helm-values; else what Zero to JupyterHub calls it."""
    for binding in () if isinstance(bindings, Unread) else bindings:
        if (binding.get("roleRef") or {}).get("name") == HUB_ROLE:
            for subject in binding.get("subjects") or ():
                if subject.get("kind") == "ServiceAccount" and subject.get("namespace", namespace) == namespace:
                    return str(subject["name"])
    return DEFAULT_ACCOUNT


def _roles(*lists: list[Object] | Unread) -> Roles | Unread:
    known: list[list[Object]] = []
    for each in lists:
        if isinstance(each, Unread):
            return each
        known.append(each)
    return Roles(*known)


class _Reviews:
    """Asks what the hub's account may do: for itself when it is us, else for it."""

    def __init__(self, cluster: Cluster, few: asyncio.Semaphore, namespace: str, account: str) -> None:
        self._cluster = cluster
        self._few = few
        self._user = user_of(namespace, account)
        self._groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        self._me = False

    async def prepare(self) -> None:
        """Find out who we are; what does not tell is somebody else."""
        answer = await _asked(self._cluster.create(WHO_AM_I, None, {"apiVersion": WHO_AM_I.api_version, "kind": WHO_AM_I.name}))
        if not isinstance(answer, Unread):
            self._me = ((answer.get("status") or {}).get("userInfo") or {}).get("username") == self._user

    async def of(self, asked: Iterable[Right], namespace: str | None) -> dict[Right, bool] | Unread:
        asked = list(asked)
        answers = await asyncio.gather(*(self._one(right, namespace) for right in asked))
        granted: dict[Right, bool] = {}
        for right, answer in zip(asked, answers, strict=True):
            if isinstance(answer, Unread):
                return answer
            granted[right] = answer
        return granted

    async def _one(self, right: Right, namespace: str | None) -> bool | Unread:
        attributes = {"verb": right.verb, "group": right.group, "resource": right.resource}
        if namespace is not None:
            attributes["namespace"] = namespace
        kind = SELF_REVIEW if self._me else REVIEW
        spec: Object = {"resourceAttributes": attributes}
        if not self._me:
            spec |= {"user": self._user, "groups": self._groups}
        async with self._few:
            answer = await _asked(self._cluster.create(kind, None, {"apiVersion": kind.api_version, "kind": kind.name, "spec": spec}))
        if isinstance(answer, Unread):
            return answer
        return bool((answer.get("status") or {}).get("allowed"))


async def _asked(call: Awaitable[T]) -> T | Unread:
    try:
        return await call
    except NotFound:
        return Unread("The API server has no such kind.", absent=True)
    except Forbidden as error:
        return Unread(f"Your account may not ask that ({one_line(error.message)}).")
    except KubeError as error:
        return Unread(f"The API server did not say: {one_line(error)}.")


def _no_cluster(error: KubeError) -> str:
    if error.status == 401:
        return "The API server does not know who asks (401): log in again, or choose another context with --context."
    if error.status:
        return f"The API server answered its own version with an error: {one_line(error)}."
    return f"No cluster can be reached: {one_line(error.message)}. Is it up, and is this the right --kubeconfig and --context?"
