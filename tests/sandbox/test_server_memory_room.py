"""A resume that the machine's memory has no room for is refused, or waits, before anything is touched; with the real engine."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.running import RunningHub, wait_for
from tests.sandbox.jupyter import Jupyter
from tests.sandbox.local_hub import local_hub

WAIT_SECONDS = 8
MORE_THAN_THERE_IS = 1 << 60


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with local_hub(tmp_path_factory.mktemp("memory"), {"spawner": {"wait_timeout": WAIT_SECONDS}}) as hub:
        yield hub


@pytest.fixture(scope="module")
def paused(hub: RunningHub) -> Jupyter:
    """A paused server whose kernel (its only one) has a variable."""
    hub.start_server("ann")
    ann = Jupyter(hub, "ann")
    ann.run(ann.kernel(), "x = 42")
    ann.pause()
    return ann


@contextlib.contextmanager
def ballast() -> Iterator[int]:
    """A quarter of what is free, used by somebody else; bytes. Half of it is what others may take or give back meanwhile."""
    size = available() // 4
    with contextlib.closing(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)):
        yield size


def available() -> int:
    """What this machine can give, bytes."""
    rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(rows["MemAvailable"].split()[0]) * 1024


def with_reserve(hub: RunningHub, size: int) -> None:
    """The Hub again, which leaves so much memory free."""
    hub.settings["spawner"]["memory_reserve"] = size
    hub.restart()


def nothing_was_touched(hub: RunningHub, before: dict[str, object]) -> None:
    """No sandbox was begun, and the snapshot is what it was."""
    assert not any((hub.folder / "state" / "sandboxes").iterdir())
    assert hub.workspace("ann")["snapshot"] == before


def test_what_can_never_fit_is_refused_at_once(hub: RunningHub, paused: Jupyter) -> None:
    snapshot = hub.workspace("ann")["snapshot"]
    with_reserve(hub, MORE_THAN_THERE_IS)
    status, answer = hub.ask("POST", "ann")
    view = hub.workspace("ann")
    assert status == 409, answer
    assert (view["phase"], view["reason"]["code"]) == ("paused", "not_enough_memory")
    assert view["reason"]["sentence"] in answer["message"]
    assert "this machine has" in view["detail"]
    nothing_was_touched(hub, snapshot)


def test_what_does_not_fit_now_waits_and_comes_back_when_there_is_room(hub: RunningHub, paused: Jupyter) -> None:
    snapshot = hub.workspace("ann")["snapshot"]
    with ballast() as size:
        with_reserve(hub, available() - snapshot["bytes"] + size // 2)
        status, answer = hub.ask("POST", "ann")
        view = hub.workspace("ann")
        assert (status, view["phase"]) == (202, "waiting"), answer
        assert view["hub"]["pending"] is None
        assert "not enough free memory" in view["sentence"]
        assert "are free for servers" in view["detail"]
        nothing_was_touched(hub, snapshot)
        view = hub.wait_phase("paused", "ann", seconds=WAIT_SECONDS + 30)
        assert view["reason"]["code"] == "not_enough_memory"
        nothing_was_touched(hub, snapshot)

        assert hub.ask("POST", "ann")[0] == 202
        assert hub.workspace("ann")["phase"] == "waiting"
        nothing_was_touched(hub, snapshot)
    view = hub.wait_phase("running", "ann", seconds=WAIT_SECONDS + 30)
    assert view["receipt"]["resumed"] is True
    wait_for("a ready server", lambda: hub.workspace("ann")["hub"]["ready"])
    (kernel,) = paused.kernels()
    assert paused.run(kernel, "print(x)") == "42"
