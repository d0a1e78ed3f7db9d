"""The form of a ``gke`` key: everything of the wrong form is a finding with its place, nothing is an error of the program."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gke_workspaces_spawner.profiles import Context, built_in, check
from gke_workspaces_spawner.profiles.schema import Capacity, Gpu, Home, Idle, Image, Settings, Sharing, Tpu, parse

WHOLE = {
    "gpu": {"type": "l4", "count": 2, "node": 4, "driver": "latest", "sharing": {"strategy": "time-sharing", "clients": 4}},
    "tpu": {"type": "v5e", "topology": "2x2", "chips": 4},
    "machine": {"family": "g2", "cpu_platform": "Intel Ice Lake"},
    "capacity": {"flex-start": {"max_run": 3600}},
    "home": {"size": "10Gi", "storage_class": "fast", "kms_key": "projects/p/locations/l/keyRings/r/cryptoKeys/k",
             "access": "ReadWriteOncePod", "per": "user"},
    "ide": "vscode",
    "pausable": "no",
    "post_checkpoint": "stop",
    "idle": {"after": 3600, "action": "stop"},
    "shm": "1Gi",
    "zones": ["us-central1-a"],
    "image": {"name": "a/b:1", "approved": ["a/*"]},
    "groups": ["team"],
    "priority_class": "low",
}  # fmt: skip


def test_everything_that_may_be_written_is_read() -> None:
    read, findings = parse("entry", WHOLE)
    assert not findings
    assert read.gpu == Gpu("l4", 2, 4, "latest", Sharing("time-sharing", 4))
    assert read.tpu == Tpu("v5e", "2x2", 4)
    assert read.capacity == Capacity("flex-start", max_run=3600)
    assert read.home == Home("10Gi", "fast", "projects/p/locations/l/keyRings/r/cryptoKeys/k", "ReadWriteOncePod", "user")
    assert (read.pausable, read.idle, read.shm, read.zones) == (False, Idle(3600, "stop"), "1Gi", ("us-central1-a",))
    assert (read.image, read.groups, read.priority_class) == (Image("a/b:1", ("a/*",)), ("team",), "low")
    assert (read.ide, read.post_checkpoint) == ("vscode", "stop")


@pytest.mark.parametrize("nothing", [None, {}])
def test_an_empty_entry_says_nothing(nothing: Any) -> None:
    assert parse("entry", nothing) == (Settings(), ())


@pytest.mark.parametrize(("written", "read"), [("auto", True), (True, True), ("no", False), (False, False)])
def test_pausable_is_a_word_of_which_yaml_makes_a_boolean(written: Any, read: bool) -> None:
    assert parse("entry", {"pausable": written})[0].pausable is read


@pytest.mark.parametrize(
    ("gke", "key", "mend"),
    [
        ("gpu", "gke", "Its keys"),
        ([], "gke", "Its keys"),
        ({"gpus": {}}, "gke.gpus", "'gpu'"),
        ({"gpu": "l4"}, "gke.gpu", "type, count"),
        ({"gpu": {}}, "gke.gpu.type", "nvidia-l4"),
        ({"gpu": {"type": "l4", "count": "2"}}, "gke.gpu.count", "Write 2."),
        ({"gpu": {"type": "l4", "count": True}}, "gke.gpu.count", ""),
        ({"gpu": {"type": "l4", "count": 0}}, "gke.gpu.count", ""),
        ({"gpu": {"type": "l4", "drivers": "latest"}}, "gke.gpu.drivers", "'driver'"),
        ({"gpu": {"type": "l4", "driver": "newest"}}, "gke.gpu.driver", ""),
        ({"gpu": {"type": "l4", "sharing": {"clients": 2}}}, "gke.gpu.sharing.strategy", "mps"),
        ({"gpu": {"type": "l4", "sharing": {"strategy": None, "clients": 2}}}, "gke.gpu.sharing.strategy", "mps"),
        ({"gpu": {"type": "l4", "sharing": {"strategy": "mig"}}}, "gke.gpu.sharing.size", ""),
        ({"gpu": {"type": "l4", "sharing": {"strategy": "mps", "size": "1g.5gb"}}}, "gke.gpu.sharing.size", "mig"),
        ({"tpu": {"type": "v5e"}}, "gke.tpu.topology", "'2x2'"),
        ({"tpu": {"type": "v5e", "topology": 4}}, "gke.tpu.topology", ""),
        ({"capacity": 3}, "gke.capacity", ""),
        ({"capacity": {"reservation": {"nam": "a"}}}, "gke.capacity.reservation.nam", "'name'"),
        ({"capacity": {"queue": {"name": "no spaces"}}}, "gke.capacity.queue.name", "63"),
        ({"home": {"size": 10}}, "gke.home.size", "'100Gi'"),
        ({"home": {"size": "10GB"}}, "gke.home.size", "'100Gi'"),
        ({"home": {"access": "readwriteonce"}}, "gke.home.access", "'ReadWriteOnce'"),
        ({"home": {"kms_key": "my-key"}}, "gke.home.kms_key", "projects/"),
        ({"ide": "vs-code"}, "gke.ide", "'vscode'"),
        ({"pausable": "yes"}, "gke.pausable", ""),
        ({"post_checkpoint": "halt"}, "gke.post_checkpoint", ""),
        ({"idle": {"action": "pause"}}, "gke.idle.after", "3600"),
        ({"idle": {"after": 5}}, "gke.idle.after", ""),
        ({"shm": 8}, "gke.shm", "'100Gi'"),
        ({"zones": "us-central1-a"}, "gke.zones", "['us-central1-a']"),
        ({"zones": []}, "gke.zones", "Leave it out"),
        ({"zones": ["us-central1-a", 3]}, "gke.zones[1]", ""),
        ({"image": {"approved": "a/*"}}, "gke.image.approved", "['a/*']"),
        ({"groups": "team"}, "gke.groups", "['team']"),
        ({"priority_class": "High"}, "gke.priority_class", "Small letters"),
    ],
)
def test_what_is_of_the_wrong_form_is_found_at_its_place(gke: Any, key: str, mend: str) -> None:
    (one,) = [one for one in parse("entry", gke)[1] if one.key == key]
    assert one.entry == "entry"
    assert mend in one.mend
    assert "\n" not in one.sentence


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 10**6)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["l4", "v5e", "2x2", "mig", "1Gi"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.one_of(
            st.sampled_from([*WHOLE, "type", "count", "topology", "strategy", "size", "name", "spot", "storage_class", "gke", "choices"]),
            st.text(max_size=4),
            st.integers(0, 3),
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(gke=VALUES, override=VALUES, options=VALUES)
def test_no_entry_is_an_error_of_the_program(gke: Any, override: Any, options: Any) -> None:
    profile = {"display_name": "p", "gke": gke, "kubespawner_override": override, "profile_options": options}
    for profiles in ([profile], {"a": profile}, profile, [gke, profile], gke):
        report = check(profiles, built_in(), Context({"pvc_name_template": "claim-{username}"}))
        assert all(one.what and one.key for one in report.findings)


@settings(max_examples=150, deadline=None)
@given(
    gke=st.fixed_dictionaries({}, optional={name: VALUES | st.just(value) for name, value in WHOLE.items()}),
    override=st.dictionaries(
        st.sampled_from(["mem_limit", "cpu_limit", "node_selector", "volumes", "extra_pod_config", "image", "storage_class"]),
        VALUES,
        max_size=3,
    ),
)
def test_an_entry_with_right_keys_and_any_values_is_judged(gke: Any, override: Any) -> None:
    report = check([{"display_name": "p", "gke": gke, "kubespawner_override": override}], built_in(), Context({}))
    assert bool(report.rows) is not bool(report.refusals)
