"""A Jupyter server that freezes its user's processes itself, as in a pod: saved while they stand, and restored."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from gke_workspaces_spawner.sandbox import Saved
from tests.hub.ext_process import BASE, ROOT, Remote
from tests.hub.ext_server import SECRET, read

from .conftest import Lab

COUNT = """
import multiprocessing
def run(number):
    while True: number.value += 1
number = multiprocessing.get_context("fork").Value("Q", lock=False)
multiprocessing.get_context("fork").Process(target=run, args=(number,), daemon=True).start()
while not number.value: pass
print("ready")
"""


@pytest.mark.parametrize("told", [True, False], ids=["told by the sandbox", "by the wall clock"])
async def test_a_restored_server_lets_its_processes_go_on(lab: Lab, told: bool) -> None:
    clock = lab.home() / "clock"
    clock.write_text("0")
    spec = lab.spec(readonly=(str(ROOT),))
    checkpoint = "/proc/gvisor/checkpoint" if told else "/nonexistent"
    argv = (sys.executable, "-m", "tests.hub.ext_process", "8888", checkpoint, f"{spec.home_inside}/clock")
    more = {"HOME": spec.home_inside, "PYTHONPATH": str(ROOT), "PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"}
    spec = spec._replace(argv=argv, env={**spec.env, **more})
    address = await lab.sandboxes.start("one", spec, {"GKE_WORKSPACES_GUEST_SECRET": SECRET})
    server = Remote(8888, BASE, host=address.ip)
    await asyncio.wait_for(server.answering(), 60)
    kernel_id = await server.kernel()
    assert await server.run(kernel_id, COUNT) == "ready\n"
    before = read(await server.hub("identity"))["identity"]
    answer = await server.freeze()
    assert answer.code == 200, answer.body
    assert read(answer)["frozen"]["processes"] == 2

    assert isinstance(await lab.save(), Saved)
    await lab.sandboxes.thaw("one", "p1")  # the sandbox goes on, and what the server has stopped stands
    assert read(await server.hub("frozen", {"pause_id": "p1", "seconds": 9}))["frozen"] is True
    await lab.pause("one", "p2", "s2")
    if not told:
        clock.write_text("601")

    address = await lab.sandboxes.restore("one", spec, "s2")
    server = Remote(8888, BASE, host=address.ip)
    server.clock.ahead = 0 if told else 601
    await asyncio.wait_for(server.answering(), 60)  # it lets clients in when its processes go on; no call of the Hub
    assert await server.run(kernel_id, "a = number.value\nwhile number.value == a: pass\nprint('goes on')") == "goes on\n"
    assert read(await server.hub("identity"))["identity"] == before
