"""Who else can reach the memory of servers, as far as RBAC says: triggers, Secrets, a way into a pod. Pure functions.

Roles that Google's IAM grants are not in RBAC and cannot be listed here; each finding says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..client import SNAPSHOT_GROUP, Object
from .findings import Finding, State, Unread, found, unread
from .seen import Right, Roles, Seen
from .snapshots import guarded

ASKED: dict[str, tuple[str, tuple[Right, ...]]] = {
    "others-triggers": (
        "create triggers or change policies",
        (
            Right("create", SNAPSHOT_GROUP, "podsnapshotmanualtriggers"),
            *(Right(verb, SNAPSHOT_GROUP, "podsnapshotpolicies") for verb in ("create", "update", "patch")),
        ),
    ),
    "others-secrets": ("read Secrets", tuple(Right(verb, "", "secrets") for verb in ("get", "list", "watch"))),
    "others-exec": (
        "get into pods",
        (
            *(Right(verb, "", f"pods/{how}") for verb in ("create", "get") for how in ("exec", "attach")),
            *(Right(verb, "", "pods/ephemeralcontainers") for verb in ("update", "patch")),
        ),
    ),
}
CROWDS = frozenset({"system:authenticated", "system:unauthenticated", "system:anonymous", "system:serviceaccounts"})
"""Groups and users that anybody is in."""
GOOGLES = ("kube-system", "gke-managed-", "gke-gmp-system", "gmp-system", "gke-system")
"""Beginnings of the names of namespaces whose accounts are GKE's own."""
IAM = "Roles of Google's IAM (roles/container.developer and wider) count too and are not seen here."


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """Somebody who has a right, and by which binding."""

    kind: str
    name: str
    namespace: str
    via: str

    def __str__(self) -> str:
        who = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {who} ({self.via})"


def check_others(seen: Seen) -> Iterator[Finding]:
    """All of them."""
    for check, (words, asked) in ASKED.items():
        if isinstance(seen.roles, Unread):
            yield unread(check, seen.roles, namespace=seen.namespace)
            continue
        yield _judge(check, words, holders(seen.roles, asked, seen.namespace), seen)


def _judge(check: str, words: str, who: list[Holder], seen: Seen) -> Finding:
    others = [each for each in who if not _expected(each, seen)]
    if not others:
        return found(check, State.OK, f"By RBAC nobody but the hub, GKE and the cluster's administrators may {words} here. {IAM}")
    said = f"These may {words} here: {', '.join(str(each) for each in others)}."
    if check == "others-triggers" and guarded(seen):
        return found(check, State.OK, f"{said} The admission policy refuses it.")
    crowd = any(_anybody(each, seen.namespace) for each in others)
    return found(check, State.FAULT if crowd else State.WARNING, f"{said} {IAM}", namespace=seen.namespace)


def holders(roles: Roles, asked: Iterable[Right], namespace: str) -> list[Holder]:
    """Who has one of the rights in the namespace, each once."""
    asked = list(asked)
    rules = {("Role", each["metadata"]["name"]): each.get("rules") or () for each in roles.roles}
    rules |= {("ClusterRole", each["metadata"]["name"]): each.get("rules") or () for each in roles.cluster_roles}
    who: dict[tuple[str, str, str], Holder] = {}
    for kind, bindings in (("RoleBinding", roles.bindings), ("ClusterRoleBinding", roles.cluster_bindings)):
        for binding in bindings:
            reference = binding.get("roleRef") or {}
            granted = rules.get((str(reference.get("kind")), str(reference.get("name"))), ())
            if not any(_grants(rule, right) for rule in granted for right in asked):
                continue
            for subject in binding.get("subjects") or ():
                inside = str(subject.get("namespace") or namespace) if subject.get("kind") == "ServiceAccount" else ""
                key = (str(subject.get("kind")), str(subject.get("name")), inside)
                who.setdefault(key, Holder(*key, via=f"{kind} {binding['metadata']['name']}"))
    return sorted(who.values())


def _grants(rule: Object, right: Right) -> bool:
    """Whether a rule gives the right over everything of its kind; one for named objects alone does not."""
    if rule.get("resourceNames"):
        return False
    _, _, part = right.resource.partition("/")
    resources = {right.resource, "*", f"*/{part}" if part else "*"}
    return (
        bool({"*", right.verb} & set(rule.get("verbs") or ()))
        and bool({"*", right.group} & set(rule.get("apiGroups") or ()))
        and bool(resources & set(rule.get("resources") or ()))
    )


def _expected(each: Holder, seen: Seen) -> bool:
    """The hub itself, the cluster's own programs, and administrators."""
    if _anybody(each, seen.namespace):
        return False
    if each.kind == "ServiceAccount":
        return (each.namespace, each.name) == (seen.namespace, seen.account) or each.namespace.startswith(GOOGLES)
    return each.name.startswith("system:")


def _anybody(each: Holder, namespace: str) -> bool:
    """Whether users' own code has it: a group that everybody is in, or the account that servers run as when nothing is set."""
    if each.kind == "ServiceAccount":
        return (each.namespace, each.name) == (namespace, "default")
    return each.name in CROWDS or each.name == f"system:serviceaccounts:{namespace}"
