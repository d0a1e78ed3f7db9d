"""`gke-workspaces profiles FILE`: a table for people, JSON for programs, exit code 1 on refusals; and the same check in `configure(c)`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from traitlets import TraitError
from traitlets.config import Config

import gke_workspaces_spawner
from gke_workspaces_spawner.cli import main

VALUES = """
jupyterhub:
  singleuser:
    memory: {limit: 32G}
    storage: {dynamic: {storageClass: standard-rwo}}
    profileList:
      - display_name: L4
        gke: {gpu: {type: nvidia-l4, count: 1}, capacity: spot, pausable: auto}
      - display_name: plain
        kubespawner_override: {mem_limit: 1G}
"""
CONFIG = """
c = get_config()
c.KubeSpawner.profile_list = {
    "b": {"display_name": "B", "gke": {"gpu": {"type": "nvidia-b200"}}},
    "a": {"display_name": "A", "gke": {"capcity": "spot"}},
}
raise SystemExit("it was run")
"""


def run(tmp_path: Path, name: str, text: str, *arguments: str) -> int:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return main(["profiles", str(file), *arguments])


def test_values_become_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "values.yaml", VALUES) == 0
    said = capsys.readouterr().out
    for part in (
        "profile 'L4'\n  machine       g2\n  accelerator   L4 24 GB\n  capacity      Spot: may be taken back",
        "home          Balanced Persistent Disk",
        "pausable      yes, with GPU memory",
        "longest wait  20 min",
        "tolerations   nvidia.com/gpu, cloud.google.com/gke-spot",
    ):
        assert part in said
    assert "1 choice with a gke key can be started; 0 refused, 0 warnings." in said
    assert "plain" not in said


def test_what_the_chart_makes_of_its_values_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "values.yaml", VALUES.replace("32G", "20G"), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    (choice,) = said["choices"]
    assert choice["traits"]["volumes"][0]["emptyDir"]["sizeLimit"] == "10Gi", "half of the memory"
    (finding,) = said["findings"]
    assert (finding["key"], finding["state"]) == ("kubespawner_override.mem_limit", "warning")
    assert run(tmp_path, "values.yaml", VALUES.replace("standard-rwo", "standard")) == 0
    assert "before the machine is chosen" in " ".join(capsys.readouterr().out.split())


def test_a_config_file_is_read_and_not_run_and_refusals_are_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "jupyterhub_config.py", CONFIG, "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert [(one["entry"], one["key"], one["state"]) for one in said["findings"]] == [
        ("profile 'A'", "gke.capcity", "refused"),
        ("profile 'B'", "gke.gpu.count", "refused"),
    ]
    assert said["choices"] == []


def test_findings_are_shown_to_people_with_what_to_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "jupyterhub_config.py", CONFIG) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "refused profile 'A': gke.capcity: There is no such key. Did you mean 'capacity'?" in said
    assert "0 choices with a gke key can be started; 2 refused, 0 warnings." in said


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("values.yaml", "[", "cannot be read as values"),
        ("values.yaml", "singleuser: {}", "no profile list"),
        ("jupyterhub_config.py", "c.KubeSpawner.profile_list = make()", "without running it"),
    ],
)
def test_a_file_without_a_list_is_one_sentence_and_exit_code_2(
    name: str, text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, name, text) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_the_catalogue_of_the_file_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = CONFIG.replace("capcity", "capacity") + 'c.GKEWorkspaceSpawner.catalogue = {"gpus": {"nvidia-b200": {"counts": [1]}}}\n'
    assert run(tmp_path, "jupyterhub_config.py", text) == 0
    assert "B200 180 GB" in capsys.readouterr().out


def test_the_example_of_the_docs_is_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "profiles.md").read_text(encoding="utf-8")
    indented = [line[4:] if line.startswith("    ") else "" for line in page.splitlines()]
    example = "\n".join(indented[: indented.index("gke-workspaces profiles FILE")])
    assert run(tmp_path, "jupyterhub_config.py", example, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["choices"]) == 4
    assert said["findings"] == []


# ---------------------------------------------------------------- in the hub's configuration


def configured(section: str = "KubeSpawner", **settings: Any) -> Config:
    c = Config()
    c[section].update(settings)
    return c


WRONG = [{"display_name": "B", "gke": {"gpu": {"type": "nvidia-b200"}, "zones": "a"}}]


@pytest.mark.parametrize("section", ["Spawner", "KubeSpawner", "GKEWorkspaceSpawner"])
def test_a_wrong_list_stops_the_hub_while_it_reads_its_configuration_with_all_findings(section: str) -> None:
    with pytest.raises(TraitError, match=r"(?s)2 in all.*gke\.zones.*gke\.gpu\.count"):
        gke_workspaces_spawner.configure(configured(section, profile_list=WRONG))


def test_what_is_not_strict_a_function_or_right_does_not() -> None:
    lenient = configured(profile_list=WRONG)
    lenient.GKEWorkspaceSpawner.strict_profiles = False
    for c in (
        lenient,
        configured(profile_list=lambda spawner: WRONG),
        configured(profile_list=[{"display_name": "L4", "gke": {"gpu": {"type": "l4"}}}]),
        configured(),
    ):
        gke_workspaces_spawner.configure(c)
        assert c.JupyterHub.services
