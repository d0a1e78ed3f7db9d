"""The doctor about the hub's own settings: what breaks pausing is found in values of the chart and in a config file, which is never run."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_workspaces_spawner.kube.doctor.examine import read_values
from gke_workspaces_spawner.kube.doctor.findings import State, Unread
from gke_workspaces_spawner.kube.doctor.hub import check_values
from gke_workspaces_spawner.kube.doctor.values import Deployment, Unreadable, parse

FAULT, WARNING, UNKNOWN = State.FAULT, State.WARNING, State.UNKNOWN

SETTINGS = """
c.JupyterHub.spawner_class = "gke-workspaces"
c.GKEWorkspaceSpawner.pausable = True
import gke_workspaces_spawner
gke_workspaces_spawner.configure(c)
"""
VALUES: dict[str, Any] = {
    "hub": {
        "image": {"name": "example.org/hub", "tag": "1"},
        "config": {"KubeSpawner": {"http_timeout": 120}},
        "extraConfig": {"pausing": SETTINGS},
        "db": {"type": "sqlite-pvc"},
    },
    "singleuser": {
        "image": {"name": "example.org/lab", "tag": "1"},
        "cloudMetadata": {"blockWithIptables": False},
        "startTimeout": 600,
    },
    "cull": {"enabled": True, "timeout": 43200},
}
CONFIG = f"""
from os import environ
{SETTINGS}
c.KubeSpawner.image = "example.org/lab:1"
c.KubeSpawner.start_timeout = 600
c.KubeSpawner.http_timeout = 120
c.KubeSpawner.namespace = environ["NAMESPACE"]
c.JupyterHub.services = [{{"name": "culler", "command": [sys.executable, "-m", "jupyterhub_idle_culler", "--timeout=43200"]}}]
"""


def bad(hub: Deployment | Unread) -> dict[str, State]:
    """What is not well, by check: the worst of each."""
    worst: dict[str, State] = {}
    for one in check_values(hub, "hub"):
        if one.state is not State.OK:
            worst[one.check] = min(one.state, worst.get(one.check, one.state), key=list(State).index)
    return worst


UNSEEN = {"values-image": UNKNOWN, "values-hub-image": UNKNOWN}
"""Nobody sees from an image's name what is in it."""


def values(*path: str, to: Any) -> dict[str, Any]:
    """The good values with one changed; ``to`` None removes it."""
    made = copy.deepcopy(VALUES)
    at = made
    for step in path[:-1]:
        at = at.setdefault(step, {})
    if to is None:
        at.pop(path[-1], None)
    else:
        at[path[-1]] = to
    return made


def of(made: Any) -> Deployment:
    return parse("values.yaml", yaml.safe_dump(made))


def test_values_that_are_well_are_well():
    assert bad(of(VALUES)) == UNSEEN


def test_values_of_a_chart_that_has_the_hubs_chart_inside_are_read():
    assert bad(of({"jupyterhub": VALUES, "mine": 1})) == UNSEEN
    assert of({"jupyterhub": {"hub": VALUES["hub"]}}).hub_image == "example.org/hub:1"
    assert bad(of({"basehub": {"nfs": {"enabled": True}, "jupyterhub": VALUES}})) == UNSEEN


def test_a_config_file_that_is_well_is_well_and_is_not_run():
    assert bad(parse("jupyterhub_config.py", CONFIG + "\nraise SystemExit(3)\n")) == UNSEEN


def test_the_charts_own_defaults_break_pausing():
    assert bad(of({})) == {
        "values-spawner": UNKNOWN,
        "values-metadata": FAULT,
        "values-cull": WARNING,
        "values-timeouts": WARNING,
        "values-image": FAULT,
        "values-hub-image": FAULT,
    }


PRIVILEGED = [{"name": "nets", "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}]


@pytest.mark.parametrize(
    ("made", "check", "state"),
    [
        (
            values("hub", "extraConfig", "pausing", to=SETTINGS.replace('"gke-workspaces"', '"kubespawner.KubeSpawner"')),
            "values-spawner",
            FAULT,
        ),
        (values("hub", "extraConfig", "pausing", to=SETTINGS.replace("gke_workspaces_spawner.configure(c)", "")), "values-spawner", FAULT),
        (values("hub", "extraConfig", "pausing", to=SETTINGS.replace("True", "False")), "values-spawner", WARNING),
        (values("hub", "extraConfig", to=None), "values-spawner", UNKNOWN),
        (values("singleuser", "cloudMetadata", to=None), "values-metadata", FAULT),
        (values("singleuser", "networkPolicy", "enabled", to=False), "values-metadata", WARNING),
        (values("singleuser", "initContainers", to=PRIVILEGED), "values-metadata", FAULT),
        (values("singleuser", "initContainers", to=[{"name": "x", "securityContext": {"privileged": True}}]), "values-metadata", FAULT),
        (values("cull", "timeout", to=3600), "values-cull", WARNING),
        (values("cull", "users", to=True), "values-cull", FAULT),
        (values("cull", "maxAge", to=86400), "values-cull", WARNING),
        (values("cull", "removeNamedServers", to=True), "values-cull", WARNING),
        (values("singleuser", "startTimeout", to=60), "values-timeouts", WARNING),
        (values("hub", "config", "KubeSpawner", "http_timeout", to=30), "values-timeouts", WARNING),
        (values("hub", "config", "KubeSpawner", "http_timeout", to=None), "values-timeouts", WARNING),
        (values("singleuser", "image", "name", to="quay.io/jupyter/scipy-notebook"), "values-image", FAULT),
        (
            values("singleuser", "profileList", to=[{"kubespawner_override": {"image": "jupyter/base-notebook:latest"}}]),
            "values-image",
            FAULT,
        ),
        (
            values(
                "singleuser",
                "profileList",
                to=[{"profile_options": {"o": {"choices": {"c": {"kubespawner_override": {"image": "pangeo/pangeo-notebook"}}}}}}],
            ),
            "values-image",
            FAULT,
        ),
        (values("hub", "image", "name", to="quay.io/jupyterhub/k8s-hub"), "values-hub-image", FAULT),
        (values("singleuser", "extraContainers", to=[{"name": "proxy"}]), "values-containers", FAULT),
        (values("hub", "db", "type", to="sqlite-memory"), "values-database", FAULT),
    ],
)
def test_each_setting_that_breaks_pausing_is_found(made: dict[str, Any], check: str, state: State):
    found = bad(of(made))
    assert found[check] is state
    assert {name: value for name, value in found.items() if name != check} == {
        name: value for name, value in UNSEEN.items() if name != check
    }


@pytest.mark.parametrize("word", [True, "auto"])
def test_a_server_is_pausable_where_a_profile_says_so(word: Any):
    made = values("singleuser", "profileList", to=[{"display_name": "GPU", "gke": {"pausable": word}}])
    made["hub"]["extraConfig"] = {"pausing": SETTINGS.replace("c.GKEWorkspaceSpawner.pausable = True", "")}
    assert bad(of(made)) == UNSEEN


def test_a_profile_that_says_no_makes_nothing_pausable():
    made = values("singleuser", "profileList", to={"a": {"display_name": "GPU", "gke": {"pausable": "no"}}})
    made["hub"]["extraConfig"] = {"pausing": SETTINGS.replace("c.GKEWorkspaceSpawner.pausable = True", "")}
    assert bad(of(made)) != UNSEEN


def test_under_the_policy_stop_containers_beside_it_and_a_public_image_are_no_fault():
    made = values("singleuser", "extraContainers", to=[{"name": "proxy"}])
    made["hub"]["config"]["GKEWorkspaceSpawner"] = {"post_checkpoint": "stop"}
    made["singleuser"]["image"]["name"] = "quay.io/jupyter/scipy-notebook"
    assert bad(of(made)) == {**UNSEEN, "values-image": WARNING}


def test_an_image_that_every_profile_replaces_is_not_looked_at():
    own = {"kubespawner_override": {"image": "example.org/gpu"}}
    made = values("singleuser", "image", "name", to="quay.io/jupyter/scipy-notebook")
    made["singleuser"]["profileList"] = [own, own]
    assert of(made).images == ("example.org/gpu",)
    made["singleuser"]["profileList"] = [own, {"display_name": "plain"}]
    assert of(made).images == ("quay.io/jupyter/scipy-notebook:1", "example.org/gpu")


def test_no_culler_is_well():
    assert bad(of(values("cull", "enabled", to=False))) == UNSEEN


@pytest.mark.parametrize(
    ("before", "after", "check", "state"),
    [
        ("--timeout=43200", "--timeout=600", "values-cull", WARNING),
        ('"--timeout=43200"', '"--timeout=43200", "--cull-users"', "values-cull", FAULT),
        ('"--timeout=43200"', '"--timeout=43200", "--max-age=7200"', "values-cull", WARNING),
        ("http_timeout = 120", "http_timeout = 10", "values-timeouts", WARNING),
        ("c.KubeSpawner.image", "c.JupyterHub.db_url = 'sqlite:///:memory:'\nc.KubeSpawner.image", "values-database", FAULT),
        ('"example.org/lab:1"', "environ['IMAGE']", "values-image", UNKNOWN),
        ("c.KubeSpawner.image", "c.KubeSpawner.init_containers = " + repr(PRIVILEGED) + "\nc.KubeSpawner.image", "values-metadata", FAULT),
        ("c.KubeSpawner.image", "c.KubeSpawner.extra_containers = [{'name': 'proxy'}]\nc.KubeSpawner.image", "values-containers", FAULT),
    ],
)
def test_each_setting_of_a_config_file_that_breaks_pausing_is_found(before: str, after: str, check: str, state: State):
    assert before in CONFIG
    found = bad(parse("jupyterhub_config.py", CONFIG.replace(before, after)))
    assert found[check] is state
    assert {name: value for name, value in found.items() if name != check} == {
        name: value for name, value in UNSEEN.items() if name != check
    }


def test_the_setting_of_our_own_class_wins():
    config = CONFIG + "\nc.GKEWorkspaceSpawner.http_timeout = 10\n"
    assert bad(parse("jupyterhub_config.py", config))["values-timeouts"] is WARNING


@pytest.mark.parametrize(
    ("name", "text"),
    [("values.yaml", "a: ["), ("values.yaml", "- 1"), ("config.py", "c. = 3"), ("values.yaml", "hub: {extraConfig: {a: 'c. = 3'}}")],
)
def test_what_cannot_be_read_is_one_sentence(name: str, text: str, tmp_path: Path):
    with pytest.raises(Unreadable):
        parse(name, text)
    (tmp_path / name).write_text(text, encoding="utf-8")
    answer = read_values(tmp_path / name)
    assert isinstance(answer, Unread)
    assert bad(answer) == {"values": UNKNOWN}


@pytest.mark.parametrize(
    "text",
    [
        "hub: 3",
        "hub: {config: 1, extraConfig: [1], image: x}\nsingleuser: []\ncull: 1",
        "singleuser: {profileList: x, startTimeout: a}",
        "",
    ],
)
def test_values_of_another_shape_are_no_crash(text: str):
    assert "values-spawner" in bad(parse("values.yaml", text))
