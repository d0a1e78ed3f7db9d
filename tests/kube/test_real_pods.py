"""A real JupyterLab in a gVisor sandbox as a pod: paused by Pod Snapshots, resumed on another node and address as the same processes."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.emulator.api import Api, Object, condition
from tests.emulator.cluster import NAMESPACE
from tests.emulator.nodes import Nodes
from tests.emulator.running import RunningEmulator
from tests.hub.running import RunningHub, wait_for
from tests.sandbox.jupyter import Jupyter
from tests.sandbox.memories import LOAD, LOOK

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="real pods are sandboxes with networks: run it as root")

T = TypeVar("T")
MEBIBYTES = 32
"""Of each of two kernels."""
CELL = "import time\nfor i in range({lines}):\n    print('line', i, flush=True); time.sleep(0.1)\nprint('done', x)"
LINES = 60


class Hub(RunningHub):
    """The hub of an emulated cluster that somebody else has started."""

    def __init__(self, emulator: RunningEmulator) -> None:
        super().__init__(emulator.folder, Path("unused"))
        self.url, self.admin_token = emulator.facts["hub_url"].removesuffix("/hub"), emulator.facts["admin_token"]


class Pods:
    """What the cluster says of the pods of that hub."""

    def __init__(self, emulator: RunningEmulator) -> None:
        self._facts = emulator.facts

    def ask(self, work: Callable[[Api], Awaitable[T]]) -> T:
        """Do that as an administrator of the cluster."""

        async def do() -> T:
            async with Api(Path(self._facts["kubeconfig"])) as api:
                return await work(api)

        return asyncio.run(do())

    def of(self, user: str) -> list[Object]:
        pods = self.ask(lambda api: api.list("Pod", NAMESPACE))
        return [pod for pod in pods if pod["metadata"]["name"] == f"jupyter-{user}"]

    def the(self, user: str) -> Object:
        (pod,) = self.of(user)
        return pod

    def cordon(self, node: str, on: bool) -> None:
        self.ask(lambda api: Nodes(api, self._facts["kubelet_port"]).cordon(node, on))


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory, output_root: Path) -> Iterator[RunningEmulator]:
    """A cluster of its own, with a hub, whose pods are sandboxes."""
    folder = tmp_path_factory.mktemp("real")
    settings = ("--set", "KubeSpawner.mem_limit=768M", "--set", "KubeSpawner.delete_grace_period=1")
    running = RunningEmulator(folder, "--real-pods", "--users", "0", *settings)
    running.start()
    try:
        yield running
    finally:
        running.close()
        for log in folder.rglob("*.log"):
            shutil.copy(log, output_root / f"kube-real-{log.name}")


@pytest.fixture(scope="module")
def hub(emulator: RunningEmulator) -> Hub:
    return Hub(emulator)


@pytest.fixture(scope="module")
def pods(emulator: RunningEmulator) -> Pods:
    return Pods(emulator)


def test_everything_that_runs_comes_back_on_another_node_and_address_three_times(hub: Hub, pods: Pods) -> None:
    hub.start_server("ann")
    jupyter = Jupyter(hub, "ann")
    kernels = {number: jupyter.kernel() for number in (1, 2)}
    loaded = {number: jupyter.run(kernel, LOAD.format(x=number, megabytes=MEBIBYTES)) for number, kernel in kernels.items()}
    terminal = jupyter.terminal()
    jupyter.type(terminal, "secret_word=swordfish; echo rea''dy", "ready")
    with jupyter.channels(kernels[2]) as channels:
        message_id = channels.send(CELL.format(lines=LINES), cell_id="the-cell")
        for message in channels.messages(message_id):
            if message["msg_type"] == "stream" and "line 2" in message["content"]["text"]:
                break
        moved(hub, pods)
    cell = wait_for("the end of the cell in the journal", lambda: the_cell(jupyter, kernels[2]))
    assert "".join(output["text"] for output in cell["outputs"]) == "".join(f"line {i}\n" for i in range(LINES)) + "done 2\n"
    for cycle in range(3):
        if cycle:
            moved(hub, pods)
        assert set(jupyter.kernels()) == set(kernels.values())
        for number, kernel in kernels.items():
            assert jupyter.run(kernel, LOOK) == f"{loaded[number]} {number} True 5 hello"
        assert "swordfish" in jupyter.type(terminal, f"echo $secret_word-{cycle}", f"swordfish-{cycle}")


def moved(hub: Hub, pods: Pods) -> None:
    """Pause ann's server and resume it elsewhere: a new pod, on another node, at another address, restored as GKE says."""
    before = pods.the("ann")
    paused = hub.pause("ann")
    assert paused["snapshot"]["bytes"] > 2 * MEBIBYTES << 20
    assert not pods.of("ann")
    pods.cordon(before["spec"]["nodeName"], True)
    try:
        resumed = hub.resume("ann")
        hub.wait_ready("ann")
    finally:
        pods.cordon(before["spec"]["nodeName"], False)
    assert resumed["receipt"]["resumed"] is True, resumed["receipt"]
    after = pods.the("ann")
    for of in (lambda pod: pod["metadata"]["uid"], lambda pod: pod["spec"]["nodeName"], lambda pod: pod["status"]["podIP"]):
        assert of(before) != of(after)
    wait_for("GKE's word", lambda: condition(pods.the("ann"), "PodRestored").get("status") == "True")


def the_cell(jupyter: Jupyter, kernel: str) -> dict[str, Any] | None:
    cells = jupyter.call("GET", f"/jupyter-pause/v1/journal?kernel_id={kernel}")[1]["cells"]
    return next((c for c in cells if c["cell_id"] == "the-cell" and c["done"]), None)


def test_a_resumed_server_that_takes_too_much_memory_is_not_restarted_from_its_snapshot_in_place(hub: Hub, pods: Pods) -> None:
    """GKE would restore it again with what was on the home meanwhile: it is over, and its last pause is offered."""
    hub.start_server("bo")
    jupyter = Jupyter(hub, "bo")
    kernel = jupyter.kernel()
    pid = jupyter.run(kernel, "import os; before = 1; print(os.getpid())")
    hub.pause("bo")
    hub.resume("bo")
    hub.wait_ready("bo")
    uid = pods.the("bo")["metadata"]["uid"]
    with jupyter.channels(kernel) as channels:
        channels.send("after = 1; too_much = bytearray(os.urandom(1 << 20)) * 1500")
        view = hub.wait_phase("paused", "bo")
    assert view["reason"]["code"] == "ended_by_itself"
    assert uid not in [pod["metadata"]["uid"] for pod in pods.of("bo")]
    events = pods.ask(lambda api: api.list("Event", NAMESPACE))
    started = [event for event in events if event["involvedObject"].get("uid") == uid and event["reason"] == "Started"]
    assert sum(event.get("count", 1) for event in started) == 1
    wait_for("a hub that knows it", lambda: not hub.model("bo").get("pending"))
    hub.resume("bo")
    hub.wait_ready("bo")
    assert jupyter.run(kernel, "print(os.getpid(), before, 'after' in globals())") == f"{pid} 1 False"
