"""What the Hub keeps in the cluster bears its signature; what was copied, changed or made by somebody else is not taken for its own."""

from __future__ import annotations

import base64
import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from gke_workspaces_spawner.engines import gke_objects as objects
from gke_workspaces_spawner.engines.gke import GKEEngine
from gke_workspaces_spawner.engines.gke_settings import Settings
from gke_workspaces_spawner.kube.client import Cluster
from gke_workspaces_spawner.lifecycle.model import Identity, Key, Owner, SnapshotManifest
from gke_workspaces_spawner.lifecycle.ports import Server
from gke_workspaces_spawner.lifecycle.reasons import Refused
from tests.fakes.clock import FakeClock

HUB_KEY = b"k" * 32
POD: dict[str, Any] = {
    "metadata": {"name": "jupyter-ann", "annotations": {"podsnapshot.gke.io/ps-name": ""}},
    "spec": {"containers": [{"name": "notebook", "image": "i:1"}]},
}
MANIFEST = SnapshotManifest(
    snapshot_id="s-p1",
    pause_id="p1",
    key=Key("ann"),
    owner=Owner(1, "0" * 32),
    engine="gke",
    created=1.0,
    bytes=5,
    launch={"pod": POD, "origin": {"zone": "a"}, "podsnapshot": "snap-1", "images": {}, "uid": "u"},
    identity=Identity("boot", 7),
)


def sealed() -> dict[str, Any]:
    return objects.snapshot_secret(MANIFEST, "hub", HUB_KEY)


def test_a_manifest_comes_back_as_it_was_written():
    assert objects.manifest_of(sealed(), HUB_KEY) == MANIFEST


def test_a_changed_byte_is_noticed():
    secret = sealed()
    text = base64.b64decode(secret["data"]["manifest.json"]).decode()
    secret["data"]["manifest.json"] = base64.b64encode(text.replace("i:1", "i:2").encode()).decode()
    with pytest.raises(Refused, match="snapshot_changed"):
        objects.manifest_of(secret, HUB_KEY)


def test_a_copy_under_another_name_is_noticed():
    secret = sealed()
    secret["metadata"]["name"] = objects.snapshot_secret_name("s-p2")
    with pytest.raises(Refused, match="snapshot_changed"):
        objects.manifest_of(secret, HUB_KEY)


@pytest.mark.parametrize("data", [{}, {"manifest.json": "e30="}, {"manifest.json": "e30=", "mac": "AA=="}, {"mac": "%%"}])
def test_what_somebody_else_made_is_refused_in_words(data: dict[str, str]):
    with pytest.raises(Refused, match="snapshot_changed"):
        objects.manifest_of({"metadata": {"name": "gke-workspaces-s-p1"}, "data": data}, HUB_KEY)


def test_another_hub_takes_nothing_of_this_one():
    with pytest.raises(Refused, match="snapshot_changed"):
        objects.manifest_of(sealed(), b"o" * 32)
    assert objects.hub_label(HUB_KEY) != objects.hub_label(b"o" * 32)


def test_names_fit_into_labels_and_come_from_the_pause():
    pause_id = "p" + "0" * 16
    for name in (objects.trigger_name(pause_id), objects.snapshot_secret_name(f"s-{pause_id}"), objects.server_secret_name("0" * 32)):
        assert len(name) <= 63
    assert objects.pause_of_trigger(objects.trigger_name(pause_id)) == pause_id
    assert objects.pause_of_trigger("somebody-elses") is None


def test_a_servers_secret_holds_what_its_pod_refers_to():
    secret = objects.server_secret(Server(Key("ann"), Owner(1, "0" * 32)), "hub", "token", "guest", POD)
    assert {name: base64.b64decode(value).decode() for name, value in secret["data"].items()} == {
        "token": "token",
        "guest": "guest",
        "pod.json": json.dumps(POD),
    }
    assert objects.pod_of(secret) == POD


# ---------------------------------------------------------------- what is started instead of a cold start


class Nowhere(Cluster):
    """A restore's launch spec is worked out without a word to the API server."""

    def __init__(self) -> None:
        """It has no client."""


@pytest.fixture
def engine() -> GKEEngine:
    return GKEEngine(Nowhere(), Settings("hub"), HUB_KEY, FakeClock(), logging.getLogger(__name__))


def test_a_restore_is_the_saved_pod_with_the_snapshots_name(engine: GKEEngine):
    spec = engine.launch(MANIFEST, {"pod": POD})
    assert spec["snapshot"] == "snap-1"
    assert spec["pod"]["metadata"]["annotations"]["podsnapshot.gke.io/ps-name"] == "snap-1"
    assert spec["pod"]["spec"]["containers"] == POD["spec"]["containers"]


def test_a_restore_has_todays_labels_since_network_policies_grant_by_them_and_its_own_lineage_and_policy(engine: GKEEngine):
    ours = {"gke-workspaces/lineage": "0" * 32, "gke-workspaces/policy": "resume"}
    before = {**POD, "metadata": {**POD["metadata"], "labels": {**ours, "component": "old", "network-access-db": "true"}}}
    today = {
        **POD,
        "metadata": {**POD["metadata"], "labels": {"component": "new", "gke-workspaces/policy": "stop", "gke-workspaces/x": "y"}},
    }
    spec = engine.launch(replace(MANIFEST, launch={**MANIFEST.launch, "pod": before}), {"pod": today})
    assert spec["pod"]["metadata"]["labels"] == {**ours, "component": "new"}


def test_what_today_would_not_grant_is_refused_with_its_name(engine: GKEEngine):
    today = {"metadata": POD["metadata"], "spec": {"containers": [{"name": "notebook", "image": "i:2"}]}}
    with pytest.raises(Refused, match="policy_changed") as error:
        engine.launch(MANIFEST, {"pod": today})
    assert "image of container notebook" in error.value.detail


def test_a_save_that_was_not_finished_cannot_be_restored(engine: GKEEngine):
    unfinished = replace(MANIFEST, launch={name: value for name, value in MANIFEST.launch.items() if name != "podsnapshot"})
    with pytest.raises(Exception, match="record_unreadable"):
        engine.launch(unfinished, {"pod": POD})
