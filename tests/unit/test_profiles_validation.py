"""The ten validations: right values pass, wrong ones are found with the entry's name, what is wrong, and the nearest right value."""

from __future__ import annotations

from typing import Any

import pytest

from gke_workspaces_spawner.profiles import Context, Finding, State, built_in, catalogue_with, check

KEY = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
FAST = catalogue_with({"disks": {"fast": {"disk": "hyperdisk", "own_key": True}}})[0]
HOLDS = {"mem_limit": "32G"}


def entry(gke: Any, override: dict[str, Any] | None = None, name: str = "one") -> dict[str, Any]:
    return {"display_name": name, "gke": gke, "kubespawner_override": override or {}}


def found(gke: Any, override: dict[str, Any] | None = None, catalogue: Any = FAST, **settings: Any) -> tuple[Finding, ...]:
    return check([entry(gke, override)], catalogue, Context(settings)).findings


RIGHT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("type", {"gpu": {"type": "nvidia-l4"}}, {}),
    ("type", {"gpu": {"type": "t4"}}, {}),
    ("type", {"tpu": {"type": "tpu-v5-lite-podslice", "topology": "1x1"}}, {}),
    ("count", {"gpu": {"type": "nvidia-b200", "count": 8}}, {}),
    ("count", {"gpu": {"type": "nvidia-tesla-t4", "count": 4}}, {}),
    ("count", {"gpu": {"type": "nvidia-gb300", "count": 4}}, {}),
    ("count", {"gpu": {"type": "h200", "count": 1, "node": 8}}, {"cpu_guarantee": 20, "mem_guarantee": "200G"}),
    ("count", {"gpu": {"type": "a100", "sharing": {"strategy": "mig", "size": "1g.5gb"}}}, {}),
    ("topology", {"tpu": {"type": "v5e", "topology": "1x1"}}, {}),
    ("topology", {"tpu": {"type": "v6e", "topology": "2x4"}}, {}),
    ("topology", {"tpu": {"type": "v5p", "topology": "2x2x1"}}, {}),
    ("topology", {"tpu": {"type": "7x", "topology": "1x1x1"}}, {}),
    ("hosts", {"tpu": {"type": "v5e", "topology": "2x4", "chips": 8}}, {}),
    ("capacity", {"capacity": "on-demand"}, {}),
    ("capacity", {"capacity": "spot"}, {}),
    ("capacity", {"capacity": {"flex-start": {"max_run": 600}}, "gpu": {"type": "l4"}}, {}),
    ("capacity", {"capacity": {"flex-start": {"max_run": 604800}}, "tpu": {"type": "v6e", "topology": "2x2"}}, {}),
    ("capacity", {"capacity": {"reservation": {"name": "team", "project": "shared", "affinity": "specific"}}}, {}),
    ("capacity", {"capacity": {"reservation": "team"}}, {}),
    ("capacity", {"capacity": {"compute-class": "cheap-first"}, "gpu": {"type": "l4"}}, {}),
    ("capacity", {"capacity": {"queue": {"name": "team"}}, "zones": ["europe-west4-a", "us-central1-b"]}, {}),
    ("family", {"gpu": {"type": "l4"}, "machine": {"family": "g2"}}, {}),
    ("family", {"machine": {"family": "e2"}}, {}),
    ("family", {"tpu": {"type": "v5e", "topology": "1x1"}, "machine": {"family": "ct5lp"}}, {}),
    ("sandbox", {"gpu": {"type": "l4", "count": 4}, "pausable": "auto"}, {"mem_limit": "120G"}),
    ("sandbox", {"gpu": {"type": "p100"}}, {"privileged": True}),
    ("sandbox", {"tpu": {"type": "v5e", "topology": "2x2"}}, {"extra_pod_config": {"runtimeClassName": "gvisor"}}),
    ("home", {"gpu": {"type": "l4"}, "home": {"size": "10Gi", "storage_class": "premium-rwo"}}, {}),
    ("home", {"gpu": {"type": "b200", "count": 8}, "home": {"storage_class": "fast", "kms_key": KEY}}, {}),
    ("home", {"gpu": {"type": "h100"}, "home": {"storage_class": "fast"}}, {}),
    ("home", {"tpu": {"type": "v6e", "topology": "1x1"},
              "home": {"storage_class": "standard-rwx", "size": "1Ti", "access": "ReadWriteMany"}}, {}),
    ("home", {"home": {"per": "server"}}, {}),
    ("pod", {"gpu": {"type": "l4"}, "shm": "8Gi"}, HOLDS),
    ("pod", {"gpu": {"type": "l4"}}, {"cpu_guarantee": 31, "mem_guarantee": "120G"}),
    ("pod", {"gpu": {"type": "l4"}}, {"node_selector": {"pool": "mine", "cloud.google.com/gke-accelerator": "nvidia-l4"}}),
    ("pod", {"gpu": {"type": "l4", "count": 2}}, {"extra_resource_limits": {"nvidia.com/gpu": 2}}),
    ("pod", {"image": {"name": "quay.io/team/lab:1", "approved": ["quay.io/team/*"]}}, {}),
    ("reporting", {"capacity": "spot"}, {"lifecycle_hooks": {"postStart": {}}}),
    ("reporting", {}, {"lifecycle_hooks": {"preStop": {}}}),
]  # fmt: skip

WRONG: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    # check, gke, override, key, part of what is to be written instead
    ("type", {"gpu": {"type": "nvidia-l5"}}, {}, "gke.gpu.type", "'nvidia-l4'"),
    ("type", {"gpu": {"type": "NVIDIA-L4"}}, {}, "gke.gpu.type", "'nvidia-l4'"),
    ("type", {"gpu": {"type": "nvidia-tesla-k80"}}, {}, "gke.gpu.type", "T4"),
    ("type", {"tpu": {"type": "v5", "topology": "1x1"}}, {}, "gke.tpu.type", "'v5"),
    ("type", {"gpu": {"type": "l4"}, "tpu": {"type": "v5e", "topology": "1x1"}}, {}, "gke.tpu", "Leave one"),
    ("count", {"gpu": {"type": "nvidia-b200", "count": 1}}, {}, "gke.gpu.count", "Write 8."),
    ("count", {"gpu": {"type": "nvidia-gb200", "count": 8}}, {}, "gke.gpu.count", "Write 4."),
    ("count", {"gpu": {"type": "nvidia-tesla-t4", "count": 3}}, {}, "gke.gpu.count", "possible: 1, 2, 4"),
    ("count", {"gpu": {"type": "l4", "count": 4, "node": 2}}, {}, "gke.gpu.count", "at most 2"),
    ("count", {"gpu": {"type": "l4", "count": 1, "node": 3}}, {}, "gke.gpu.node", "possible: 1, 2, 4, 8"),
    ("count", {"gpu": {"type": "l4", "count": 2, "sharing": {"strategy": "time-sharing"}}}, {}, "gke.gpu.count", "Write 1"),
    ("count", {"gpu": {"type": "l4", "sharing": {"strategy": "time-sharing", "clients": 49}}}, {}, "gke.gpu.sharing.clients", "2 to 48"),
    ("count", {"gpu": {"type": "h100", "sharing": {"strategy": "mig", "size": "1g.5gb"}}}, {}, "gke.gpu.sharing.size", "g."),
    ("count", {"gpu": {"type": "l4", "sharing": {"strategy": "mig", "size": "1g.5gb"}}}, {}, "gke.gpu.sharing.size", "time-sharing"),
    ("topology", {"tpu": {"type": "v5p", "topology": "1x1"}}, {}, "gke.tpu.topology", "'2x2x1'"),
    ("topology", {"tpu": {"type": "v5e", "topology": "2x2x1"}}, {}, "gke.tpu.topology", "'2x2'"),
    ("topology", {"tpu": {"type": "v5e", "topology": "2x3"}}, {}, "gke.tpu.topology", "2x"),
    ("topology", {"tpu": {"type": "v5e", "topology": "two by two"}}, {}, "gke.tpu.topology", ""),
    ("topology", {"tpu": {"type": "v5p", "topology": "8x4x4"}}, {}, "gke.tpu.topology", "4x4x4"),
    ("topology", {"tpu": {"type": "v5e", "topology": "2x2", "chips": 2}}, {}, "gke.tpu.chips", "possible: 1, 4, 8"),
    ("topology", {"tpu": {"type": "v5e", "topology": "2x2", "chips": 8}}, {}, "gke.tpu.chips", "Write 4"),
    ("hosts", {"tpu": {"type": "v5e", "topology": "2x4", "chips": 4}}, {}, "gke.tpu.topology", "Leave chips out"),
    ("hosts", {"tpu": {"type": "v5e", "topology": "4x4"}}, {}, "gke.tpu.topology", "1x1, 2x2, 2x4"),
    ("hosts", {"tpu": {"type": "v5p", "topology": "4x4x8"}}, {}, "gke.tpu.topology", "2x2x1"),
    ("hosts", {"tpu": {"type": "v3-slice", "topology": "4x4"}}, {}, "gke.tpu.topology", "none"),
    ("capacity", {"capacity": "spto"}, {}, "gke.capacity", "'spot'"),
    ("capacity", {"capacity": {"spot": None, "on-demand": None}}, {}, "gke.capacity", ""),
    ("capacity", {"capacity": "reservation"}, {}, "gke.capacity.reservation.name", ""),
    ("capacity", {"capacity": {"reservation": {"name": "a", "affinity": "any"}}}, {}, "gke.capacity.reservation.affinity", "Leave"),
    ("capacity", {"capacity": {"reservation": {"project": "p"}}}, {}, "gke.capacity.reservation.project", "name"),
    ("capacity", {"capacity": {"flex-start": {"max_run": 599}}, "gpu": {"type": "l4"}}, {},
     "gke.capacity.flex-start.max_run", "Write 600."),
    ("capacity", {"capacity": {"flex-start": {"max_run": 604801}}, "gpu": {"type": "l4"}}, {}, "gke.capacity.flex-start.max_run", "604800"),
    ("capacity", {"capacity": "flex-start", "tpu": {"type": "v4", "topology": "2x2x1"}}, {}, "gke.capacity.flex-start", "on-demand"),
    ("capacity", {"capacity": "compute-class"}, {}, "gke.capacity.compute-class.name", ""),
    ("capacity", {"capacity": {"compute-class": "a"}, "machine": {"family": "n2"}}, {}, "gke.machine", "Leave machine out"),
    ("capacity", {"capacity": {"queue": {}}}, {}, "gke.capacity.queue.name", ""),
    ("family", {"gpu": {"type": "l4"}, "machine": {"family": "e2"}}, {}, "gke.machine.family", "g2"),
    ("family", {"gpu": {"type": "a100"}, "machine": {"family": "n1"}}, {}, "gke.machine.family", "a2"),
    ("family", {"tpu": {"type": "v5e", "topology": "1x1"}, "machine": {"family": "n2"}}, {}, "gke.machine.family", "ct5lp"),
    ("sandbox", {"gpu": {"type": "p100"}}, {"extra_pod_config": {"runtimeClassName": "gvisor"}}, "gke.gpu.type", "Leave the runtime"),
    ("sandbox", {"gpu": {"type": "a100", "sharing": {"strategy": "mig", "size": "1g.5gb"}}},
     {"extra_pod_config": {"runtimeClassName": "gvisor"}}, "gke.gpu.sharing", "Leave the runtime"),
    ("sandbox", {}, {"extra_pod_config": {"runtimeClassName": "gvisor", "hostIPC": True}},
     "kubespawner_override.extra_pod_config.hostIPC", ""),
    ("sandbox", {}, {"extra_pod_config": {"runtimeClassName": "gvisor"}, "privileged": True}, "kubespawner_override.privileged", ""),
    ("sandbox", {}, {"extra_pod_config": {"runtimeClassName": "gvisor"}, "volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
     "kubespawner_override.volumes", ""),
    ("home", {"gpu": {"type": "b200", "count": 8}, "home": {"storage_class": "standard-rwo"}}, {}, "gke.home.storage_class", "fast"),
    ("home", {"gpu": {"type": "l4"}, "home": {"storage_class": "fast"}}, {}, "gke.home.storage_class", "standard-rwo"),
    ("home", {"machine": {"family": "c4"}, "home": {"storage_class": "premium-rwo"}}, {}, "gke.home.storage_class", "fast"),
    ("home", {"home": {"storage_class": "standard-rwo", "access": "ReadWriteMany"}}, {}, "gke.home.access", "Filestore"),
    ("home", {"home": {"storage_class": "standard-rwx", "size": "100Gi"}}, {}, "gke.home.size", "1Ti"),
    ("home", {"home": {"kms_key": KEY}}, {}, "gke.home.kms_key", "disk-encryption-kms-key"),
    ("home", {"home": {"storage_class": "standard-rwo", "kms_key": KEY}}, {},
     "gke.home.kms_key", "disk-encryption-kms-key"),
    ("pod", {"gpu": {"type": "l4"}}, {"nodeSelector": {}}, "kubespawner_override.nodeSelector", "'node_selector'"),
    ("pod", {"gpu": {"type": "l4"}}, {"node_selector": {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}},
     "kubespawner_override.node_selector", "Leave it out"),
    ("pod", {"gpu": {"type": "l4"}}, {"node_selector": {"cloud.google.com/gke-accelerator": None}},
     "kubespawner_override.node_selector", ""),
    ("pod", {"capacity": "spot"}, {"extra_pod_config": {"nodeSelector": {"cloud.google.com/gke-spot": "false"}}},
     "kubespawner_override.extra_pod_config.nodeSelector", ""),
    ("pod", {"gpu": {"type": "l4"}}, {"extra_resource_limits": {"nvidia.com/gpu": 2}}, "kubespawner_override.extra_resource_limits", ""),
    ("pod", {"gpu": {"type": "l4"}, "shm": "32Gi"}, HOLDS, "gke.shm", "'16384Mi'"),
    ("pod", {"gpu": {"type": "l4", "count": 2}}, {"cpu_guarantee": 24}, "kubespawner_override.cpu_guarantee", "less than 24"),
    ("pod", {"gpu": {"type": "l4"}}, {"mem_limit": "200G"}, "kubespawner_override.mem_guarantee", "less than 128G"),
    ("pod", {"tpu": {"type": "v5e", "topology": "1x1"}}, {"mem_guarantee": "48G"}, "kubespawner_override.mem_guarantee", "48G"),
    ("pod", {"gpu": {"type": "l4", "count": 1, "node": 4}}, {"mem_guarantee": "20G"}, "kubespawner_override.cpu_guarantee", "CPUs"),
    ("pod", {"image": {"name": "evil/lab:1", "approved": ["quay.io/team/*"]}}, {}, "gke.image.approved", "quay.io/team/*"),
    ("pod", {"image": {"approved": ["quay.io/team/*"]}}, {"image": "evil/quay.io/team/x"}, "kubespawner_override.image", "quay.io/team/*"),
]  # fmt: skip

TOLD: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("type", {"gpu": {"type": "gb200", "count": 4}}, {}, "gke.gpu.type"),
    ("capacity", {"capacity": {"reservation": {"affinity": "any"}}}, {}, "gke.capacity.reservation.affinity"),
    ("capacity", {"capacity": "flex-start"}, {}, "gke.capacity.flex-start"),
    ("capacity", {"zones": ["europe-west4"]}, {}, "gke.zones"),
    ("family", {"machine": {"family": "n9"}}, {}, "gke.machine.family"),
    ("sandbox", {"tpu": {"type": "v5e", "topology": "1x1"}, "pausable": "auto"}, {}, "gke.pausable"),
    ("sandbox", {"gpu": {"type": "a100", "count": 2}, "pausable": True}, {}, "gke.pausable"),
    ("sandbox", {"gpu": {"type": "gb200", "count": 4}, "pausable": "auto"}, {}, "gke.pausable"),
    ("sandbox", {"gpu": {"type": "v100"}, "pausable": "auto"}, {}, "gke.pausable"),
    ("sandbox", {"machine": {"family": "e2"}, "pausable": "auto"}, {}, "gke.pausable"),
    ("sandbox", {"ide": "vscode", "pausable": "auto"}, {}, "gke.pausable"),
    ("sandbox", {"gpu": {"type": "rtx-pro-6000"}, "pausable": "auto"}, {}, "gke.gpu.type"),
    ("sandbox", {"gpu": {"type": "l4"}, "pausable": "auto"}, {"mem_limit": "8G"}, "kubespawner_override.mem_limit"),
    ("sandbox", {"pausable": "auto"}, {"privileged": True}, "kubespawner_override.privileged"),
    ("sandbox", {"gpu": {"type": "l4", "sharing": {"strategy": "time-sharing"}}}, {}, "gke.gpu.sharing"),
    ("home", {"gpu": {"type": "b200", "count": 8}, "home": {"size": "10Gi"}}, {}, "gke.home.storage_class"),
    ("home", {"gpu": {"type": "b200", "count": 8}, "home": {"storage_class": "theirs"}}, {}, "gke.home.storage_class"),
    ("home", {"gpu": {"type": "h200", "count": 8}, "home": {"storage_class": "premium-rwo"}}, {}, "gke.home.storage_class"),
    ("home", {"home": {"storage_class": "standard"}}, {}, "gke.home.storage_class"),
    ("home", {"home": {"storage_class": "theirs", "kms_key": KEY}}, {}, "gke.home.kms_key"),
    ("reporting", {"capacity": "spot"}, {"lifecycle_hooks": {"preStop": {}}}, "kubespawner_override.lifecycle_hooks"),
]  # fmt: skip


@pytest.mark.parametrize(("validation", "gke", "override"), RIGHT)
def test_a_right_value_passes(validation: str, gke: dict[str, Any], override: dict[str, Any]) -> None:
    report = check([entry(gke, override)], FAST, Context({"pvc_name_template": "claim-{user_server}"}))
    assert not report.refusals
    assert not [one for one in report.findings if one.check == validation]
    assert [row.name for row in report.rows] == ["profile 'one'"]


@pytest.mark.parametrize(("validation", "gke", "override", "key", "mend"), WRONG)
def test_a_wrong_value_is_refused_with_what_is_right(
    validation: str, gke: dict[str, Any], override: dict[str, Any], key: str, mend: str
) -> None:
    report = check([entry(gke, override)], FAST, Context({}))
    (one,) = [one for one in report.refusals if one.key == key]
    assert (one.entry, one.check) == ("profile 'one'", validation)
    assert one.what
    assert mend in one.mend
    assert not report.rows
    assert report.hidden == ((0, "", ""),)


@pytest.mark.parametrize(("validation", "gke", "override", "key"), TOLD)
def test_what_may_have_changed_or_cannot_be_seen_is_told_and_not_refused(
    validation: str, gke: dict[str, Any], override: dict[str, Any], key: str
) -> None:
    report = check([entry(gke, override)], FAST, Context({}))
    assert (validation, State.WARNING) in {(one.check, one.state) for one in report.findings if one.key == key}
    assert not report.refusals
    assert report.rows


def test_every_validation_has_right_and_wrong_values() -> None:
    """The tenth has nothing to refuse: it is about what is told while a pod waits."""
    ten = {"type", "count", "topology", "hosts", "capacity", "family", "sandbox", "home", "pod", "reporting"}
    assert {row[0] for row in RIGHT} == ten
    assert {row[0] for row in WRONG} | {row[0] for row in TOLD} == ten


def test_all_that_is_wrong_is_found_at_once_in_all_entries() -> None:
    report = check(
        [
            entry({"gpu": {"type": "l5", "count": 0}, "capcity": 1, "zones": "a"}, name="first"),
            entry({"tpu": {"type": "v5e", "topology": "9x9"}}, {"memLimit": "1G"}, name="second"),
        ],
        built_in(),
        Context({}),
    )
    keys = [(one.entry, one.key) for one in report.refusals]
    assert set(keys) == {
        ("profile 'first'", "gke.gpu.type"),
        ("profile 'first'", "gke.gpu.count"),
        ("profile 'first'", "gke.capcity"),
        ("profile 'first'", "gke.zones"),
        ("profile 'second'", "gke.tpu.topology"),
        ("profile 'second'", "kubespawner_override.memLimit"),
    }
    assert len(keys) == len(set(keys))


def test_a_setting_that_kubespawner_does_not_have_is_refused_where_its_settings_are_known() -> None:
    known = Context({}, frozenset({"mem_limit", "node_selector"}))
    report = check([entry({}, {"mem_limt": "1G"})], built_in(), known)
    assert [(one.key, one.mend) for one in report.refusals] == [("kubespawner_override.mem_limt", "Did you mean 'mem_limit'?")]
    assert not check([entry({}, {"mem_limit": "1G"})], built_in(), known).findings


@pytest.mark.parametrize(("template", "per", "right"), [
    ("claim-{user_server}", "server", True), ("claim-{user_server}", "user", False),
    ("claim-{username}", "user", True), ("claim-{username}", "server", False),
])  # fmt: skip
def test_per_has_to_be_what_the_names_of_claims_are(template: str, per: str, right: bool) -> None:
    refusals = [one for one in found({"home": {"per": per}}, pvc_name_template=template) if one.state is State.REFUSED]
    assert (not refusals) is right


@pytest.mark.parametrize(
    ("volumes", "override", "told"),
    [
        ([], {}, True),
        ({"home": {"persistentVolumeClaim": {"claimName": "c"}}}, {}, False),
        ([{"name": "home", "persistentVolumeClaim": {}}], {}, False),
        ([{"name": "home", "persistentVolumeClaim": {}}], {"volumes": [{"name": "x", "emptyDir": {}}]}, True),
        ([], {"volumes": lambda spawner: []}, False),
    ],
)
def test_a_home_that_no_volume_mounts_is_told_where_volumes_are_known(volumes: Any, override: dict[str, Any], told: bool) -> None:
    findings = found({"home": {"size": "1Gi"}}, override, volumes=volumes)
    assert [(one.key, one.state) for one in findings] == ([("gke.home", State.WARNING)] if told else [])
    assert not found({"home": {"size": "1Gi"}})


@pytest.mark.parametrize(("template", "state"), [("claim-{username}", State.REFUSED), ("claim-{user_server}", State.WARNING)])
def test_one_home_that_would_have_to_attach_to_two_kinds_of_machines_lists_the_pair(template: str, state: State) -> None:
    pair = [
        entry({"gpu": {"type": "l4"}, "home": {"storage_class": "standard-rwo"}}, name="small"),
        entry({"gpu": {"type": "b200", "count": 8}, "home": {"storage_class": "fast"}}, name="large"),
    ]
    (one,) = check(pair, FAST, Context({"pvc_name_template": template})).findings
    assert one.state is state
    assert {"small", "large"} <= set(f"{one.entry} {one.what}".replace("'", " ").split())
    both = [{**each, "gke": {**each["gke"], "home": {"storage_class": "standard-rwx"}}} for each in pair]
    assert not check(both, FAST, Context({"pvc_name_template": template})).findings
