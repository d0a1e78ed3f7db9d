"""The demo is asked to stop at an awkward moment: nothing is left on the machine, and the next start has every server as it was.

One state folder for all of them: ``ann`` has a variable in a kernel, and is paused between two tests.
"""

from __future__ import annotations

import os
import pty
import signal
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from gke_workspaces_spawner.sandbox.diskroom import meminfo
from gke_workspaces_spawner.sandbox.files import tree_bytes

from .demos import Demo

pytestmark = pytest.mark.timeout(300)

WITH_MORE = """
import sys
from gke_workspaces_spawner.cli import demo, main
stock, more = demo.write_config, sys.argv.pop(1)
def write_config(chosen):
    path = stock(chosen)
    path.write_text(path.read_text() + more)
    return path
demo.write_config = write_config
sys.exit(main())
"""
"""The command, with a line more in the Hub's config file."""


class Session:
    """A demo whose server ``ann`` holds something in memory."""

    def __init__(self, demo: Demo) -> None:
        self.demo = demo
        demo.start()
        demo.start_server("ann")
        self.kernel = demo.kernel("ann")
        demo.run("ann", self.kernel, "import os; mine = os.urandom(8).hex()")
        self.mine = demo.run("ann", self.kernel, "print(os.getpid(), mine)")
        self.stop()

    def stop(self) -> str:
        """Ask it to stop, as a terminal does and sudo once more; what was said."""
        said = len(self.demo.words())
        self.demo.signal(signal.SIGINT)
        self.demo.signal(signal.SIGINT)
        assert self.demo.ended() == 0, self.demo.words()
        return self.demo.words()[said:]

    def resume(self) -> None:
        """Ann's server comes back with its variable."""
        assert self.demo.phase("ann") == "paused"
        self.demo.start_server("ann")
        assert self.demo.run("ann", self.kernel, "print(os.getpid(), mine)") == self.mine


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("demo")
    folder.chmod(0o700)
    demo = Demo(folder, ("ann", "bo"))
    try:
        yield Session(demo)
    finally:
        demo.clean_up()


@pytest.fixture
def session(running: Session, nothing_left: None) -> Session:
    return running


def while_it_is_paused(session: Session) -> None:
    session.resume()
    session.demo.ask("ann", "/pause")


def while_it_resumes(session: Session) -> None:
    session.demo.ask_aside("ann")
    session.demo.until(lambda: session.demo.phase("ann") == "restoring")


@pytest.mark.parametrize("moment", [while_it_is_paused, while_it_resumes])
def test_a_server_is_paused_whatever_it_is_doing(session: Session, moment: Callable[[Session], None]) -> None:
    session.demo.start()
    moment(session)
    said = session.stop()
    assert said.count("ann: paused after") == 1
    assert "still running" not in said


def test_a_resume_that_waits_for_room_is_not_waited_for(session: Session) -> None:
    demo = session.demo
    size = sum(map(tree_bytes, (demo.state / "snapshots").iterdir()))
    none_left = f"c.LocalWorkspaceSpawner.memory_reserve = {meminfo()['MemTotal'] - 2 * size}\n"  # enough if nothing else ran
    demo.start([sys.executable, "-c", WITH_MORE, none_left, *demo.command()[3:]])
    demo.ask_aside("ann")
    demo.until(lambda: demo.phase("ann") == "waiting")
    begin = time.monotonic()
    assert "ann: paused after" in session.stop()
    assert time.monotonic() - begin < 30


def test_a_terminal_that_is_closed_pauses_and_stops_and_takes_no_further_word(session: Session) -> None:
    demo = session.demo
    ours, theirs = pty.openpty()
    try:
        demo.launch(["sh", "-c", 'exec "$@" <"$0" >"$0" 2>"$0"', os.ttyname(theirs), *demo.command()])  # its controlling terminal
    finally:
        os.close(theirs)
    try:
        demo.answers()
        session.resume()
    finally:
        os.close(ours)
    assert demo.ended() == 0
    assert not demo.ready_file.exists()


def test_before_anything_runs_there_is_nothing_to_pause(session: Session) -> None:
    said = len(session.demo.words())
    session.demo.launch()
    session.demo.until(lambda: "starting the hub" in session.demo.words()[said:])
    session.stop()


def test_a_server_that_is_just_starting_is_paused_and_one_that_a_crash_takes_is_told_at_the_next_start(session: Session) -> None:
    demo = session.demo
    demo.start()
    demo.ask_aside("bo")
    demo.until(lambda: demo.model("bo").get("pending") == "spawn")
    assert "bo: paused after" in session.stop()

    demo.start()
    demo.start_server("bo")
    demo.crash()
    said = len(demo.words())
    demo.start()
    assert "Lost since the last start: the memory of 1 server that ran (bo); files and earlier pauses are kept." in demo.words()[said:]
    session.resume()
    said = len(demo.words())
    session.stop()
    demo.start()
    assert "Lost" not in demo.words()[said:]
    session.stop()
