"""The ready file is a secret, and appears only where nobody else could put something in its place."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from gke_workspaces_spawner.cli import readyfile
from gke_workspaces_spawner.cli.say import Stopped

CONTENT = {"url": "http://127.0.0.1:1/", "hub_api_url": "x", "admin_token": "y", "users": {"bö": {}}}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")


@pytest.fixture(autouse=True)
def _no_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.delenv("SUDO_GID", raising=False)


def test_it_is_json_private_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    readyfile.write(path, {**CONTENT, "url": "old"})
    readyfile.write(path, CONTENT)
    assert json.loads(path.read_text()) == CONTENT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["ready.json"]
    readyfile.remove(path)
    readyfile.remove(path)
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_it_belongs_to_the_one_who_called_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "4711")
    monkeypatch.setenv("SUDO_GID", "4712")
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    os.chown(own, 4711, 4712)
    readyfile.write(own / "r", CONTENT)
    status = (own / "r").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (4711, 4712, 0o600)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(Stopped, match="others can write"):
        readyfile.write(folder / "r", CONTENT)
    with pytest.raises(Stopped, match="others can write"):
        readyfile.write(folder / ".." / "shared" / "r", CONTENT)
    assert list(folder.iterdir()) == []


def test_a_folder_below_one_that_others_can_write_is_refused_unless_sticky(tmp_path: Path) -> None:
    inner = tmp_path / "shared" / "inner"
    inner.mkdir(parents=True, mode=0o700)
    inner.parent.chmod(0o777)
    with pytest.raises(Stopped):
        readyfile.check_place(inner / "r")
    inner.parent.chmod(0o1777)
    readyfile.check_place(inner / "r")


@needs_root
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, 4711, 4711)
    with pytest.raises(Stopped):
        readyfile.check_place(folder / "r")


def test_what_is_no_ready_file_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("precious")
    (tmp_path / "other.json").write_text('{"url": 1}')
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "text")
    os.mkfifo(tmp_path / "pipe")
    for name in ("text", "other.json", "folder", "link", "pipe"):
        with pytest.raises(Stopped, match="is not a ready file"):
            readyfile.remove(tmp_path / name)
    assert len(list(tmp_path.iterdir())) == 5


def test_writing_replaces_a_link_and_does_not_follow_it(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "r").symlink_to(tmp_path / "victim")
    readyfile.write(tmp_path / "r", CONTENT)
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "r").is_symlink()


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="make it first"):
        readyfile.check_place(tmp_path / "absent" / "r")
