"""``gke-workspaces demo`` as a person and a script see it: with a real Hub, proxy and sandboxes."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gke_workspaces_spawner.cli import settings, stopping
from gke_workspaces_spawner.cli.leftovers import end_leftovers
from gke_workspaces_spawner.sandbox.network import Network
from tests.ports import free_port

pytestmark = pytest.mark.timeout(900)
LONG = "x" * 58 + ".Y"
NAMES = ("ann", "Ünï.Core@x.org", LONG)
SECONDS = 240.0


class Demo:
    """One demo on one state folder, started several times."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.ready_file = folder / "ready.json"
        self.out = folder / "out"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, Any] = {}

    def command(self, *more: str) -> list[str]:
        users = [word for name in NAMES for word in ("--user", name)]
        return [
            *(sys.executable, "-m", "gke_workspaces_spawner.cli", "demo", "--state", str(self.state), "--port", str(self.port)),
            *(*users, "--ready-file", str(self.ready_file), *more),
        ]

    def start(self) -> None:
        self.ready_file.unlink(missing_ok=True)
        with self.out.open("ab") as out:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        self.until(lambda: self.ready_file.exists() or self.process is None or self.process.poll() is not None)
        assert self.ready_file.exists(), self.words()
        self.ready = json.loads(self.ready_file.read_text())

    def signal(self, number: int) -> None:
        assert self.process
        os.killpg(self.process.pid, number)

    def ended(self) -> int:
        assert self.process
        return self.process.wait(SECONDS)

    def words(self) -> str:
        return self.out.read_text() if self.out.exists() else ""

    def until(self, condition: Any, seconds: float = SECONDS) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.words()
            time.sleep(0.1)

    def call(self, path: str, method: str = "GET", token: str | None = None, root: str | None = None) -> tuple[int, Any]:
        request = urllib.request.Request(
            (root or self.ready["hub_api_url"]) + path,
            method=method,
            headers={"Authorization": f"token {token or self.ready['admin_token']}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def model(self, name: str) -> dict[str, Any]:
        return dict((self.call(f"/users/{quote(name, safe='')}")[1]["servers"] or {}).get("", {}))

    def start_server(self, name: str) -> None:
        code, answer = self.call(f"/users/{quote(name, safe='')}/server", "POST", self.ready["users"][name]["token"])
        assert code in (201, 202), answer
        self.until(lambda: self.model(name).get("ready"))

    def pid_of_kernel(self, name: str) -> str:
        """Identity of the running server: the start time that Jupyter Server itself reports."""
        root = f"{self.ready['url']}user/{quote(name, safe='@~')}"
        code, answer = self.call("/api/status", token=self.ready["users"][name]["token"], root=root)
        assert code == 200, answer
        return str(answer["started"])

    def text(self, path: str, token: str | None = None) -> str:
        """A page, as HTML."""
        headers = {"Authorization": f"token {token}"} if token else {}
        with urllib.request.urlopen(urllib.request.Request(self.ready["url"] + path, headers=headers), timeout=60) as answer:
            return str(answer.read().decode())

    def login_by_the_command_of_the_login_page(self, name: str) -> None:
        """Do what the page says, in a shell that knows no environment; the link that comes of it logs in."""
        shown = re.search(r"<pre>(.*?)</pre>", self.text("hub/login"))
        assert shown
        command = html.unescape(shown[1]).replace("NAME", shlex.quote(name))
        shell = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder)}
        said = subprocess.run(command, shell=True, env=shell, capture_output=True, text=True, timeout=60, check=False)
        assert re.fullmatch(rf"http://127\.0\.0\.1:{self.port}/hub/login#[\w-]{{22,}}\n", said.stdout), said

    def phase(self, name: str) -> str:
        return str(self.call(f"/users/{quote(name, safe='')}/server/pause")[1]["phase"])


@pytest.fixture
def demo(tmp_path: Path, nothing_left: None) -> Iterator[Demo]:
    tmp_path.chmod(0o700)
    demo = Demo(tmp_path)
    yield demo
    if demo.process and demo.process.poll() is None:
        demo.signal(signal.SIGKILL)
        demo.process.wait()
    chosen = settings.load(demo.state)
    if chosen:
        end_leftovers(chosen)
    if chosen and (demo.state / "network").exists():
        network = Network.load(demo.state)
        stopping.end_sandboxes(chosen, network)
        for sandbox in network.attached():
            network.release(sandbox)
        network.close()


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
