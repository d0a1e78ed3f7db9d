"""What an entry becomes: selectors, tolerations and limits together, added to what is there; and the words for it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gke_workspaces_spawner.kube import facts
from gke_workspaces_spawner.profiles import Context, additions, built_in, catalogue_with, check, kubespawner_traits, mapping
from gke_workspaces_spawner.profiles.catalogue import TABLES, data
from gke_workspaces_spawner.profiles.schema import parse

GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
TPU_TOLERATION = {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}
GB = 2**30


def made(gke: dict[str, Any], memory_limit: int | None = None) -> dict[str, Any]:
    settings, findings = parse("entry", gke)
    assert not findings
    return kubespawner_traits(settings, built_in(), memory_limit)


def taint(key: str) -> dict[str, str]:
    return {"key": key, "operator": "Equal", "value": "true", "effect": "NoSchedule"}


def test_an_entry_that_says_nothing_becomes_nothing() -> None:
    assert made({}) == {}
    assert made({"capacity": "on-demand", "idle": {"after": 3600}, "groups": ["a"], "ide": "jupyterlab"}) == {}


def test_a_gpu_brings_limit_request_selector_toleration_and_shared_memory() -> None:
    shm = "gke-workspaces-shm"
    assert made({"gpu": {"type": "l4", "count": 2, "driver": "latest"}}, 16 * GB) == {
        "extra_resource_limits": {"nvidia.com/gpu": "2"},
        "extra_resource_guarantees": {"nvidia.com/gpu": "2"},
        "node_selector": {"cloud.google.com/gke-accelerator": "nvidia-l4", "cloud.google.com/gke-gpu-driver-version": "latest"},
        "tolerations": [GPU_TOLERATION],
        "volumes": [{"name": shm, "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}],
        "volume_mounts": [{"name": shm, "mountPath": "/dev/shm"}],
    }


@pytest.mark.parametrize(
    ("tpu", "chips", "label"),
    [
        ({"type": "v5e", "topology": "1x1"}, "1", "tpu-v5-lite-podslice"),
        ({"type": "v5e", "topology": "2x4"}, "8", "tpu-v5-lite-podslice"),
        ({"type": "v6e", "topology": "2x2"}, "4", "tpu-v6e-slice"),
        ({"type": "v5p", "topology": "2x2x1"}, "4", "tpu-v5p-slice"),
        ({"type": "ironwood", "topology": "1x1x1"}, "1", "tpu7x"),
    ],
)
def test_a_tpu_brings_all_chips_of_its_machine_and_both_selectors(tpu: dict[str, str], chips: str, label: str) -> None:
    traits = made({"tpu": tpu})
    assert traits["extra_resource_limits"] == traits["extra_resource_guarantees"] == {"google.com/tpu": chips}
    assert traits["node_selector"] == {
        "cloud.google.com/gke-tpu-accelerator": label,
        "cloud.google.com/gke-tpu-topology": tpu["topology"],
    }
    assert traits["tolerations"] == [TPU_TOLERATION]
    assert traits["volume_mounts"][0]["mountPath"] == "/dev/shm"


SPOT, FLEX = "cloud.google.com/gke-spot", "cloud.google.com/gke-flex-start"
CLASS = "cloud.google.com/compute-class"
RESERVATION = "cloud.google.com/reservation"


@pytest.mark.parametrize(
    ("gke", "traits"),
    [
        ({"capacity": "spot"}, {"node_selector": {SPOT: "true"}, "tolerations": [taint(SPOT)]}),
        (
            {"capacity": {"flex-start": {"max_run": 7200}}},
            {
                "node_selector": {FLEX: "true", "cloud.google.com/gke-max-run-duration-seconds": "7200"},
                "tolerations": [taint(FLEX)],
            },
        ),
        (
            {"capacity": {"reservation": {"name": "team", "project": "shared"}}},
            {"node_selector": {f"{RESERVATION}-name": "team", f"{RESERVATION}-project": "shared", f"{RESERVATION}-affinity": "specific"}},
        ),
        ({"capacity": {"reservation": {"affinity": "any"}}}, {"node_selector": {f"{RESERVATION}-affinity": "any"}}),
        (
            {"capacity": {"compute-class": "cheap"}},
            {"node_selector": {CLASS: "cheap"}, "tolerations": [{"key": CLASS, "operator": "Exists", "effect": "NoSchedule"}]},
        ),
        ({"capacity": {"queue": "team"}}, {"extra_labels": {"kueue.x-k8s.io/queue-name": "team"}}),
        (
            {"machine": {"family": "n2", "cpu_platform": "Intel Ice Lake"}},
            {
                "node_selector": {
                    "cloud.google.com/machine-family": "n2",
                    "cloud.google.com/requested-min-cpu-platform": "Intel_Ice_Lake",
                }
            },
        ),
        ({"zones": ["a-b1-c"]}, {"node_selector": {"topology.kubernetes.io/zone": "a-b1-c"}}),
        (
            {"zones": ["a-b1-c", "a-b1-d"]},
            {
                "node_affinity_required": [
                    {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a-b1-c", "a-b1-d"]}]}
                ]
            },
        ),
        (
            {"home": {"size": "20Gi", "storage_class": "fast", "access": "ReadWriteMany"}},
            {
                "storage_pvc_ensure": True,
                "storage_capacity": "20Gi",
                "storage_class": "fast",
                "storage_access_modes": ["ReadWriteMany"],
            },
        ),
        (
            {"image": "a/b:1", "priority_class": "low", "ide": "vscode", "pausable": "auto", "post_checkpoint": "stop"},
            {"image": "a/b:1", "priority_class_name": "low", "default_url": "/vscode", "pausable": True, "post_checkpoint": "stop"},
        ),
    ],
)
def test_a_choice_becomes_these_settings_and_no_others(gke: dict[str, Any], traits: dict[str, Any]) -> None:
    assert made(gke) == traits


@pytest.mark.parametrize(
    ("sharing", "labels"),
    [
        ({"strategy": "mig", "size": "1g.5gb"}, {"cloud.google.com/gke-gpu-partition-size": "1g.5gb"}),
        (
            {"strategy": "time-sharing", "clients": 3},
            {"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing", "cloud.google.com/gke-max-shared-clients-per-gpu": "3"},
        ),
        ({"strategy": "mps"}, {"cloud.google.com/gke-gpu-sharing-strategy": "mps"}),
    ],
)
def test_a_shared_gpu_is_asked_for_by_its_labels(sharing: dict[str, Any], labels: dict[str, str]) -> None:
    traits = made({"gpu": {"type": "a100", "sharing": sharing}})
    assert traits["node_selector"] == {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100", **labels}


def test_a_larger_machine_that_several_share_is_asked_for_by_its_count() -> None:
    traits = made({"gpu": {"type": "h200", "node": 8}})
    assert traits["node_selector"]["cloud.google.com/gke-accelerator-count"] == "8"
    assert traits["extra_resource_limits"] == {"nvidia.com/gpu": "1"}


@pytest.mark.parametrize("limit", [None, 1, 3 * 2**20 + 5, 100 * GB])
def test_shared_memory_is_positive_and_inside_the_memory_limit(limit: int | None) -> None:
    size = made({"gpu": {"type": "l4"}}, limit)["volumes"][0]["emptyDir"]["sizeLimit"]
    assert re.fullmatch(r"[1-9]\d*(Ki|Mi|Gi)", size)
    if limit is not None and limit > 2**21:
        assert int(size[:-2]) * {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}[size[-2:]] < limit


def test_shared_memory_is_as_written_or_left_to_kubernetes() -> None:
    assert made({"shm": "3Gi"})["volumes"][0]["emptyDir"]["sizeLimit"] == "3Gi"
    assert "volumes" not in made({"gpu": {"type": "l4"}, "shm": "no"})
    assert "volumes" not in made({"capacity": "spot"})


def test_lists_are_added_to_and_nothing_is_doubled() -> None:
    own, theirs = {"key": "hub", "operator": "Exists"}, {"key": "profile", "operator": "Exists"}
    ours = made({"gpu": {"type": "l4"}, "zones": ["a-b1-c", "a-b1-d"]})
    there = {
        "tolerations": [theirs, GPU_TOLERATION],
        "volumes": {"home": {"name": "home"}},
        "volume_mounts": [{"name": "home", "mountPath": "/home/jovyan"}],
        "node_affinity_required": [{"matchExpressions": [{"key": "x", "operator": "Exists"}]}, {"matchFields": []}],
    }
    got = additions(ours, there, {"1": own, "2": GPU_TOLERATION})
    assert got["tolerations"] == [own, GPU_TOLERATION, theirs]
    assert list(got["volumes"]) == ["home", "gke-workspaces-shm"]
    assert [each["mountPath"] for each in got["volume_mounts"]] == ["/home/jovyan", "/dev/shm"]
    zone = ours["node_affinity_required"][0]["matchExpressions"][0]
    assert got["node_affinity_required"] == [
        {"matchExpressions": [{"key": "x", "operator": "Exists"}, zone]},
        {"matchFields": [], "matchExpressions": [zone]},
    ]
    assert there["volumes"] == {"home": {"name": "home"}}, "what comes in is never changed"


def test_who_mounts_shared_memory_keeps_it() -> None:
    mounts = [{"name": "mine", "mountPath": "/dev/shm"}]
    got = additions(made({"gpu": {"type": "l4"}}), {"volumes": [{"name": "mine"}], "volume_mounts": mounts})
    assert set(got) == {"tolerations"}


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("gke", "field", "words"),
    [
        ({"gpu": {"type": "l4"}}, "accelerator", "L4 24 GB"),
        ({"gpu": {"type": "h100", "count": 2}}, "accelerator", "2 x H100 80 GB"),
        ({"gpu": {"type": "a100", "sharing": {"strategy": "mig", "size": "1g.5gb"}}}, "accelerator", "a 1g.5gb part of A100 40 GB"),
        ({"gpu": {"type": "gb300", "count": 4}}, "accelerator", "4 x GB300"),
        ({"tpu": {"type": "v5e", "topology": "2x2"}}, "accelerator", "TPU v5e 2x2: 4 chips, 64 GB"),
        ({"tpu": {"type": "v6e", "topology": "1x1"}}, "accelerator", "TPU v6e (Trillium) 1x1: 1 chip"),
        ({}, "accelerator", "none"),
        ({"gpu": {"type": "l4"}}, "machine", "g2"),
        ({"capacity": {"compute-class": "a"}}, "machine", "as the compute class says"),
        ({"capacity": "spot"}, "capacity", "Spot: may be taken back at any time, with 15 s notice"),
        (
            {"capacity": {"flex-start": {"max_run": 7200}}, "gpu": {"type": "l4"}},
            "capacity",
            "flex-start: waits for a machine, ends after 2 h",
        ),
        ({"capacity": {"reservation": "team"}, "zones": ["a-b1-c"]}, "capacity", "reserved (team), in a-b1-c"),
        ({"home": {"size": "10Gi", "storage_class": "premium-rwo"}}, "home", "10Gi, SSD Persistent Disk"),
        ({}, "home", "as the hub says"),
        ({"gpu": {"type": "l4"}, "pausable": "auto"}, "pausable", "yes, with GPU memory"),
        ({"pausable": "auto"}, "pausable", "yes"),
        ({"pausable": "no"}, "pausable", "no"),
        ({}, "pausable", "no: not switched on"),
        ({"tpu": {"type": "v5e", "topology": "2x2"}, "pausable": "auto"}, "pausable", "no: the state of a TPU cannot be saved"),
        ({"gpu": {"type": "a100", "count": 2}, "pausable": "auto"}, "pausable", "no: the state of one A100 can be saved, of several not"),
        ({}, "longest_wait", "10 min"),
        ({"gpu": {"type": "l4"}}, "longest_wait", "20 min"),
        ({"tpu": {"type": "v5e", "topology": "2x2"}, "capacity": "flex-start"}, "longest_wait", "60 min"),
    ],
)
def test_a_choice_in_words(gke: dict[str, Any], field: str, words: str) -> None:
    (row,) = check([{"display_name": "one", "gke": gke}], built_in(), Context({})).rows
    assert row.as_json()[field] == words


@pytest.mark.parametrize(
    ("hub", "override", "words"),
    [({}, {}, "20 min"), ({"start_timeout": 3600}, {}, "60 min"), ({"start_timeout": 3600}, {"start_timeout": 120}, "2 min")],
)
def test_the_longest_wait_is_what_the_hub_will_wait(hub: dict[str, Any], override: dict[str, Any], words: str) -> None:
    entry = {"display_name": "one", "gke": {"gpu": {"type": "l4"}}, "kubespawner_override": override}
    (row,) = check([entry], built_in(), Context(hub)).rows
    assert row.longest_wait == words


# ---------------------------------------------------------------- the catalogue


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_a_source_and_a_date(table: str) -> None:
    rows = getattr(built_in(), table).rows
    assert rows
    sources = data("sources")["sources"]
    for row in rows.values():
        assert row.date is not None
        assert row.source
        assert set(row.source) <= set(sources), row.name


def test_every_source_is_used() -> None:
    used = {source for table in TABLES for row in getattr(built_in(), table).rows.values() for source in row.source}
    assert used == set(data("sources")["sources"])


def test_accelerators_stand_on_families_that_are_known_and_names_are_theirs_alone() -> None:
    catalogue = built_in()
    for table in (catalogue.gpus, catalogue.tpus):
        assert len(table.names) == len(set(table.names))
        for row in table.rows.values():
            assert all(catalogue.machines.get(family) for family in row.series)
            assert all(catalogue.machines.rows[family].arch == row.arch for family in row.series)


@pytest.mark.parametrize(
    ("label", "name"),
    [
        (mapping.GPU, "gpu"),
        (mapping.TPU, "tpu"),
        (mapping.ACCELERATOR, "accelerator"),
        (mapping.TPU_ACCELERATOR, "tpu_selector"),
        (mapping.PARTITION, "partition"),
        (mapping.FAMILY, "family"),
    ],
)
def test_what_a_profile_asks_for_is_what_pausing_looks_at(label: str, name: str) -> None:
    assert label == facts.name(name)


def test_models_of_which_several_can_be_saved_are_the_same_for_profiles_and_for_pausing() -> None:
    assert {name for name, row in built_in().gpus.rows.items() if row.snapshot == "all"} == set(
        facts.data("facts")["names"]["several_gpus"]
    )


def test_labels_are_what_google_calls_them() -> None:
    assert built_in().tpus.rows["v5e"].label == "tpu-v5-lite-podslice"
    assert set(built_in().gpus.rows) >= {
        "nvidia-l4",
        "nvidia-h100-80gb",
        "nvidia-h100-mega-80gb",
        "nvidia-a100-80gb",
        "nvidia-rtx-pro-6000",
    }


def test_an_admin_changes_fields_and_adds_rows() -> None:
    own = {
        "gpus": {"nvidia-b200": {"counts": [4, 8]}, "nvidia-x1": {"words": "X1", "counts": [2], "series": ["x1"], "disks": "both"}},
        "machines": {"x1": {"disks": "both"}},
        "disks": {"fast": {"disk": "hyperdisk"}},
    }
    catalogue, findings = catalogue_with(own)
    assert not findings
    assert catalogue.gpus.rows["nvidia-b200"].counts == (4, 8)
    assert catalogue.gpus.rows["nvidia-b200"].memory_gb == 180
    entries = [{"display_name": "x", "gke": {"gpu": {"type": "nvidia-x1", "count": 2}, "machine": {"family": "x1"}}}]
    assert not check(entries, catalogue, Context({})).findings
    assert check(entries, built_in(), Context({})).refusals


@pytest.mark.parametrize(
    ("own", "key"),
    [
        ([], "the mapping"),
        ({"gpu": {}}, "gpu"),
        ({"gpus": []}, "the mapping"),
        ({"gpus": 3}, "gpus"),
        ({"gpus": {"nvidia-l4": 3}}, "gpus.nvidia-l4"),
        ({"gpus": {"nvidia-l4": {"count": [1]}}}, "gpus.nvidia-l4.count"),
        ({"gpus": {"nvidia-l4": {"counts": 1}}}, "gpus.nvidia-l4.counts"),
        ({"gpus": {"nvidia-l4": {"counts": ["1"]}}}, "gpus.nvidia-l4.counts"),
        ({"gpus": {"nvidia-l4": {"shapes": [[1, 2]]}}}, "gpus.nvidia-l4.shapes"),
        ({"gpus": {"nvidia-x1": {"words": "X1"}}}, "gpus.nvidia-x1"),
        ({"disks": {"fast": {"disk": "hyper"}}}, "disks.fast.disk"),
        ({"machines": {"n2": {"pausable": "no"}}}, "machines.n2.pausable"),
    ],
)
def test_a_wrong_row_is_found_and_the_built_in_one_stays(own: Any, key: str) -> None:
    catalogue, findings = catalogue_with(own)
    if own == {"gpus": []}:  # an empty table says nothing
        assert not findings
    else:
        assert key in {one.key for one in findings}
    assert catalogue.gpus.rows["nvidia-l4"] == built_in().gpus.rows["nvidia-l4"]
