"""Room on the disk and in memory: refused with a sentence before anything is touched, and every byte accounted for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.running import RunningHub, wait_for
from tests.sandbox.jupyter import Jupyter
from tests.sandbox.local_hub import local_hub

pytestmark = pytest.mark.any_hub

DISK = 640 << 20
"""Room for a few snapshots of a small server, and for none of one that holds :data:`MUCH`."""
MUCH = 700 << 20
KEEP_LAST = 2
MEASURED = 4 << 20
"""Bytes of a snapshot folder that its record does not count: signatures, the seal, block sizes."""
SHA256_LETTERS = 64


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The snapshots' folder of a state folder, on a small file system of its own."""
    folder = tmp_path_factory.mktemp("room") / "state" / "snapshots"
    folder.parent.mkdir(mode=0o700)
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="module")
def hub(snapshots: Path) -> Iterator[RunningHub]:
    with local_hub(snapshots.parent.parent, {"spawner": {"keep_last": KEEP_LAST}}) as hub:
        yield hub


@pytest.fixture(scope="module")
def jupyter(hub: RunningHub) -> Jupyter:
    hub.start_server("ann")
    return Jupyter(hub, "ann")


@pytest.fixture(scope="module")
def kernel(jupyter: Jupyter) -> str:
    kernel = jupyter.kernel()
    jupyter.run(kernel, "x = 42")
    return kernel


def used(folder: Path) -> int:
    """Bytes taken on the file system of that folder."""
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def test_a_pause_that_does_not_fit_the_disk_is_refused_before_anything_is_touched(jupyter: Jupyter, kernel: str, snapshots: Path) -> None:
    hub = jupyter.hub
    jupyter.run(kernel, f"held = bytearray({MUCH}); held[::4096] = b'x' * len(held[::4096])")
    with jupyter.channels(kernel) as channels:
        channels.run("print('a tab is connected')")
        preflight = hub.ask("POST", "ann", "", "/pause/preflight", {})[1]
        assert preflight["refusal"]["reason"] == "disk_full"
        assert preflight["bytes"] > MUCH
        hub.ask("POST", "ann", "", "/pause", {})
        view = hub.wait_phase("running", "ann")
        assert view["reason"]["code"] == "disk_full"
        assert view["reason"]["sentence"]
        assert view["hub"]["ready"] is True
        assert channels.run("print(x)") == "42"  # the same connection: nothing was closed for this pause
    assert list(snapshots.iterdir()) == []
    jupyter.run(kernel, "del held")
    wait_for("memory that is given back", lambda: not hub.ask("POST", "ann", "", "/pause/preflight", {})[1]["refusal"])


def test_the_folder_of_snapshots_agrees_with_the_records_and_only_the_last_are_kept(jupyter: Jupyter, kernel: str, snapshots: Path) -> None:
    for _ in range(KEEP_LAST + 2):
        view = jupyter.pause()
        kept = {each["id"]: each["bytes"] for each in view["snapshots"]}
        assert {path.name for path in snapshots.iterdir()} == set(kept)
        for path in snapshots.iterdir():
            size = sum(file.stat().st_size for file in path.iterdir())
            assert 0 <= size - kept[path.name] < MEASURED
        assert used(snapshots) < sum(kept.values()) + MEASURED * len(kept)
        jupyter.resume()
        wait_for("the last ones", lambda: len(jupyter.hub.workspace("ann")["snapshots"]) <= KEEP_LAST)
    view = jupyter.hub.workspace("ann")
    assert len(view["snapshots"]) == KEEP_LAST
    assert {each["id"] for each in view["snapshots"]} == {path.name for path in snapshots.iterdir()}
    assert view["pause"]["id"] in {each["pause_id"] for each in view["snapshots"]}
    assert jupyter.run(kernel, "print(x)") == "42"


def test_a_resume_is_refused_under_a_memory_limit_that_it_exceeds_today_and_works_when_it_is_raised(jupyter: Jupyter, kernel: str) -> None:
    hub = jupyter.hub
    paused = jupyter.pause()
    with_limit(hub, paused["snapshot"]["bytes"] // 2)
    status, answer = hub.ask("POST", "ann")
    assert status == 409, answer
    view = hub.wait_phase("paused", "ann")
    assert view["reason"]["code"] == "policy_changed"
    assert view["reason"]["sentence"] in answer["message"]
    assert "memory limit" in view["detail"]
    assert view["snapshot"] == paused["snapshot"]
    with_limit(hub, paused["snapshot"]["bytes"] * 4)
    assert jupyter.resume()["receipt"]["resumed"] is True
    assert jupyter.run(kernel, "print(x)") == "42"


def with_limit(hub: RunningHub, limit: int) -> None:
    """The Hub again, with that memory limit."""
    hub.settings["spawner"]["mem_limit"] = limit
    hub.restart()


def test_discarding_frees_the_bytes_of_the_state(jupyter: Jupyter, kernel: str, snapshots: Path) -> None:
    hub = jupyter.hub
    view = jupyter.pause()
    before = used(snapshots)
    discard(hub, view["pause"]["id"])
    assert hub.workspace("ann")["phase"] == "running"
    assert not (snapshots / view["snapshot"]["id"]).exists()
    assert used(snapshots) <= before - view["snapshot"]["bytes"]
    for each in hub.workspace("ann")["snapshots"]:
        discard(hub, each["pause_id"])
    assert hub.workspace("ann")["snapshots"] == []
    assert list(snapshots.iterdir()) == []
    assert used(snapshots) < MEASURED
    assert [path.name for path in (snapshots.parent / "kept").iterdir() if len(path.name) == SHA256_LETTERS] == []


def discard(hub: RunningHub, pause_id: str) -> None:
    status, answer = hub.ask("DELETE", "ann", "", f"/pause/{pause_id}")
    assert status == 200, answer


def test_a_server_that_takes_more_memory_than_it_may_is_ended_and_its_user_is_told(hub: RunningHub) -> None:
    with_limit(hub, 500 << 20)
    hub.start_server("hog")
    hog = Jupyter(hub, "hog")
    with hog.channels(hog.kernel()) as channels:
        channels.send("held = bytearray(900 << 20)\nfor at in range(0, len(held), 4096): held[at] = 1")
        view = wait_for("the end of the server", lambda: ended(hub))
    assert view["reason"]["code"] == "memory_limit"
    assert "memory" in view["sentence"]
    hub.start_server("hog")
    assert hub.workspace("hog")["reason"] is None


def ended(hub: RunningHub) -> dict[str, object] | None:
    view = hub.workspace("hog")
    return None if view["hub"]["ready"] or view["hub"]["pending"] else view
