"""What others ran into (reports from the field), tried on real servers; each test names the report's number in the bank."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gke_workspaces_spawner.sandbox.processes import command_lines
from tests.hub.running import RunningHub, wait_for
from tests.sandbox.faulty_runsc import FaultyRunsc
from tests.sandbox.jupyter import Jupyter
from tests.sandbox.local_hub import local_hub, runsc

pytestmark = pytest.mark.any_hub

ROUNDS = 10
PATIENCE = 150
"""Seconds that a cold start may take: some of these tests start several at once."""
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> FaultyRunsc:
    return FaultyRunsc(tmp_path_factory.mktemp("faulty") / "bin", runsc())


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, faulty: FaultyRunsc) -> Iterator[RunningHub]:
    with local_hub(tmp_path_factory.mktemp("reports"), {"runsc": str(faulty.path), "spawner": {"http_timeout": PATIENCE}}) as hub:
        yield hub


@pytest.fixture(scope="module")
def started(hub: RunningHub) -> Jupyter:
    start(hub, "ann")
    return Jupyter(hub, "ann")


def start(hub: RunningHub, user: str) -> None:
    hub.start_server(user, wait=False)
    hub.wait_ready(user, seconds=PATIENCE)


@pytest.fixture
def ann(started: Jupyter) -> Jupyter:
    """A server that runs, also when the test before failed half way."""
    if started.hub.workspace("ann")["phase"] == "paused":
        started.resume()
    return started


@pytest.fixture
def kernel(ann: Jupyter) -> Iterator[str]:
    kernel = ann.kernel()
    yield kernel
    ann.call("DELETE", f"/api/kernels/{kernel}", raw=True)


def sentries(hub: RunningHub) -> list[int]:
    """Pids of the sandboxes of this Hub."""
    state = str(hub.folder / "state")
    return [pid for pid, words in command_lines() if "runsc-sandbox" in words[0] and any(state in word for word in words)]


def test_41_each_answer_from_the_first_moment_of_a_restored_server_comes_at_once(ann: Jupyter) -> None:
    for _ in range(ROUNDS):
        ann.pause()
        ann.hub.start_server(ann.user, wait=False)
        answers: list[tuple[int, float]] = []
        while len(answers) < 3 or answers[-3][0] != 200:
            assert len(answers) < 300, answers
            asked = time.monotonic()
            status = ann.call("GET", "/api/status", raw=True)[0]
            took = time.monotonic() - asked
            answers.append((status, took))
            time.sleep(max(0.0, 0.1 - took))
        first = next(number for number, (status, _) in enumerate(answers) if status == 200)
        assert {status for status, _ in answers[first:]} == {200}, answers
        assert max(took for _, took in answers) < 5, answers
        assert ann.hub.wait_phase("running", ann.user)["receipt"]["resumed"] is True


def test_56_a_big_file_outside_of_the_home_and_memory_come_back_the_same(ann: Jupyter, kernel: str) -> None:
    code = """
import hashlib, os, random
block = random.Random(5).randbytes(100 << 20)
with open('/tmp/big', 'wb') as file: file.write(block)
held = random.Random(6).randbytes(50 << 20)
"""
    look = "print(*(hashlib.sha256(each).hexdigest() for each in (open('/tmp/big', 'rb').read(), block, held)))"
    ann.run(kernel, code)
    before = ann.run(kernel, look)
    assert ann.pause()["snapshot"]["bytes"] > 250 << 20
    assert ann.resume()["receipt"]["resumed"] is True
    assert ann.run(kernel, look) == before
    ann.run(kernel, "os.unlink('/tmp/big'); del block, held")


LOCK = """
import os, subprocess
os.makedirs('repository/.git', exist_ok=True)
pull = subprocess.Popen(
    ['/bin/sh', '-c', 'set -C; : > .git/index.lock && read word && echo $word > .git/HEAD && rm .git/index.lock'],
    cwd='repository', stdin=subprocess.PIPE, text=True)
while not os.path.exists('repository/.git/index.lock'): pass
print(pull.pid)
"""


def test_59_a_command_that_holds_a_lock_in_the_home_ends_well_after_the_resume(ann: Jupyter, kernel: str) -> None:
    ann.run(kernel, LOCK)
    ann.pause()
    ann.resume()
    assert ann.run(kernel, "print(pull.poll(), os.listdir('repository/.git'))") == "None ['index.lock']"
    pulled = (
        "pull.communicate('pulled\\n'); print(pull.returncode, sorted(os.listdir('repository/.git')), open('repository/.git/HEAD').read())"
    )
    assert ann.run(kernel, pulled) == "0 ['HEAD'] pulled"


def test_42_a_shell_entered_from_outside_does_not_make_the_snapshot_useless(ann: Jupyter, kernel: str) -> None:
    ann.run(kernel, "kept = 'as it was'")
    state = ann.hub.folder / "state"
    (container,) = {path.name for path in (state / "sandboxes").iterdir()}
    shell = subprocess.Popen(
        [str(runsc()), "--root", str(state / "runsc"), "exec", container, "/bin/sh", "-c", "echo inside; read word"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"inside\n"
        ann.hub.ask("POST", ann.user, "", "/pause", {})
        view = ann.hub.wait_phase({"paused", "running"}, ann.user)
        if view["phase"] == "running":
            assert view["reason"]["sentence"]
        else:
            assert ann.resume()["receipt"]["resumed"] is True
        assert ann.run(kernel, "print(kept)") == "as it was"
    finally:
        shell.kill()
        shell.communicate()


def test_57_four_come_back_at_once_while_another_one_starts_fresh(ann: Jupyter) -> None:
    hub = ann.hub
    servers = [ann, *(Jupyter(hub, "crowd", name) for name in ("one", "two", "three"))]
    for each in servers[1:]:
        hub.start_server(each.user, each.server, wait=False)
    kernels = []
    for each in servers:
        hub.wait_ready(each.user, each.server, PATIENCE)
        kernels.append(each.kernel())
        each.run(kernels[-1], f"mine = {each.prefix!r}; held = bytes(range(256)) * (200 << 10)")
    for each in servers:
        assert hub.ask("POST", each.user, each.server, "/pause", {})[0] == 202
    for each in servers:
        hub.wait_phase("paused", each.user, each.server)
    for each in servers:
        hub.start_server(each.user, each.server, wait=False)
    hub.start_server("late", wait=False)
    for each, kernel in zip(servers, kernels, strict=True):
        view = hub.wait_phase("running", each.user, each.server)
        assert view["receipt"]["resumed"] is True, view
        assert each.run(kernel, "print(mine, len(held))") == f"{each.prefix} {256 * (200 << 10)}"
    hub.wait_ready("late", seconds=PATIENCE)
    for each in (*servers[1:], Jupyter(hub, "late")):
        stop(each)


def stop(jupyter: Jupyter) -> None:
    """The Hub's stop, and wait for its end."""
    hub = jupyter.hub
    assert hub.ask("DELETE", jupyter.user, jupyter.server)[0] in (202, 204)
    wait_for("a stopped server", lambda: hub.workspace(jupyter.user, jupyter.server)["hub"] == {"ready": False, "pending": None})


def test_03_start_and_stop_during_a_pause_have_one_winner_and_lose_nothing(ann: Jupyter, kernel: str) -> None:
    hub = ann.hub
    ann.run(kernel, "kept = 'through the race'")
    for calls in (["start"], ["stop", "start"]):
        assert hub.ask("POST", "ann", "", "/pause", {})[0] == 202
        for call in calls:
            status, answer = hub.ask("POST" if call == "start" else "DELETE", "ann")
            assert status < 500, answer
        view = wait_for("rest", lambda: at_rest(hub))
        assert len(sentries(hub)) == (1 if view["phase"] == "running" else 0)
        if view["phase"] == "paused":
            ann.resume()
        assert ann.run(kernel, "print(kept)") == "through the race"


def at_rest(hub: RunningHub) -> dict[str, object] | None:
    """The view when nothing is under way and nothing is asked for."""
    view = hub.workspace("ann")
    rests = view["phase"] == "paused" or (view["phase"] == "running" and view["hub"]["ready"])
    return view if rests and view["intent"] == "none" and not hub.model("ann").get("pending") else None


@contextlib.contextmanager
def small_disk(folder: Path, limits: str) -> Iterator[None]:
    """A file system of its own on the folder, with the folder's owner and content."""
    status = folder.stat()
    options = f"{limits},mode={status.st_mode & 0o777:o},uid={status.st_uid},gid={status.st_gid}"
    before = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
        try:
            subprocess.run(["cp", "-a", f"/proc/{os.getpid()}/fd/{before}/.", str(folder)], check=True)
            yield
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
    finally:
        os.close(before)


FILL_BYTES = """
import os
with open('full0', 'wb', buffering=0) as file:
    try:
        while True: file.write(b'x' * (1 << 16))
    except OSError: pass
    try:
        while True: file.write(b'x')
    except OSError: pass
print(os.statvfs('.').f_bavail)
"""
FILL_INODES = """
import itertools, os
try:
    for number in itertools.count(): open(f'full{number}', 'w').close()
except OSError: pass
print(os.statvfs('.').f_favail)
"""


@pytest.mark.parametrize(
    ("limits", "fill", "files"), [("size=20m", FILL_BYTES, 1), ("size=20m,nr_inodes=200", FILL_INODES, 10)], ids=["bytes", "inodes"]
)
def test_23_a_home_that_is_full_to_the_last_byte_or_inode_keeps_nobody_out(hub: RunningHub, limits: str, fill: str, files: int) -> None:
    user = f"full{files}"
    before = set((hub.folder / "state").glob("homes/*"))
    start(hub, user)
    (home,) = set((hub.folder / "state").glob("homes/*")) - before
    full = Jupyter(hub, user)
    kernel = full.kernel()
    full.run(kernel, "kept = 'in memory'")
    full.pause()
    with small_disk(home, limits):
        full.resume()
        assert full.run(kernel, fill) == "0"
        full.pause()
        assert full.resume()["receipt"]["resumed"] is True
        assert full.run(kernel, "print(kept)").startswith("in memory")  # IPython adds that it cannot keep its history
        stop(full)
        start(hub, user)
        for number in range(files):
            assert full.call("DELETE", f"/api/contents/full{number}")[0] == 204
        assert full.run(full.kernel(), "open('again', 'w').write('room'); print('room')") == "room"
        stop(full)


def test_52_a_sandbox_that_dies_during_the_save_is_lost_and_never_called_paused(ann: Jupyter, faulty: FaultyRunsc) -> None:
    hub = ann.hub
    faulty.faults("checkpoint-slow")
    kept = [snapshot["id"] for snapshot in hub.workspace("ann")["snapshots"] if snapshot["state"] == "current"]
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.is_set() and "running" not in seen:
            seen.add(hub.workspace("ann")["phase"])

    watcher = threading.Thread(target=watch)
    try:
        assert hub.ask("POST", "ann", "", "/pause", {})[0] == 202
        watcher.start()
        wait_for("the save", (faulty.folder / "slow").exists)
        for pid in sentries(hub):
            os.kill(pid, signal.SIGKILL)
        view = hub.wait_phase("running", "ann")
    finally:
        over.set()
        watcher.join()
        faulty.faults()
    assert view["reason"]["code"] == "server_lost", view
    assert "nothing of it was saved" in view["reason"]["sentence"]
    assert "paused" not in seen
    assert view["snapshot"] is None
    assert not any((hub.folder / "state" / "snapshots").glob("*s-" + view["pause"]["id"]))
    wait_for("a stopped server", lambda: not hub.model("ann").get("ready"))
    if kept:  # of a pause before: that one is offered, for what it is
        view = hub.wait_phase("paused", "ann")
        assert (view["reason"]["code"], view["snapshot"]["id"]) == ("ended_by_itself", kept[-1])
        assert hub.verb("fresh", "ann")[0] == 202
        hub.wait_ready("ann")
    else:
        assert "resume" not in hub.workspace("ann")["actions"]
        start(hub, "ann")
    assert ann.run(ann.kernel(), "print('fresh')") == "fresh"
