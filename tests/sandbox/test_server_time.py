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


def pause_longer_than_idle(jupyter: Jupyter) -> None:
    """Pause for longer than a kernel may be idle, and resume."""
    freed = jupyter.pause()["pause"]["clocks"]["freed"]
    wait_for("a pause that is longer than the limit", lambda: time.time() > freed + IDLE_SECONDS + 1)
    jupyter.resume()


def hub_says(jupyter: Jupyter, what: str) -> float:
    """A time of the Hub's model of the server, in seconds since the epoch."""
    text: str = jupyter.hub.model(jupyter.user)[what]
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


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
    pause_longer_than_idle(jupyter)
    # The Hub's start sets both to the same moment; what comes later was reported by the server.
    wait_for("activity later than the start of the resume", lambda: hub_says(jupyter, "last_activity") > hub_says(jupyter, "started"))
    assert hub_says(jupyter, "last_activity") < time.time() + 1


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
