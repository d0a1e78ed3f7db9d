"""A real JupyterLab server with its kernels goes through pauses as if nothing had happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.running import RunningHub, wait_for
from tests.sandbox.jupyter import Jupyter
from tests.sandbox.local_hub import local_hub
from tests.sandbox.memories import LOAD, LOOK

COUNT = "print(get_ipython().execution_count)"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with local_hub(tmp_path_factory.mktemp("memory")) as hub:
        yield hub


@pytest.fixture(scope="module")
def neighbours(hub: RunningHub) -> list[Jupyter]:
    """Two other servers that run all the time: a bridge with one sandbox hides what a second one shows."""
    servers = [Jupyter(hub, "neighbour", name) for name in ("one", "two")]
    for each in servers:
        hub.start_server(each.user, each.server)
    return servers


def begin(hub: RunningHub, user: str) -> Jupyter:
    hub.start_server(user)
    return Jupyter(hub, user)


@pytest.mark.parametrize("loop", ["asyncio", "poll"])
def test_variables_threads_files_and_terminals_survive_ten_pauses(
    tmp_path_factory: pytest.TempPathFactory, loop: str, request: pytest.FixtureRequest
) -> None:
    if loop == "asyncio":
        hub: RunningHub = request.getfixturevalue("hub")
        request.getfixturevalue("neighbours")
        cycles(hub, 10)
    else:
        command = ["python", "-m", "jupyter_pause_ext.singleuser"]
        with local_hub(tmp_path_factory.mktemp("poll"), {"spawner": {"cmd": command}}) as hub:
            cycles(hub, 4)


def cycles(hub: RunningHub, count: int) -> None:
    jupyter = begin(hub, "ann")
    kernels = {number: jupyter.kernel() for number in (1, 2)}
    loaded = {number: jupyter.run(kernel, LOAD.format(x=number, megabytes=4)) for number, kernel in kernels.items()}
    counted = int(jupyter.run(kernels[1], COUNT))
    terminal = jupyter.terminal()
    jupyter.type(terminal, "secret_word=swordfish; echo rea''dy", "ready")
    for cycle in range(count):
        with jupyter.channels(kernels[1]) as live:
            live.run("print('a browser is connected')")
            paused = jupyter.pause()
            assert paused["snapshot"]["bytes"] > 8 << 20
            receipt = jupyter.resume()["receipt"]
        assert receipt["resumed"] is True, receipt
        assert set(jupyter.kernels()) == set(kernels.values())
        for number, kernel in kernels.items():
            assert jupyter.run(kernel, LOOK) == f"{loaded[number]} {number} True 5 hello"
        assert "swordfish" in jupyter.type(terminal, f"echo $secret_word-{cycle}", f"swordfish-{cycle}")
    assert int(jupyter.run(kernels[1], COUNT)) == counted + 2 * count + 1


def test_half_a_gigabyte_comes_back_to_the_byte(hub: RunningHub, neighbours: list[Jupyter]) -> None:
    jupyter = begin(hub, "big")
    kernel = jupyter.kernel()
    loaded = jupyter.run(kernel, LOAD.format(x=7, megabytes=512))
    jupyter.pause()
    assert jupyter.resume()["receipt"]["resumed"] is True
    assert jupyter.run(kernel, LOOK) == f"{loaded} 7 True 5 hello"


def test_a_cell_that_runs_goes_on_and_its_output_is_complete_without_any_tab(hub: RunningHub, neighbours: list[Jupyter]) -> None:
    jupyter = begin(hub, "cell")
    kernel = jupyter.kernel()
    code = "import time, os\nfor i in range(60):\n    print('line', i, flush=True); time.sleep(0.1)\nprint('pid', os.getpid())"
    pid = jupyter.run(kernel, "import os; print(os.getpid())")
    with jupyter.channels(kernel) as channels:
        message_id = channels.send(code, cell_id="the-cell")
        for message in channels.messages(message_id):
            if message["msg_type"] == "stream" and "line 2" in message["content"]["text"]:
                break
        jupyter.pause()
    jupyter.resume()

    def journal() -> dict[str, object] | None:
        cells = jupyter.call("GET", f"/jupyter-pause/v1/journal?kernel_id={kernel}")[1]["cells"]
        return next((c for c in cells if c["cell_id"] == "the-cell" and c["done"]), None)

    cell = wait_for("the end of the cell in the journal", journal)
    text = "".join(output["text"] for output in cell["outputs"])
    assert text == "".join(f"line {i}\n" for i in range(60)) + f"pid {pid}\n"


def test_what_is_asked_at_once_after_a_resume_is_answered(hub: RunningHub, neighbours: list[Jupyter]) -> None:
    """A listening socket restored into a new namespace answers from the first moment (30 rounds of a known trap)."""
    jupyter = begin(hub, "prompt")
    for _ in range(5):
        jupyter.pause()
        jupyter.resume()
        status, answer = jupyter.call("GET", "/api/status")
        assert status == 200, answer


def test_each_server_of_two_resumes_into_its_own_memory(hub: RunningHub, neighbours: list[Jupyter]) -> None:
    kernels = {each.server: each.kernel() for each in neighbours}
    for each in neighbours:
        each.run(kernels[each.server], f"mine = {each.server!r}")
        each.pause()
    for each in neighbours:
        hub.start_server(each.user, each.server, wait=False)
    for each in neighbours:
        hub.wait_ready(each.user, each.server)
        assert each.run(kernels[each.server], "print(mine)") == each.server


def test_snapshots_and_state_are_for_root_only(hub: RunningHub) -> None:
    state = Path(hub.folder, "state")
    for folder in (state, state / "snapshots", *state.glob("snapshots/*")):
        assert folder.stat().st_mode & 0o077 == 0, folder
