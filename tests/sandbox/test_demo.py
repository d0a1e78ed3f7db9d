"""``gke-workspaces demo`` as a person and a script see it: with a real Hub, proxy and sandboxes."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .demos import Demo

pytestmark = pytest.mark.timeout(900)
LONG = "x" * 58 + ".Y"
NAMES = ("ann", "Ünï.Core@x.org", LONG)


@pytest.fixture
def demo(tmp_path: Path, nothing_left: None) -> Iterator[Demo]:
    tmp_path.chmod(0o700)
    demo = Demo(tmp_path, NAMES)
    yield demo
    demo.clean_up()


def test_ctrl_c_pauses_and_the_next_start_resumes_whoever_the_users_are(demo: Demo) -> None:
    demo.start()
    assert stat.S_IMODE(demo.ready_file.stat().st_mode) == 0o600
    assert set(demo.ready["users"]) == set(NAMES)
    for user in demo.ready["users"].values():
        assert re.fullmatch(rf"http://127\.0\.0\.1:{demo.port}/hub/login#[\w-]{{22,}}", user["login_url"])
    before = {}
    demo.login_by_the_command_of_the_login_page("ann")
    for name in NAMES:
        demo.start_server(name)
        before[name] = demo.pid_of_kernel(name)
    old = demo.ready
    demo.signal(signal.SIGINT)
    assert demo.ended() == 0, demo.words()
    assert demo.words().count(": paused after") == len(NAMES)
    assert not demo.ready_file.exists()

    demo.start()
    for token in (old["admin_token"], *(user["token"] for user in old["users"].values())):
        assert demo.call("/user", token=token)[0] == 403
    for name in NAMES:
        assert demo.phase(name) == "paused"
    demo.start_server("ann")
    assert demo.pid_of_kernel("ann") == before["ann"]
    lab = demo.text("user/ann/lab", demo.ready["users"]["ann"]["token"])
    config = json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', lab, re.DOTALL)[1])  # type: ignore[index]
    assert config["news"] == {"disabled": True}, "nothing asks about news in front of the first notebook"
    demo.signal(signal.SIGTERM)
    demo.signal(signal.SIGTERM)
    assert demo.ended() == 0, demo.words()
    assert "at once." not in demo.words()
    secrets = [demo.ready["admin_token"], *(user["token"] for user in demo.ready["users"].values())]
    secrets += [user["login_url"].partition("#")[2] for user in demo.ready["users"].values()]
    log = (demo.state / "logs" / "hub.log").read_text()
    assert not [secret for secret in secrets if secret in log]


def test_after_a_kill_of_everything_the_next_start_goes_on(demo: Demo) -> None:
    demo.start()
    demo.start_server("ann")
    before, admin = demo.pid_of_kernel("ann"), demo.ready["admin_token"]
    hub = int(subprocess.run(["pgrep", "-f", f"jupyterhub -f {demo.state}"], capture_output=True, text=True, check=True).stdout.split()[0])
    os.kill(hub, signal.SIGKILL)
    demo.signal(signal.SIGKILL)
    demo.ended()
    assert demo.ready_file.exists()

    demo.start()
    assert demo.ready["admin_token"] != admin
    demo.until(lambda: demo.model("ann").get("ready"))
    assert demo.pid_of_kernel("ann") == before
    demo.signal(signal.SIGINT)
    assert demo.ended() == 0, demo.words()


def test_when_the_hub_dies_the_command_says_so_and_the_server_lives(demo: Demo) -> None:
    demo.start()
    demo.start_server("ann")
    before = demo.pid_of_kernel("ann")
    hub = int(subprocess.run(["pgrep", "-f", f"jupyterhub -f {demo.state}"], capture_output=True, text=True, check=True).stdout.split()[0])
    os.kill(hub, signal.SIGKILL)
    assert demo.ended() == 1
    assert "The hub ended by itself" in demo.words()
    assert not demo.ready_file.exists()
    demo.start()
    demo.until(lambda: demo.model("ann").get("ready"))
    assert demo.pid_of_kernel("ann") == before
    demo.signal(signal.SIGINT)
    assert demo.ended() == 0


def test_a_second_ctrl_c_stops_at_once_and_says_what_is_lost(demo: Demo) -> None:
    demo.start()
    demo.start_server("ann")
    demo.signal(signal.SIGINT)
    demo.until(lambda: "press Ctrl-C again" in demo.words())
    begin = time.monotonic()

    def pressed() -> bool:
        assert demo.process
        demo.signal(signal.SIGINT)  # one that comes in the same second is the same Ctrl-C, by another way
        return demo.process.poll() is not None

    demo.until(pressed, 30)
    assert demo.ended() == 130, demo.words()
    assert time.monotonic() - begin < 30
    assert "Lost: the memory of 1 server (ann)" in demo.words() or "nothing is lost" in demo.words(), demo.words()
    assert not demo.ready_file.exists()


def test_what_is_in_the_way_is_said_at_once(demo: Demo) -> None:
    demo.start()
    again = subprocess.run(demo.command(), capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "runs already (pid" in again.stderr
    other = subprocess.run(
        [*demo.command()[:4], "--state", str(demo.folder / "other"), "--port", str(demo.port)], capture_output=True, text=True, check=False
    )
    assert other.returncode == 1
    assert f"Port {demo.port} is taken by node (pid" in other.stderr
    link = subprocess.run([*demo.command()[:3], "login", LONG, "--state", str(demo.state)], capture_output=True, text=True, check=True)
    assert link.stdout.startswith(f"http://127.0.0.1:{demo.port}/hub/login#")
    demo.signal(signal.SIGINT)
    assert demo.ended() == 0
    gone = subprocess.run([*demo.command()[:3], "login", "--state", str(demo.state)], capture_output=True, text=True, check=False)
    assert "No demo with the state folder" in gone.stderr


def test_an_old_runsc_is_refused_before_anything_is_made(demo: Demo, tmp_path: Path) -> None:
    old = tmp_path / "runsc"
    old.write_text("#!/bin/sh\necho 'runsc version release-20221107'\n")
    old.chmod(0o755)
    tried = subprocess.run(demo.command("--runsc", str(old)), capture_output=True, text=True, check=False)
    assert tried.returncode == 1
    assert "too old" in tried.stderr
    assert not (demo.state / "network").exists()
