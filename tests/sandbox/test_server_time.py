"""A pause is a jump in time: nobody was idle meanwhile, and the clocks inside are right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.hub.running import RunningHub, wait_for
from tests.sandbox.jupyter import Jupyter
from tests.sandbox.local_hub import local_hub

IDLE_SECONDS = 5
CULLING = [f"--MappingKernelManager.cull_idle_timeout={IDLE_SECONDS}", "--MappingKernelManager.cull_interval=1"]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with local_hub(tmp_path_factory.mktemp("time"), {"spawner": {"args": CULLING}}) as hub:
        yield hub


@pytest.fixture(scope="module")
def jupyter(hub: RunningHub) -> Jupyter:
    hub.start_server("ann")
    return Jupyter(hub, "ann")


def pause_longer_than_idle(jupyter: Jupyter) -> float:
    """Pause for longer than a kernel may be idle; when the resume was asked for (wall clock)."""
    freed = jupyter.pause()["pause"]["clocks"]["freed"]
    wait_for("a pause that is longer than the limit", lambda: time.time() > freed + IDLE_SECONDS + 1)
    asked = time.time()
    jupyter.resume()
    return asked


def last_activity(jupyter: Jupyter) -> float:
    return datetime.fromisoformat(jupyter.hub.model(jupyter.user)["last_activity"].replace("Z", "+00:00")).timestamp()


def test_a_kernel_is_not_culled_for_the_time_of_a_pause_and_culling_goes_on_afterwards(jupyter: Jupyter) -> None:
    kernel = jupyter.kernel()
    jupyter.run(kernel, "x = 1")
    pause_longer_than_idle(jupyter)
    back = time.monotonic()
    looks = 0
    while time.monotonic() < back + 2.5:  # more than two ticks of the culler
        assert kernel in jupyter.kernels(), f"culled {time.monotonic() - back:.1f} s after the resume"
        looks += 1
    assert looks > 3
    assert jupyter.run(kernel, "print(x)") == "1"
    wait_for("the culler's work", lambda: kernel not in jupyter.kernels(), IDLE_SECONDS + 20)


def test_the_hub_learns_of_activity_after_a_resume_though_nobody_has_asked_anything(jupyter: Jupyter) -> None:
    asked = pause_longer_than_idle(jupyter)
    wait_for("activity later than the resume", lambda: last_activity(jupyter) > asked)
    assert last_activity(jupyter) < time.time() + 1


CLOCKS = "import time; print(time.time(), time.monotonic())"
LOOP = """
import asyncio, threading
ticks = []
async def tick():
    while True: ticks.append(time.time()); await asyncio.sleep(0.05)
threading.Thread(target=lambda: asyncio.run(tick()), daemon=True).start()
"""


def test_both_clocks_inside_have_moved_on_by_the_pause_and_timers_go_on(jupyter: Jupyter) -> None:
    kernel = jupyter.kernel()
    here = time.monotonic()
    wall, monotonic = (float(number) for number in jupyter.run(kernel, CLOCKS).split())
    jupyter.run(kernel, LOOP)
    jupyter.pause()
    jupyter.resume()
    before = time.time()
    wall_after, monotonic_after = (float(number) for number in jupyter.run(kernel, CLOCKS).split())
    assert before - 0.5 < wall_after < time.time() + 0.5
    passed = time.monotonic() - here
    assert wall_after - wall == pytest.approx(passed, abs=3)
    assert monotonic_after - monotonic == pytest.approx(passed, abs=3)
    assert int(jupyter.run(kernel, "n = len(ticks); time.sleep(0.5); print(len(ticks) - n)")) >= 3
