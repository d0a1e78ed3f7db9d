"""What the engine keeps in the cluster: names, and the two kinds of Secret, one per server and one per snapshot.

Everything external derives its name from the pause's id or from the lineage, so nothing has to be remembered between two calls. A
snapshot's Secret is the manifest beside the bytes: written before the save is asked for, written again once it is durable, signed with
the Hub's key, and gone last. Nobody but this Hub can make one that it takes for its own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping

from ..kube import facts
from ..kube.client import SECRET, TRIGGER, Object
from ..kube.manifest import GUEST_KEY, POD_KEY, TOKEN_KEY
from ..lifecycle.model import Json, SnapshotManifest, manifest_from_json, manifest_to_json
from ..lifecycle.ports import Server
from ..lifecycle.reasons import Broken, Refused

NAME = "gke-workspaces"
MANIFEST, MAC = "manifest.json", "mac"
"""Entries of a snapshot's Secret."""
SERVER, SNAPSHOT_PART = "server", "snapshot"
"""Values of the label ``gke-workspaces/part``."""


def trigger_name(pause_id: str) -> str:
    """Unique per pause: a trigger fires once."""
    return f"{NAME}-{pause_id}"


def pause_of_trigger(name: str) -> str | None:
    """The pause of a trigger of ours."""
    return name[len(NAME) + 1 :] if name.startswith(f"{NAME}-p") else None


def snapshot_secret_name(snapshot_id: str) -> str:
    return f"{NAME}-{snapshot_id}"


def server_secret_name(lineage: str) -> str:
    return f"{NAME}-server-{lineage}"


def hub_label(hub_key: bytes) -> str:
    """Tells the objects of Hubs that share a namespace apart; says nothing about the key."""
    return hmac.new(hub_key, b"gke-workspaces/hub-label/v1", hashlib.sha256).hexdigest()[:16]


def server_secret(server: Server, hub: str, token: str, guest: str, pod: Object) -> Object:
    """What the pod's environment refers to, and the pod itself as it was asked for: a restore asks for the same."""
    return _secret(
        server_secret_name(server.owner.lineage),
        {facts.LINEAGE: server.owner.lineage, facts.HUB: hub, facts.PART: SERVER},
        {TOKEN_KEY: token, GUEST_KEY: guest, POD_KEY: json.dumps(pod)},
    )


def pod_of(secret: Object) -> Object:
    """The pod that a server was started with. Raises ``Broken`` when the Secret is not as it was written."""
    try:
        pod = json.loads(_value(secret, POD_KEY))
    except (KeyError, ValueError) as error:
        raise Broken("record_unreadable", f"Secret {secret['metadata']['name']}: {error!r}") from error
    if not isinstance(pod, dict):
        raise Broken("record_unreadable", f"Secret {secret['metadata']['name']}: no pod")
    return pod


def snapshot_secret(manifest: SnapshotManifest, hub: str, hub_key: bytes) -> Object:
    """The manifest beside the bytes."""
    text = json.dumps(manifest_to_json(manifest), sort_keys=True)
    name = snapshot_secret_name(manifest.snapshot_id)
    labels = {facts.LINEAGE: manifest.owner.lineage, facts.HUB: hub, facts.PART: SNAPSHOT_PART}
    return _secret(name, labels, {MANIFEST: text, MAC: _mac(hub_key, name, text)})


def manifest_of(secret: Object, hub_key: bytes) -> SnapshotManifest:
    """The manifest in a snapshot's Secret. Raises ``Refused('snapshot_changed')`` unless this Hub wrote every byte of it."""
    name = secret["metadata"]["name"]
    try:
        text, mac = _value(secret, MANIFEST), _value(secret, MAC)
    except (KeyError, ValueError) as error:
        raise Refused("snapshot_changed", f"Secret {name}: {error!r}") from error
    if not hmac.compare_digest(mac, _mac(hub_key, name, text)):
        raise Refused("snapshot_changed", f"Secret {name}: the signature does not fit")
    return manifest_from_json(text)


def digest_of(manifest: SnapshotManifest) -> str:
    """sha256 of the manifest as it lies in the Secret, hex."""
    return hashlib.sha256(json.dumps(manifest_to_json(manifest), sort_keys=True).encode()).hexdigest()


def trigger(server: Server, hub: str, pause_id: str, pod_name: str) -> Object:
    """What asks GKE for the save."""
    return {
        "apiVersion": TRIGGER.api_version,
        "kind": TRIGGER.name,
        "metadata": {"name": trigger_name(pause_id), "labels": {facts.LINEAGE: server.owner.lineage, facts.HUB: hub}},
        "spec": {"targetPod": pod_name},
    }


def is_of(snapshot: Object, lineage: str) -> bool:
    """Whether nothing speaks against a PodSnapshot being of that lineage: what GKE copied from the pod counts, not who names it."""
    return ((snapshot["metadata"].get("labels") or {}).get(facts.LINEAGE) or lineage) == lineage


def launch_of(manifest: SnapshotManifest, name: str) -> Json:
    """An entry of the launch spec. Raises ``Broken`` when it is missing."""
    if name not in manifest.launch:
        raise Broken("record_unreadable", f"snapshot {manifest.snapshot_id}: no {name}")
    return manifest.launch[name]


def _mac(hub_key: bytes, name: str, text: str) -> str:
    return hmac.new(hub_key, f"gke-workspaces/manifest/v1\n{name}\n{text}".encode(), hashlib.sha256).hexdigest()


def _secret(name: str, labels: Mapping[str, str], entries: Mapping[str, str]) -> Object:
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.name,
        "metadata": {"name": name, "labels": dict(labels)},
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in entries.items()},
    }


def _value(secret: Object, key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()
