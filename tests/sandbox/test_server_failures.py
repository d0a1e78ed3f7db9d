"""Whatever goes wrong with a save or a restore of a real sandbox, nothing is lost and the user is told the reason."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from gke_workspaces_spawner.sandbox.processes import command_lines
from tests.hub.running import RunningHub, wait_for
from tests.sandbox.faulty_runsc import FaultyRunsc
from tests.sandbox.jupyter import Jupyter
from tests.sandbox.local_hub import local_hub, runsc

LOAD = "import os, threading, time; mine = os.urandom(8).hex(); print(os.getpid(), mine)"
LOOK = "print(os.getpid(), mine)"
PAUSE_TIMEOUT = 12


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> FaultyRunsc:
    return FaultyRunsc(tmp_path_factory.mktemp("faulty") / "bin", runsc())


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, faulty: FaultyRunsc) -> Iterator[RunningHub]:
    folder = tmp_path_factory.mktemp("failures")
    with local_hub(folder, {"runsc": str(faulty.path), "spawner": {"pause_timeout": PAUSE_TIMEOUT, "restore_timeout": 40}}) as hub:
        yield hub


@pytest.fixture(autouse=True)
def no_faults(faulty: FaultyRunsc) -> Iterator[None]:
    faulty.faults()
    yield
    faulty.faults()


@pytest.fixture(scope="module")
def jupyter(hub: RunningHub) -> Jupyter:
    hub.start_server("ann")
    return Jupyter(hub, "ann")


@pytest.fixture(scope="module")
def kernel(jupyter: Jupyter) -> tuple[str, str]:
    """A kernel, and what it prints as long as it is the same process."""
    kernel = jupyter.kernel()
    return kernel, jupyter.run(kernel, LOAD)


def ask_for_a_pause(jupyter: Jupyter) -> None:
    status, answer = jupyter.hub.ask("POST", jupyter.user, jupyter.server, "/pause", {})
    assert status == 202, answer


def goes_on(jupyter: Jupyter, kernel: tuple[str, str], reason: str) -> None:
    """The server is running as before, and the view says why it is not paused."""
    view = jupyter.hub.wait_phase("running", jupyter.user, jupyter.server)
    assert view["reason"]["code"] == reason, view
    assert view["reason"]["sentence"]
    jupyter.hub.wait_ready(jupyter.user, jupyter.server)
    assert jupyter.run(kernel[0], LOOK) == kernel[1]
    snapshots = jupyter.hub.folder / "state" / "snapshots"
    kept = {s["id"] for s in view["snapshots"]}
    assert {path.name for path in snapshots.iterdir()} == kept


def test_a_failed_checkpoint_leaves_the_server_running(jupyter: Jupyter, kernel: tuple[str, str], faulty: FaultyRunsc) -> None:
    faulty.faults("checkpoint-fails")
    ask_for_a_pause(jupyter)
    goes_on(jupyter, kernel, "disk_full")


def test_a_hanging_checkpoint_ends_at_its_limit(jupyter: Jupyter, kernel: tuple[str, str], faulty: FaultyRunsc) -> None:
    faulty.faults("checkpoint-hangs")
    ask_for_a_pause(jupyter)
    goes_on(jupyter, kernel, "save_timeout")


def test_a_cancelled_pause_leaves_the_server_running(jupyter: Jupyter, kernel: tuple[str, str], faulty: FaultyRunsc) -> None:
    faulty.faults("checkpoint-slow")
    ask_for_a_pause(jupyter)
    wait_for("the save", (faulty.folder / "slow").exists)
    (faulty.folder / "slow").unlink()
    pause_id = jupyter.hub.workspace("ann")["pause"]["id"]
    assert jupyter.hub.ask("POST", "ann", "", f"/pause/{pause_id}/cancel", {})[0] == 202
    goes_on(jupyter, kernel, "cancelled")


def shim_of(hub: RunningHub) -> int:
    """The pid of the one sandbox's shim."""
    state = str(hub.folder / "state")
    shims = [pid for pid, words in command_lines() if any("sandbox.shim" in word for word in words) and holds(pid, state)]
    assert len(shims) == 1, shims
    return shims[0]


def holds(pid: int, folder: str) -> bool:
    return any(os.readlink(f"/proc/{pid}/fd/{fd}").startswith(folder) for fd in os.listdir(f"/proc/{pid}/fd"))


def test_a_killed_shim_leaves_the_server_running(jupyter: Jupyter, kernel: tuple[str, str], faulty: FaultyRunsc) -> None:
    faulty.faults("checkpoint-slow")
    ask_for_a_pause(jupyter)
    wait_for("the save", (faulty.folder / "slow").exists)
    (faulty.folder / "slow").unlink()
    os.kill(shim_of(jupyter.hub), signal.SIGKILL)
    goes_on(jupyter, kernel, "save_interrupted")


@pytest.mark.parametrize("group", [False, True], ids=["alone", "with its process group"])
def test_a_hub_killed_during_the_save_finds_a_pause_or_a_running_server(
    jupyter: Jupyter, kernel: tuple[str, str], faulty: FaultyRunsc, group: bool
) -> None:
    faulty.faults("checkpoint-slow")
    ask_for_a_pause(jupyter)
    wait_for("the save", (faulty.folder / "slow").exists)
    (faulty.folder / "slow").unlink()
    jupyter.hub.kill(group=group)
    jupyter.hub.start()
    view = jupyter.hub.wait_phase({"paused", "running"}, "ann")
    if view["phase"] == "paused":
        assert jupyter.resume()["receipt"]["resumed"] is True
    else:
        jupyter.hub.wait_ready("ann")
    assert jupyter.run(kernel[0], LOOK) == kernel[1]


def test_a_failed_restore_leaves_it_paused_with_the_reason_and_works_the_next_time(
    jupyter: Jupyter, kernel: tuple[str, str], faulty: FaultyRunsc
) -> None:
    jupyter.pause()
    faulty.faults("restore-fails")
    status, answer = jupyter.hub.ask("POST", "ann")
    assert 400 <= status < 500 or status in (201, 202), answer
    view = jupyter.hub.wait_phase("paused", "ann")
    assert view["reason"]["code"] == "restore_failed"
    assert view["snapshot"] is not None
    faulty.faults()
    assert jupyter.resume()["receipt"]["resumed"] is True
    assert jupyter.run(kernel[0], LOOK) == kernel[1]


def test_a_silent_cold_start_is_unproven_and_the_snapshot_stays(jupyter: Jupyter, kernel: tuple[str, str], faulty: FaultyRunsc) -> None:
    paused = jupyter.pause()
    faulty.faults("restore-is-cold")
    jupyter.hub.ask("POST", "ann")
    view = jupyter.hub.wait_phase({"unproven", "paused"}, "ann")
    assert view["phase"] == "unproven", view
    assert view["receipt"]["resumed"] is False
    assert view["snapshot"]["id"] == paused["snapshot"]["id"]
    assert {"retry", "accept"} <= set(view["actions"])
    faulty.faults()
    assert jupyter.hub.ask("POST", "ann", "", f"/pause/{view['pause']['id']}/retry", {})[0] == 202
    wait_for("the paused process", lambda: jupyter.hub.workspace("ann")["phase"] == "running")
    jupyter.hub.wait_ready("ann")
    assert jupyter.run(kernel[0], LOOK) == kernel[1]


def test_a_running_server_lives_through_a_restart_of_the_hub(jupyter: Jupyter, kernel: tuple[str, str]) -> None:
    jupyter.hub.kill(group=True)
    jupyter.hub.start()
    jupyter.hub.wait_ready("ann")
    assert jupyter.run(kernel[0], LOOK) == kernel[1]


def test_a_sandbox_that_dies_leaves_nothing_behind_and_goes_back_to_its_last_pause(jupyter: Jupyter, kernel: tuple[str, str]) -> None:
    hub = jupyter.hub
    jupyter.pause()
    jupyter.resume()
    jupyter.run(kernel[0], "later = 1")
    state = str(hub.folder / "state")
    for pid, words in command_lines():
        if "runsc-sandbox" in words[0] and any(state in word for word in words):
            os.kill(pid, signal.SIGKILL)
    view = hub.wait_phase("paused", "ann")
    assert view["reason"]["code"] == "ended_by_itself"
    wait_for("an empty folder of sandboxes", lambda: not any((hub.folder / "state" / "sandboxes").iterdir()))
    wait_for("a Hub that knows it", lambda: not hub.model("ann").get("pending"))
    assert jupyter.resume()["receipt"]["resumed"] is True
    hub.wait_ready("ann")
    # IPython may add a word of its own: its history, a file in the home, has gone on since the snapshot.
    assert kernel[1] in jupyter.run(kernel[0], LOOK)
    assert "False" in jupyter.run(kernel[0], "print('later' in globals())")
