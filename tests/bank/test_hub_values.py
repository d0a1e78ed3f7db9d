"""Our lines at the end of Hub configurations found in the world: each still means what it meant, and a real JupyterHub takes it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gke_workspaces_spawner.hubapi.scopes import KICK, PAUSE

from .conftest import BANK

ROOT = Path(__file__).resolve().parents[2]
LOADER = Path(__file__).with_name("load_hubs.py")
FILES = [path.name for path in sorted((BANK / "values").glob("*.yaml"))]
SERVICE = "gke-workspaces"
GRANTED = {"user": f"{PAUSE}!user", "server": f"{PAUSE}!server"}
OURS = {"tornado_settings", "template_vars", "custom_scopes"}
"""Settings of JupyterHub that are mappings, to which we add entries."""

Made = dict[str, Any]


@pytest.fixture(scope="module")
def hubs(bank: Path) -> dict[str, list[dict[str, Made]]]:
    """What a real JupyterHub makes of each file's Hubs, ``without`` and ``with`` our lines."""
    paths = [str(bank / "values" / name) for name in FILES]
    done = subprocess.run([sys.executable, str(LOADER), *paths], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[dict[str, Made]]] = json.loads(done.stdout)
    return found


def test_the_bank_holds_hubs_that_change_the_roles_which_we_add_to(hubs: dict[str, list[dict[str, Made]]]) -> None:
    """What follows would prove nothing on configurations that are all alike."""
    pairs = [pair for pairs in hubs.values() for pair in pairs]
    settings = [pair["without"]["settings"] for pair in pairs if "settings" in pair["without"]]
    roles = [ast.literal_eval(role) for each in settings for role in each["JupyterHub.load_roles"]]
    assert len(settings) > 20
    assert len(pairs) - len(settings) <= 1, "what is made for a checker of values only"
    assert {"user", "server"} <= {role["name"] for role in roles}
    assert len([each for each in settings if len(each["JupyterHub.services"]) > 1]) > 1


@pytest.mark.parametrize("file", FILES)
def test_roles_keep_what_they_may_and_only_the_pause_scope_is_new(hubs: dict[str, list[dict[str, Made]]], file: str) -> None:
    for pair in hubs[file]:
        if "refused" in pair["without"]:
            assert pair["with"] == pair["without"]
            continue
        before, after = pair["without"]["roles"], pair["with"]["roles"]
        assert set(after) - set(before) == {SERVICE}
        assert after[SERVICE] == {"scopes": [KICK], "users": [], "services": [SERVICE], "groups": []}
        for name, role in before.items():
            scopes = sorted([*role["scopes"], GRANTED[name]] if name in GRANTED else role["scopes"])
            assert after[name] == {**role, "scopes": scopes}, name


@pytest.mark.parametrize("file", FILES)
def test_settings_services_and_people_are_those_of_the_deployment(hubs: dict[str, list[dict[str, Made]]], file: str) -> None:
    for pair in hubs[file]:
        before, after = pair["without"], pair["with"]
        if "refused" in before:  # looked at above
            continue
        assert set(after["services"]) - set(before["services"]) == {SERVICE}
        assert set(before["services"]) <= set(after["services"])
        assert after["admins"] == before["admins"]
        for name, value in before["settings"].items():
            now = after["settings"][name]
            if name == "JupyterHub.load_roles":  # looked at above, as the Hub took them
                continue
            if isinstance(value, list):
                assert now[: len(value)] == value, name  # theirs first: handlers and templates of a deployment win
            elif name == "JupyterHub.template_vars":
                assert ast.literal_eval(value).items() <= ast.literal_eval(now).items()
            else:
                assert now == value, name
        ours = set(after["settings"]) - set(before["settings"])
        assert {name.partition(".")[0] for name in ours} == {"JupyterHub"}
