"""Hubs of the hub level, one per module: starting one takes seconds."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from .running import ROOT, RunningHub, running_hub

CONFIG = ROOT / "tests" / "hub" / "hub_config.py"
numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The machine may be busy: what waits for processes gets more time than the default."""
    for item in items:
        if "hub" in item.keywords and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="module")
def light_hub(tmp_path_factory: pytest.TempPathFactory, output_root: Path, request: pytest.FixtureRequest) -> Iterator[RunningHub]:
    """A Hub whose servers start in a moment; a module's ``SETTINGS`` are merged into its settings."""
    folder = tmp_path_factory.mktemp("hub")
    settings = {"light": True, **getattr(request.module, "SETTINGS", {})}
    with running_hub(folder, CONFIG, settings) as hub:
        try:
            yield hub
        finally:
            shutil.copy(folder / "hub.log", output_root / f"hub-{request.module.__name__.rpartition('.')[2]}.log")


@pytest.fixture
def hub(light_hub: RunningHub) -> Iterator[RunningHub]:
    """The module's Hub without faults, before and after."""
    light_hub.fault()
    yield light_hub
    light_hub.fault()


@pytest.fixture
def ann() -> str:
    """A user of this test alone."""
    return f"ann{next(numbers)}"
