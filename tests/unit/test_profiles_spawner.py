"""The ``gke`` key in KubeSpawner itself: what pod comes out of it, what is hidden from whom, and what stops the Hub."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kubespawner import KubeSpawner
from traitlets.config import Config

from gke_workspaces_spawner import GKEWorkspaceSpawner
from gke_workspaces_spawner.lifecycle.reasons import Refused, reason
from tests.kubeconfig import no_cluster

GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
OWN = {"key": "hub", "operator": "Exists", "effect": "NoSchedule"}
THEIRS = {"key": "profile", "operator": "Exists", "effect": "NoSchedule"}
L4 = {"display_name": "L4", "slug": "l4", "gke": {"gpu": {"type": "l4"}}, "kubespawner_override": {"mem_limit": "8G"}}
BAD = {"display_name": "bad", "slug": "bad", "gke": {"gpu": {"type": "l5"}}}
PLAIN = {"display_name": "plain", "slug": "plain", "kubespawner_override": {"tolerations": [THEIRS], "cpu_limit": 2.0}}
SHM = {"name": "gke-workspaces-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "4Gi"}}


@pytest.fixture(autouse=True)
def nowhere() -> Iterator[None]:
    GKEWorkspaceSpawner._reports.clear()
    with no_cluster():
        yield


def spawner(profile_list: Any, groups: list[str] | None = None, kind: type[KubeSpawner] = GKEWorkspaceSpawner, **settings: Any) -> Any:
    config = Config()
    config.KubeSpawner.update({"profile_list": profile_list, "cmd": ["jupyterhub-singleuser"], **settings})
    one = kind(_mock=True, config=config)
    if groups is not None:
        one.user.groups = [SimpleNamespace(name=name) for name in groups]
    return one


async def pod(one: Any, **options: Any) -> dict[str, Any]:
    one.clear_state()  # as the Hub does before each start
    one.user_options, one._options_loaded = options, False
    await one.load_user_options()
    made: dict[str, Any] = one.api.api_client.sanitize_for_serialization(await one.get_pod_manifest())["spec"]
    return made


def notebook(spec: dict[str, Any]) -> dict[str, Any]:
    (container,) = spec["containers"]
    return dict(container)


async def test_type_and_count_become_a_pod_that_is_placed_on_such_a_machine() -> None:
    spec = await pod(spawner([L4]))
    assert notebook(spec)["resources"] == {
        "limits": {"memory": 8 * 2**30, "nvidia.com/gpu": "1"},
        "requests": {"nvidia.com/gpu": "1"},
    }
    assert spec["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert spec["tolerations"] == [GPU]
    assert SHM in spec["volumes"]
    assert {"name": SHM["name"], "mountPath": "/dev/shm"} in notebook(spec)["volumeMounts"]


async def test_the_pod_is_the_same_as_with_everything_written_by_hand() -> None:
    by_hand = {
        **L4["kubespawner_override"],
        "node_selector": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
        "tolerations": [GPU],
        "extra_resource_limits": {"nvidia.com/gpu": "1"},
        "extra_resource_guarantees": {"nvidia.com/gpu": "1"},
        "volumes": [SHM],
        "volume_mounts": [{"name": SHM["name"], "mountPath": "/dev/shm"}],
    }
    stock = spawner([{"display_name": "L4", "kubespawner_override": by_hand}], kind=KubeSpawner)
    assert await pod(spawner([L4])) == await pod(stock)


@pytest.mark.parametrize("globals_as", [list, dict])
async def test_tolerations_selectors_and_volumes_add_to_the_hubs(globals_as: type) -> None:
    home = {"name": "home", "persistentVolumeClaim": {"claimName": "c"}}
    mount = {"name": "home", "mountPath": "/home/jovyan"}
    several = {"volumes": [home], "volume_mounts": [mount], "tolerations": [OWN]}
    if globals_as is dict:
        several = {name: {"10-a": value[0]} for name, value in several.items()}
    profile = {**L4, "kubespawner_override": {**L4["kubespawner_override"], "tolerations": [THEIRS], "node_selector": {"pool": "a"}}}
    spec = await pod(spawner([profile], node_selector={"team": "x"}, **several))
    assert spec["tolerations"] == [OWN, THEIRS, GPU]
    assert spec["nodeSelector"] == {"team": "x", "pool": "a", "cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert spec["volumes"] == [home, SHM]
    assert [each["mountPath"] for each in notebook(spec)["volumeMounts"]] == ["/home/jovyan", "/dev/shm"]


async def test_the_override_wins_where_both_speak() -> None:
    gke = {"home": {"size": "10Gi"}, "image": "a:1", "priority_class": "low", "pausable": "auto", "post_checkpoint": "stop"}
    override = {"storage_capacity": "20Gi", "image": "b:2", "priority_class_name": "high", "pausable": False, "post_checkpoint": "resume"}
    one = spawner([{"display_name": "x", "gke": gke, "kubespawner_override": override}])
    spec = await pod(one)
    assert (notebook(spec)["image"], spec["priorityClassName"], one.storage_capacity) == ("b:2", "high", "20Gi")
    assert (one.pausable, one.post_checkpoint) == (False, "resume")
    one = spawner([{"display_name": "x", "gke": gke}])
    spec = await pod(one)
    assert (notebook(spec)["image"], spec["priorityClassName"], one.storage_capacity) == ("a:1", "low", "10Gi")
    assert (one.pausable, one.post_checkpoint, one.storage_pvc_ensure) == (True, "stop", True)


async def test_what_one_profile_sets_is_gone_with_the_next_choice() -> None:
    several = [{**L4, "kubespawner_override": {"tolerations": [THEIRS], "environment": {"A": "1"}}}, PLAIN, {**PLAIN, "slug": "bare"}]
    one = spawner(several, node_selector={"team": "x"}, tolerations=[OWN])
    assert "A" in {each["name"] for each in notebook(await pod(one, profile="l4"))["env"]}
    assert await pod(one, profile="plain") == await pod(spawner(several, node_selector={"team": "x"}), profile="plain")


async def test_what_a_hook_of_the_deployment_sets_before_a_start_stays() -> None:
    one = spawner([L4], node_selector={"team": "x"})
    await pod(one)
    one.clear_state()
    one.node_selector["hook"] = "y"  # as a pre_spawn_hook does
    one._options_loaded = False
    await one.load_user_options()
    assert one.node_selector == {"team": "x", "hook": "y", "cloud.google.com/gke-accelerator": "nvidia-l4"}
    one.clear_state()
    assert one.node_selector == {"team": "x", "hook": "y"}, "what it was before the last start, not before the first"


async def test_plain_profiles_beside_ours_are_kubespawners_own() -> None:
    both = [L4, PLAIN]
    settings = {"tolerations": [OWN], "node_selector": {"team": "x"}}
    assert await pod(spawner(both, **settings), profile="plain") == await pod(spawner(both, kind=KubeSpawner, **settings), profile="plain")


async def test_a_choice_of_an_option_is_over_the_profile() -> None:
    options = {"capacity": {"choices": {"now": {"gke": {"capacity": "on-demand"}}, "spot": {"gke": {"capacity": "spot"}}}}}
    profile = {**L4, "profile_options": options}
    assert "cloud.google.com/gke-spot" not in (await pod(spawner([profile]), profile="l4"))["nodeSelector"]
    spec = await pod(spawner([profile]), profile="l4", capacity="spot")
    assert spec["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert [each["key"] for each in spec["tolerations"]] == ["nvidia.com/gpu", "cloud.google.com/gke-spot"]


# ---------------------------------------------------------------- what is wrong


async def test_a_wrong_static_list_stops_the_hub_with_all_findings() -> None:
    with pytest.raises(SystemExit, match=r"(?s)2 in all.*gke\.gpu\.type.*memLimit.*'mem_limit'"):
        spawner([L4, BAD, {**L4, "slug": "x", "kubespawner_override": {"memLimit": "1G"}}]).check_profiles()
    with pytest.raises(SystemExit, match="There is no such table"):
        spawner([L4], catalogue={"gpu": {}}).check_profiles()


async def test_a_right_list_a_function_and_a_list_that_is_not_strict_do_not() -> None:
    spawner([L4, PLAIN]).check_profiles()
    spawner({"a": L4, "b": PLAIN}).check_profiles()
    spawner(lambda one: [BAD]).check_profiles()
    spawner([BAD], strict_profiles=False).check_profiles()


@pytest.mark.parametrize("as_function", [True, False])
async def test_a_bad_entry_of_a_function_is_hidden_with_one_warning_in_the_log(as_function: bool, caplog: pytest.LogCaptureFixture) -> None:
    several = [BAD, L4, PLAIN]
    one = spawner((lambda spawner: [dict(each) for each in several]) if as_function else several)
    one.log = logging.getLogger("test")
    form = one.options_form
    html = await form(one) if callable(form) else form
    assert 'value="l4"' in html
    assert 'value="plain"' in html
    assert "bad" not in html
    await pod(one)
    assert "cloud.google.com/gke-accelerator" in one.node_selector, "the first that is left is the default"
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len([each for each in warnings if each.startswith("profile_list: profile 'bad': gke.gpu.type")]) == 1


@pytest.mark.parametrize(
    ("profile_list", "options", "says"),
    [
        ([L4], {"profile": "gone"}, "No such profile: gone"),
        ([BAD, L4], {"profile": "bad"}, "No such profile: bad"),
        ([BAD], {}, "Nothing of the list"),
        ([{**PLAIN, "profile_options": {"size": {"choices": {"a": {}, "b": {}}}}}], {"profile": "plain", "size": "c"}, "include: a, b"),
        ([{**PLAIN, "profile_options": {"size": {"choices": {"a": {}, "b": {}}}}}], {"profile": "plain", "size": ["a"]}, "include: a, b"),
        (
            [
                {
                    **L4,
                    "gke": {"capacity": "flex-start"},
                    "profile_options": {
                        "hw": {"choices": {"l4": {"gke": L4["gke"]}, "v4": {"gke": {"tpu": {"type": "v4", "topology": "2x2x1"}}}}},
                        "how": {"choices": {"flex": {}, "now": {"gke": {"capacity": "on-demand"}}}},
                    },
                }
            ],
            {"profile": "l4", "hw": "v4"},
            "cannot be had with flex-start",
        ),
        (
            [
                {
                    **L4,
                    "gke": {"image": {"name": "ok/a:1", "approved": ["ok/*"]}},
                    "profile_options": {
                        "image": {"unlisted_choice": {"enabled": True, "kubespawner_override": {"image": "{value}"}}, "choices": {"a": {}}}
                    },
                }
            ],
            {"profile": "l4", "image--unlisted-choice": "evil/ok/a"},
            "not approved",
        ),
    ],
)
async def test_a_wrong_choice_is_refused_with_a_sentence(profile_list: list[Any], options: dict[str, Any], says: str) -> None:
    one = spawner(profile_list)
    one.user_options = options
    with pytest.raises(Refused, match=says) as refused:
        await one.load_choice()
    assert reason(refused.value.code).status == 400


async def test_an_approved_image_that_a_user_types_is_taken_whatever_the_hubs_own_is() -> None:
    typed = {
        "unlisted_choice": {"enabled": True, "kubespawner_override": {"image": "{value}"}},
        "choices": {"a": {"gke": {"image": "ok/a"}}},
    }
    one = spawner([{**L4, "gke": {"image": {"approved": ["ok/*"]}}, "profile_options": {"image": typed}}])
    assert notebook(await pod(one, profile="l4", **{"image--unlisted-choice": "ok/mine:2"}))["image"] == "ok/mine:2"


async def test_a_list_of_a_function_that_offers_something_again_can_be_chosen_from() -> None:
    offered = [BAD]
    one = spawner(lambda spawner: offered)
    with pytest.raises(Refused, match="Nothing of the list"):
        await one.load_choice()
    offered[:] = [PLAIN]
    await one.load_choice()


async def test_an_error_of_the_configuration_is_not_told_as_the_users() -> None:
    def broken(spawner: Any) -> None:
        raise ValueError("a fault of the admin's function")

    one = spawner([{**L4, "kubespawner_override": {"environment": broken}}])
    with pytest.raises(ValueError, match="admin's function"):
        await one.load_choice()


async def test_a_profile_is_offered_to_its_groups_alone() -> None:
    several = [PLAIN, {**L4, "gke": {**L4["gke"], "groups": ["team"]}}]
    for groups, offered in (([], False), (["other"], False), (["team"], True)):
        one = spawner(several, groups)
        assert ('value="l4"' in one.options_form) is offered
        one.user_options = {"profile": "l4"}
        if offered:
            await one.load_choice()
        else:
            with pytest.raises(Refused, match="No such profile"):
                await one.load_choice()


@pytest.mark.parametrize(
    ("gke", "override", "seconds"),
    [
        ({}, {}, 600),
        ({"gpu": {"type": "l4"}}, {}, 1200),
        ({"gpu": {"type": "l4"}, "capacity": "flex-start"}, {}, 3000),
        ({"gpu": {"type": "l4"}}, {"start_timeout": 77}, 77),
    ],
)
async def test_the_hub_waits_as_long_as_the_machine_may_take(gke: dict[str, Any], override: dict[str, Any], seconds: int) -> None:
    one = spawner([{"display_name": "x", "gke": gke, "kubespawner_override": override}, PLAIN], start_timeout=300)
    one.time_for_the_machine()
    assert one.start_timeout == seconds
    one.user_options = {"profile": "plain"}
    one.time_for_the_machine()
    assert one.start_timeout == 300


async def test_hardware_that_cannot_be_saved_says_so_when_its_pod_is_made() -> None:
    one = spawner([{"display_name": "x", "gke": {"gpu": {"type": "v100"}, "pausable": "auto"}}])
    await pod(one)
    assert one.pausable
    assert one._profile_blocker == "the state of V100 cannot be saved"
