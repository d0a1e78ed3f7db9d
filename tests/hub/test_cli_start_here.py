"""The notebook "Start here" runs with what the package installs, and its proof is not always yes."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest

NOTEBOOK = json.loads(files("gke_workspaces_spawner.cli").joinpath("start_here.ipynb").read_text(encoding="utf-8"))


def run(cell_id: str, namespace: dict[str, Any]) -> None:
    cell = next(cell for cell in NOTEBOOK["cells"] if cell["id"] == cell_id)
    exec("".join(cell["source"]), namespace)


def test_it_loads_a_model_and_tells_the_three_cases_apart(capsys: pytest.CaptureFixture[str]) -> None:
    here: dict[str, Any] = {"__name__": "notebook"}
    run("proof", here)
    assert "This is a new process" in capsys.readouterr().out
    run("load", here)
    out = capsys.readouterr().out
    assert "fingerprint" in out
    assert here["model"].score(here["images"][1500:], here["labels"][1500:]) > 0.9
    run("proof", here)
    assert "Not paused yet" in capsys.readouterr().out
    here["gap"] = 3600.0
    run("proof", here)
    assert "nothing was loaded again" in capsys.readouterr().out
    here["before"]["pid"] += 1
    run("proof", here)
    assert "DIFFERENT" in (shown := capsys.readouterr().out)
    assert "should never happen" in shown


def test_it_is_shipped_without_outputs() -> None:
    assert all(cell.get("outputs", []) == [] and cell.get("execution_count") is None for cell in NOTEBOOK["cells"])
