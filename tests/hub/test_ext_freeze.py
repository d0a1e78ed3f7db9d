"""The server extension stops everything of the user and lets it go on: a real server with signals, in a pid namespace of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from .checkpoint_file import CheckpointFile
from .ext_process import Pod, pod, until
from .ext_server import read

SPARED = {1, 2}
"""The shell that is pid 1, and the server."""
FAMILY = """
import multiprocessing, os, subprocess, sys, threading, time
def grandchild(number):
    while True: number.value += 1
def child(number):
    context = multiprocessing.get_context("fork")
    context.Process(target=grandchild, args=(number,), daemon=True).start()
    while True: subprocess.run(["true"])
def chain(number):
    while True:
        number.value += 1
        time.sleep(0.02)
        if os.fork(): os._exit(0)
context = multiprocessing.get_context("fork")
counted, links = context.Value("Q", lock=False), context.Value("Q", lock=False)
family = [context.Process(target=child, args=(counted,)), context.Process(target=chain, args=(links,))]
for process in family: process.start()
x = 41
while not counted.value or links.value < 3: pass
print("ready")
"""
"""A kernel with a child that makes processes without end, a grandchild that computes, and a daemon that is ever another process."""
GROW = "a, b = counted.value, links.value\nwhile counted.value == a or links.value == b: pass\nprint(x + 1)"


@pytest.fixture(params=["told by the sandbox", "without the sandbox's file"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CheckpointFile | None]:
    if request.param != "told by the sandbox":
        yield None
    else:
        with CheckpointFile.made(tmp_path / "checkpoint") as made:
            yield made


@pytest_asyncio.fixture
async def server(tmp_path: Path, checkpoint: CheckpointFile | None) -> AsyncIterator[Pod]:
    async with pod(tmp_path, str(checkpoint.path if checkpoint else "/nonexistent")) as running:
        yield running


@pytest_asyncio.fixture
async def plain(tmp_path: Path) -> AsyncIterator[Pod]:
    async with pod(tmp_path) as running:
        yield running


def stand(server: Pod) -> bool:
    """Whether all of the user stands, and there is something that does."""
    states = {state for pid, state in server.states().items() if pid not in SPARED}
    return states == {"T"}


async def let_go(server: Pod, checkpoint: CheckpointFile | None, how: str) -> None:
    if how in {"thaw", "restored"}:
        assert (await server.hub(how, {"pause_id": "p1"})).code == 200
    elif how == "limit":
        server.move_clock(601)
    elif checkpoint is not None:
        await asyncio.to_thread(checkpoint.say, how)
    await until(lambda: not stand(server))
    while (await server.tab("api/status")).code == 503:
        pass


HOW = ["thaw", "restored", "limit", "restore", "error"]


@pytest.mark.parametrize("how", HOW)
async def test_a_family_of_processes_stands_and_goes_on(server: Pod, checkpoint: CheckpointFile | None, how: str) -> None:
    if checkpoint is None and how in {"restore", "error"}:
        how = "thaw"
    kernel_id = await server.kernel()
    assert await server.run(kernel_id, FAMILY) == "ready\n"
    before = read(await server.hub("identity"))["identity"]
    answer = await server.freeze()
    assert answer.code == 200, answer.body
    frozen = read(answer)["frozen"]
    assert stand(server)
    assert frozen["processes"] == len(server.states().keys() - SPARED) >= 4
    assert frozen["until"] - frozen["at"] == pytest.approx(600)
    if checkpoint is not None:
        await asyncio.to_thread(checkpoint.say, "resume")
    confirmed = read(await server.hub("frozen", {"pause_id": "p1", "seconds": 9}))
    assert confirmed == {"frozen": True, "until": frozen["until"], "since": frozen["at"]}
    assert stand(server)
    assert (await server.tab("api/contents/new.txt", "PUT", {"type": "file", "format": "text", "content": "x"})).code == 503

    await let_go(server, checkpoint, how)
    assert await server.run(kernel_id, GROW) == "42\n"
    assert read(await server.hub("identity"))["identity"] == before
    assert read(await server.hub("frozen", {"pause_id": "p1", "seconds": 9})) == {"frozen": False, "until": None, "since": None}
    assert (await server.tab("api/contents/new.txt", "PUT", {"type": "file", "format": "text", "content": "x"})).code == 201


EVER_ANOTHER = """
import mmap, subprocess, sys
chain = '''
import mmap, os
links = mmap.mmap(0, 1)
while True:
    links[0] = (links[0] + 1) % 256
    if os.fork(): os._exit(0)
'''
file = open(f"links{number}", "w+b")
file.truncate(1)
links = mmap.mmap(file.fileno(), 1)
subprocess.Popen([sys.executable, "-I", "-S", "-c", chain], stdin=file)
def grow():
    seen = links[0]
    while links[0] == seen: pass
for _ in range(100): grow()
print("ready")
"""


async def test_processes_that_are_ever_another_one_and_never_rest_stand_too(plain: Pod) -> None:
    """Three families that fork and end as fast as they can; a look at everything finds one, and it is gone before its signal."""
    kernel_id = await plain.kernel()
    for number in range(3):
        assert await plain.run(kernel_id, f"number = {number}\n{EVER_ANOTHER}") == "ready\n"
    for pause_id in ("p1", "p2", "p3", "p4", "p5"):
        answer = await plain.freeze(pause_id)
        assert answer.code == 200, answer.body
        assert stand(plain)
        links = [path.read_bytes() for path in sorted(plain.home.glob("links*"))]
        assert read(await plain.hub("frozen", {"pause_id": pause_id, "seconds": 9}))["frozen"] is True
        assert [path.read_bytes() for path in sorted(plain.home.glob("links*"))] == links
        assert read(await plain.hub("thaw", {"pause_id": pause_id})) == {"thawed": True}
        assert await plain.run(kernel_id, "for _ in range(100): grow()\nprint('goes on')") == "goes on\n"


async def test_a_terminals_jobs_come_back_as_they_were(server: Pod, checkpoint: CheckpointFile | None) -> None:
    """One in the foreground that runs, and one that the user had stopped."""
    terminal = await server.terminal()
    await server.type(terminal, "sleep 1000\r", "sleep 1000")
    sleep = await child_named(server, "sleep")
    await server.type(terminal, "\x1a", "Stopped")
    await until(lambda: server.fields(sleep)[:1] == ["T"])
    loop = "import time; print('go' + 'es')\nwhile True: time.sleep(0.001)"
    await server.type(terminal, f'"$PYTHON" -c "{loop}"\r', "goes")
    job = await child_named(server, "python")
    group, foreground = server.fields(job)[2], server.fields(job)[5]
    assert group == foreground

    assert (await server.freeze()).code == 200
    assert stand(server)
    await let_go(server, checkpoint, "thaw" if checkpoint is None else "restore")
    await until(lambda: server.fields(job)[0] in "SR")
    assert server.fields(sleep)[0] == "T"
    assert server.fields(job)[5] == foreground
    await server.type(terminal, "\x03", "KeyboardInterrupt")
    jobs = (await server.type(terminal, "jobs; echo en''d\r", "end")).rpartition("jobs;")[2]
    assert jobs.count("Stopped") == 1
    assert "sleep 1000" in jobs
    await server.type(terminal, "fg\r", "fg")
    await until(lambda: server.fields(sleep)[0] == "S")


async def child_named(server: Pod, name: str) -> int:
    """The pid in the namespace of the one program of that name below the shell of the terminal."""
    found: list[int] = []

    def there() -> bool:
        found[:] = [pid for pid, outer in server.outside().items() if pid not in SPARED and name_of(outer).startswith(name)]
        return len(found) == 1

    await until(there)
    return found[0]


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_a_frozen_server_does_not_end_and_one_that_goes_on_does(
    server: Pod, checkpoint: CheckpointFile | None, number: signal.Signals
) -> None:
    await server.kernel()
    before = ignored(server)
    files = sorted((server.folder / "runtime").iterdir())
    assert any(path.name.startswith("kernel-") for path in files)
    assert (await server.freeze()).code == 200
    assert ignored(server) >= before | {signal.SIGTERM, signal.SIGHUP, signal.SIGINT}
    server.send(2, number)
    assert read(await server.hub("frozen", {"pause_id": "p1", "seconds": 9}))["frozen"] is True
    assert sorted((server.folder / "runtime").iterdir()) == files
    await let_go(server, checkpoint, "thaw" if checkpoint is None else "error")
    await until(lambda: ignored(server) == before)
    server.send(2, signal.SIGTERM)
    await until(lambda: server.process.poll() is not None)
    assert not any(path.name.startswith("kernel-") for path in (server.folder / "runtime").iterdir())


def ignored(server: Pod) -> set[int]:
    status = Path(f"/proc/{server.outside()[2]}/status").read_text()
    mask = int(next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1], 16)
    return {number for number in range(1, 32) if mask >> (number - 1) & 1}


@pytest.mark.parametrize("how", ["continued", "continued and stopped again", "killed", "new", "another pause"])
async def test_a_standstill_that_was_broken_is_never_confirmed(plain: Pod, how: str) -> None:
    kernel_id = await plain.kernel()
    assert await plain.run(kernel_id, "import subprocess; p = subprocess.Popen(['sleep', '1000']); print(p.pid)")
    sleep = await child_named(plain, "sleep")
    assert (await plain.freeze()).code == 200
    if how == "new":
        with subprocess.Popen(["nsenter", f"--pid=/proc/{plain.outside()[2]}/ns/pid", "sleep", "1000"]) as intruder:
            try:
                await until(lambda: len([o for o in plain.outside().values() if name_of(o) == "sleep"]) == 2)
                assert read(await plain.hub("frozen", {"pause_id": "p1", "seconds": 9}))["frozen"] is False
            finally:
                intruder.kill()
                for pid, outer in plain.outside().items():
                    if name_of(outer) == "sleep" and pid != sleep:
                        os.kill(outer, signal.SIGKILL)
    elif how == "killed":
        plain.send(sleep, signal.SIGKILL)
        await until(lambda: plain.fields(sleep)[:1] != ["T"])
    elif how.startswith("continued"):
        plain.send(sleep, signal.SIGCONT)
        await until(lambda: plain.fields(sleep)[0] == "S")
        if how != "continued":
            plain.send(sleep, signal.SIGSTOP)
            await until(lambda: plain.fields(sleep)[0] == "T")
    asked = "p2" if how == "another pause" else "p1"
    assert read(await plain.hub("frozen", {"pause_id": asked, "seconds": 9}))["frozen"] is False
    again = read(await plain.hub("frozen", {"pause_id": "p1", "seconds": 9}))["frozen"]
    assert again is (how == "another pause")
    assert (await plain.freeze("p1")).code == 200  # all goes on, and is stopped anew
    assert read(await plain.hub("frozen", {"pause_id": "p1", "seconds": 9}))["frozen"] is True


async def test_confirming_extends_the_limit_and_the_lease(plain: Pod) -> None:
    await plain.kernel()
    assert (await plain.freeze(seconds=100)).code == 200
    confirmed = read(await plain.hub("frozen", {"pause_id": "p1", "seconds": 500}))
    assert confirmed["until"] - plain.clock() == pytest.approx(500, abs=10)
    plain.move_clock(400)
    assert (await plain.tab("api/status")).code == 503
    assert read(await plain.hub("frozen", {"pause_id": "p1", "seconds": 9}))["frozen"] is True
    assert stand(plain)
    plain.move_clock(200)
    await until(lambda: not stand(plain))
    assert read(await plain.hub("frozen", {"pause_id": "p1", "seconds": 9}))["frozen"] is False


async def test_the_same_pause_again_keeps_its_freeze_and_a_later_one_begins_anew(plain: Pod) -> None:
    await plain.kernel()
    first = read(await plain.freeze("p1"))["frozen"]
    again = read(await plain.freeze("p1", seconds=900))["frozen"]
    assert again["at"] == first["at"]
    assert again["until"] > first["until"]
    later = read(await plain.freeze("p2"))["frozen"]
    assert later["at"] > first["at"]
    assert read(await plain.hub("thaw", {"pause_id": "p1"})) == {"thawed": False}
    assert stand(plain)
    assert "frozen" not in await plain.prepare("p3")  # as an older Hub asks
    assert not stand(plain)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to run a program as another user")
async def test_programs_of_another_user_are_named_and_nothing_is_stopped(tmp_path: Path) -> None:
    before = "setpriv --reuid=65534 --clear-groups sleep 1000 &"
    async with pod(tmp_path, before=before, prefix="setpriv --inh-caps=-kill --bounding-set=-kill") as server:
        await server.kernel()
        answer = read(await server.freeze())
        assert (answer["frozen"], answer["not_permitted"]) == (None, ["sleep"])
        assert "freeze_not_permitted" in answer["blockers"]
        assert "T" not in server.states().values()
        assert read(await server.hub("thaw", {"pause_id": "p1"})) == {"thawed": True}
        assert (await server.tab("api/status")).code == 200


async def test_what_cannot_be_stopped_is_named_and_all_goes_on(plain: Pod) -> None:
    """A program that waits in vfork for a child that waits for a pipe: such a one cannot stop."""
    kernel_id = await plain.kernel()
    pipe = plain.folder / "pipe"
    os.mkfifo(pipe)
    actions = f"[(os.POSIX_SPAWN_OPEN, 0, {str(pipe)!r}, os.O_RDONLY, 0)]"
    stuck = f"import os; os.posix_spawn('/bin/true', ['true'], {{}}, file_actions={actions}); os.wait()"
    await plain.run(kernel_id, f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {stuck!r}])")
    await until(lambda: "D" in plain.states().values())
    answer = await plain.freeze()
    assert (answer.code, read(answer)["reason"]) == (409, "freeze_incomplete")
    assert any(name.startswith("python") for name in read(answer)["names"])
    assert (await plain.tab("api/status")).code == 200
    assert "T" not in plain.states().values()
    assert await plain.run(kernel_id, f"open({str(pipe)!r}, 'w').close(); print(p.wait())") == "0\n"
    assert (await plain.freeze()).code == 200


async def test_as_jupyter_server_loads_it_the_extension_can_freeze(tmp_path: Path) -> None:
    async with pod(tmp_path, "-") as server:
        await server.kernel()
        assert read(await server.freeze())["facts"]["runtime_in_home"] is False
        assert stand(server)
        assert read(await server.hub("thaw", {"pause_id": "p1"})) == {"thawed": True}
