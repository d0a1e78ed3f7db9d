"""What the docs say is what the code does, as far as a program can see."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_workspaces_spawner.cli import _parser
from gke_workspaces_spawner.lifecycle import reasons

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]+)(#[^)\s]+)?\)")


def generate():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path):
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        file = page.parent / target
        assert file.exists(), f"{target} is not there"
        assert not anchor or anchor[1:] in anchors(file), f"{target} has no heading {anchor}"


def test_the_reference_pages_are_as_the_code_is(capsys: pytest.CaptureFixture[str]):
    assert generate().main(["--check"]) == 0, capsys.readouterr().out


def test_every_setting_has_help_that_is_a_sentence():
    module = generate()
    owners = module.configurables()
    assert "LocalWorkspaceSpawner" in {owner.__name__ for owner in owners}
    for owner in owners:
        for name, trait in module.own_traits(owner):
            assert re.search(r"[.!?)]\s*$", trait.help or ""), f"{owner.__name__}.{name} has no help that ends as a sentence does"


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    text = (ROOT / "gke_workspaces_spawner" / "hubapi" / "openapi.yaml").read_text(encoding="utf-8")
    spec: dict[str, Any] = yaml.safe_load(text)
    return spec


def test_every_route_of_the_openapi_file_is_in_the_page_about_rest(openapi: dict[str, Any]):
    page = (ROOT / "docs" / "rest-api.md").read_text(encoding="utf-8")
    verbs = openapi["components"]["parameters"]["verb"]["schema"]["enum"]
    routes = {
        (method.upper(), re.sub(r"^/users/\{user_name\}/server(s/\{server_name\})?", "", path).replace("{verb}", verb))
        for path, operations in openapi["paths"].items()
        for method in operations.keys() & {"get", "post", "put", "patch", "delete"}
        for verb in verbs
    }
    for method, path in sorted(routes):
        assert re.search(rf"\| `{method} [^`]*{re.escape(path)}` \|", page), f"{method} {path} is not in docs/rest-api.md"


def test_every_reason_code_that_the_openapi_file_names_has_words(openapi: dict[str, Any]):
    said = " ".join(response["description"] for response in openapi["components"]["responses"].values())
    assert set(re.findall(r"`([a-z_]+)`", said)) <= reasons.table().keys()


def test_every_argument_of_the_command_is_explained():
    page = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("local-use.md", "doctor.md", "profiles.md"))
    (commands,) = (action for action in _parser()._actions if action.choices and action.dest != "help")
    assert isinstance(commands.choices, dict)
    for name, command in commands.choices.items():
        assert f"gke-workspaces {name}" in page
        for option in command._option_string_actions.keys() - {"-h", "--help"}:
            assert f"`{option}" in page, f"{name} {option} is in none of the pages on the command"


def test_the_map_names_only_what_is_there():
    folders = ("gke_workspaces_spawner", "jupyter_pause_ext", "docs", "tools", ".ci")
    there = {file.name for folder in folders for file in (ROOT / folder).rglob("*") if file.is_file()}
    named = set(re.findall(r"(?<![\w.-])[a-z_-]+\.(?:py|toml|yaml|md)\b", (ROOT / "docs" / "map.md").read_text(encoding="utf-8")))
    assert named - there == set()


def test_every_page_of_the_docs_can_be_reached_from_the_readme():
    seen, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in seen and page.exists():
            seen.add(page)
            links = LINK.findall(page.read_text(encoding="utf-8"))
            ahead += [(page.parent / target).resolve() for target, _ in links if target.endswith(".md")]
    assert not [str(page.relative_to(ROOT)) for page in PAGES if page not in seen and page.parent.name == "docs"]
