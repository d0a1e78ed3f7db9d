"""The doctor reads the values of hubs found in the world, and finds what the chart's own defaults break in most of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gke_workspaces_spawner.kube.doctor.examine import read_values
from gke_workspaces_spawner.kube.doctor.findings import State, data
from gke_workspaces_spawner.kube.doctor.hub import check_values
from gke_workspaces_spawner.kube.doctor.values import Deployment

from .conftest import BANK

FILES = [path.name for path in sorted((BANK / "values").glob("*.yaml"))]


@pytest.mark.parametrize("file", FILES)
def test_every_file_of_values_is_read_and_judged(bank: Path, file: str) -> None:
    hub = read_values(bank / "values" / file)
    assert isinstance(hub, Deployment), hub.sentence
    findings = list(check_values(hub, "hub"))
    assert {one.check for one in findings} == {check for check in data("checks") if check.startswith("values")}
    assert all(bool(one.mend) is (one.state is not State.OK) for one in findings)


def test_most_of_them_have_the_init_container_that_breaks_pausing(bank: Path) -> None:
    faults: Counter[str] = Counter()
    for file in FILES:
        faults.update({one.check for one in check_values(read_values(bank / "values" / file), "hub") if one.state is State.FAULT})
    assert len(FILES) > faults["values-metadata"] > len(FILES) / 2
    assert len(FILES) > faults["values-image"] > 0
