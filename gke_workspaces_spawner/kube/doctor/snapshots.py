"""Checks of what tells GKE where and how to save: storage config, the two policies, and the admission policy. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from .. import reading
from ..client import Object
from ..facts import LINEAGE, POLICY, RESUME, STOP
from .findings import Finding, State, Unread, found, unread
from .seen import Seen

GUARDED = {"pods", "podsnapshotmanualtriggers", "podsnapshotpolicies"}
"""Resources that the admission policy has to look at."""


def check_snapshots(seen: Seen) -> Iterator[Finding]:
    """All of them."""
    yield from policies(seen)
    yield from storage(seen)
    yield admission(seen)


# ---------------------------------------------------------------- the two policies


def ours(seen: Seen) -> list[Object]:
    """The policies that a server's label can choose; none where they cannot be read."""
    return [] if isinstance(seen.policies, Unread) else [each for each in seen.policies if _chosen_by(each)]


def storage_name(seen: Seen) -> str:
    """Name of the storage config that the policies name."""
    return next((str(each["spec"].get("storageConfigName") or "") for each in ours(seen)), "")


def bucket_name(seen: Seen) -> str:
    """The bucket that saved states go to; empty when nobody says."""
    if isinstance(seen.storages, Unread):
        return ""
    return next((str(_gcs(each).get("bucket") or "") for each in seen.storages if each["metadata"]["name"] == storage_name(seen)), "")


def _chosen_by(policy: Object) -> str:
    """The value of our label that chooses this policy; empty for one that no value of it does."""
    labels = ((policy["spec"].get("selector") or {}).get("matchLabels")) or {}
    return str(labels.get(POLICY) or "")


def policies(seen: Seen) -> Iterator[Finding]:
    if isinstance(seen.policies, Unread):
        if seen.policies.absent:
            yield found("policies", State.FAULT, "There are no policies: their kind is not served.", namespace=seen.namespace)
        else:
            yield unread("policies", seen.policies, namespace=seen.namespace)
        return
    for value in (RESUME, STOP):
        mine = [each for each in seen.policies if _chosen_by(each) == value]
        if not mine:
            yield found(
                "policies",
                State.FAULT,
                f"No policy in namespace {seen.namespace} is for servers labelled {POLICY}={value}.",
                namespace=seen.namespace,
            )
            continue
        if len(mine) > 1:
            names = ", ".join(sorted(each["metadata"]["name"] for each in mine))
            yield found("policies", State.FAULT, f"Several policies are for the same servers ({names}).", namespace=seen.namespace)
        for each in mine:
            yield from _policy(each, value, seen.namespace)
    for each in seen.policies:
        selector = each["spec"].get("selector") or {}
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            what = f"Policy {each['metadata']['name']} is for every pod of the namespace, servers that can be paused too."
            yield found("policies", State.WARNING, what, namespace=seen.namespace)


def _policy(policy: Object, value: str, namespace: str) -> Iterator[Finding]:
    named, wrong = f"Policy {policy['metadata']['name']}", list(_wrong(policy["spec"], value))
    for what in wrong:
        yield found("policies", State.FAULT, f"{named} {what}.", namespace=namespace)
    state, message = reading.state(policy, "PodSnapshotPolicy")
    if state == reading.DONE:
        if not wrong:
            yield found("policies", State.OK, f"{named} is Ready.")
    elif state is None:
        yield found("policies", State.UNKNOWN, f"{named} does not say yet whether it is Ready.", namespace=namespace)
    else:
        yield found("policies", State.FAULT, f"{named} is not Ready{_reasons(policy) or f': {message}'}.", namespace=namespace)


def _wrong(spec: Object, value: str) -> Iterator[str]:
    """What speaks against a policy's own fields; each continues a sentence."""
    trigger = spec.get("triggerConfig") or {}
    if trigger.get("type") != "manual":
        yield f"has trigger type {trigger.get('type')}, not manual"
    if (trigger.get("postCheckpoint") or RESUME) != value:
        yield f"is chosen by {POLICY}={value} and does {trigger.get('postCheckpoint') or RESUME} after the save"
    if (spec.get("snapshotScope") or "whole-pod") != "whole-pod":
        yield f"has scope {spec['snapshotScope']}, which brings no processes back"
    group = (spec.get("snapshotGroupingRules") or {}).get("groupByLabelValue") or {}
    if LINEAGE not in (group.get("labels") or ()):
        yield f"does not group by {LINEAGE}: one server may be restored from another's memory"
    if (group.get("groupRetentionPolicy") or {}).get("maxSnapshotCountPerGroup") == 1:
        yield "keeps one saved state per server: a new save that fails would cost the good one"


def _reasons(each: Object) -> str:
    """Reason and message of a Ready condition that is not True, as the end of a sentence."""
    for one in reading.conditions(each):
        if one.get("type") == "Ready" and one.get("status") != "True":
            said = ": ".join(str(one[key]) for key in ("reason", "message") if one.get(key))
            return f" ({said[: reading.MESSAGE_LIMIT]})" if said else ""
    return ""


# ---------------------------------------------------------------- the storage config


def _gcs(storage: Object) -> Object:
    gcs: Object = (storage["spec"].get("snapshotStorageConfig") or {}).get("gcs") or {}
    return gcs


def storage(seen: Seen) -> Iterator[Finding]:
    wanted = storage_name(seen)
    if isinstance(seen.storages, Unread):
        if seen.storages.absent:
            yield found("storage-config", State.FAULT, "There is no storage config: its kind is not served.")
        else:
            yield unread("storage-config", seen.storages, storage=wanted)
            yield unread("token-source", seen.storages, storage=wanted)
        return
    if not wanted:
        yield found("storage-config", State.UNKNOWN, "No policy of ours names a storage config.", storage="gke-workspaces")
        return
    mine = next((each for each in seen.storages if each["metadata"]["name"] == wanted), None)
    if mine is None:
        yield found("storage-config", State.FAULT, f"The policies name the storage config {wanted}, which is not there.", storage=wanted)
        return
    yield _ready(mine, wanted)
    same = [each["metadata"]["name"] for each in seen.storages if each is not mine and _folder(each) == _folder(mine)]
    if same:
        what = f"{wanted} and {', '.join(sorted(same))} put saved states into the same folder of the bucket."
        yield found("storage-config", State.WARNING, what, storage=wanted, mend="Give each hub a path of its own in its storage config.")
    source = _gcs(mine).get("tokenSource") or "podKSA"
    if source == "federatedP4SA":
        yield found("token-source", State.OK, "GKE's own agent writes and reads the bucket (tokenSource federatedP4SA).")
    else:
        what = f"{wanted} has tokenSource {source}: each user can read everybody's memory in the bucket."
        yield found("token-source", State.FAULT, what, storage=wanted)


def _folder(storage: Object) -> tuple[str, str]:
    gcs = _gcs(storage)
    return str(gcs.get("bucket") or ""), str(gcs.get("path") or "").strip("/")


def _ready(storage: Object, wanted: str) -> Finding:
    ready = next((one.get("status") for one in reading.conditions(storage) if one.get("type") == "Ready"), None)
    where = "/".join(part for part in _folder(storage) if part)
    if ready == "True":
        return found("storage-config", State.OK, f"Storage config {wanted} is Ready; saved states go to gs://{where}.")
    if ready is None:
        return found("storage-config", State.UNKNOWN, f"Storage config {wanted} does not say whether it is Ready.", storage=wanted)
    return found("storage-config", State.FAULT, f"Storage config {wanted} is not Ready{_reasons(storage)}.", storage=wanted)


# ---------------------------------------------------------------- the admission policy


def guarded(seen: Seen) -> bool:
    """Whether the admission policy is in force for the namespace and lets our hub's account through."""
    return admission(seen).state is State.OK


def admission(seen: Seen) -> Finding:
    policies, bindings = seen.admission, seen.admission_bindings
    if isinstance(policies, Unread):
        return unread("admission", policies)
    if isinstance(bindings, Unread):
        return unread("admission", bindings)
    fitting = [each for each in policies if _guards(each)]
    if not fitting:
        return found("admission", State.FAULT, "No admission policy keeps pods from taking other people's saved states.")
    names = {each["metadata"]["name"] for each in fitting}
    bound = [each for each in bindings if each["spec"].get("policyName") in names and _selects(each, seen.namespace)]
    if not bound:
        what = f"Admission policy {', '.join(sorted(names))} is not bound to namespace {seen.namespace}."
        return found("admission", State.FAULT, what)
    denying = [each for each in bound if "Deny" in (each["spec"].get("validationActions") or ())]
    if not denying:
        return found("admission", State.FAULT, f"Binding {bound[0]['metadata']['name']} does not deny; it only warns or audits.")
    policy = next(each for each in fitting if each["metadata"]["name"] == denying[0]["spec"]["policyName"])
    named = policy["metadata"]["name"]
    if seen.user not in str(policy["spec"].get("variables") or "") + str(policy["spec"].get("validations") or ""):
        return found("admission", State.FAULT, f"Admission policy {named} does not name {seen.user}: the hub itself is refused.")
    if (policy["spec"].get("failurePolicy") or "Fail") != "Fail":
        return found("admission", State.WARNING, f"Admission policy {named} lets everything through when it fails itself (failurePolicy).")
    return found("admission", State.OK, f"Admission policy {named} is in force in namespace {seen.namespace}.")


def _guards(policy: Object) -> bool:
    rules = (policy["spec"].get("matchConstraints") or {}).get("resourceRules") or ()
    return {resource for rule in rules for resource in rule.get("resources") or ()} >= GUARDED


def _selects(binding: Object, namespace: str) -> bool:
    """Whether a binding is for the namespace, as far as the namespace's name tells."""
    selector = (binding["spec"].get("matchResources") or {}).get("namespaceSelector") or {}
    labels = {"kubernetes.io/metadata.name": namespace}
    if any(labels.get(key, value) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for rule in selector.get("matchExpressions") or ():
        known = rule.get("key") in labels and rule.get("operator") in ("In", "NotIn")
        if known and (labels[rule["key"]] in (rule.get("values") or ())) is not (rule["operator"] == "In"):
            return False
    return True
