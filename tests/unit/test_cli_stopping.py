"""What the demo asks the Hub for when it stops, and what it says of servers that a crash took."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gke_workspaces_spawner.cli import lost, settings, stopping
from gke_workspaces_spawner.cli.stopping import Running
from gke_workspaces_spawner.hubclient import HubClient, HubError


class Hub(HubClient):
    """A Hub with one user, whose servers follow a script: each look at a server takes its next phase, the last one stays."""

    def __init__(self, **scripts: list[str]) -> None:
        super().__init__("http://127.0.0.1:9/hub/api", "")
        self.scripts = scripts
        self.asked: list[str] = []
        self.refused: dict[str, HubError] = {}
        self.pauses = ["preparing", "paused"]
        """What follows when a pause is asked for."""
        self.late: dict[str, list[str]] = {}
        """Servers that appear with the first look at one."""

    def call(self, method: str, path: str, body: Any = None) -> Any:
        if path.startswith("/users?"):
            return [{"name": "ann", "servers": self.up()}] if "offset=0" in path else []
        name = path.split("/")[4]
        if method == "POST":
            self.asked.append(f"{name} {path.rpartition('/')[2]}")
            if path in self.refused:
                raise self.refused[path]
            if path.endswith("/pause"):
                self.scripts[name] = list(self.pauses)
            return {}
        self.scripts |= self.late
        self.late = {}
        script = self.scripts[name]
        phase = script.pop(0) if len(script) > 1 else script[0]
        return {"phase": phase, "intent": "none", "pause": {"id": "p1"}, "sentence": "It did not work."}

    def up(self) -> dict[str, dict[str, Any]]:
        """The Hub's models of servers that are not stopped."""
        phases = {name: script[0] for name, script in self.scripts.items()}
        return {
            name: {"ready": phase == "running", "pending": None if phase == "running" else "spawn"}
            for name, phase in phases.items()
            if phase != "paused"
        }


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    seconds = SimpleNamespace(now=0.0)

    def sleep(duration: float) -> None:
        seconds.now += duration

    monkeypatch.setattr(stopping, "time", SimpleNamespace(monotonic=lambda: seconds.now, sleep=sleep))
    return seconds


def test_a_resume_is_broken_off_once_and_is_paused_again() -> None:
    hub = Hub(lab=["waiting", "waiting", "restoring", "paused"])
    assert stopping.pause_all(hub) == []
    assert hub.asked == ["lab cancel"]


def test_a_resume_that_ended_before_it_was_broken_off_is_paused_like_any_server() -> None:
    hub = Hub(lab=["restoring", "running"])
    hub.refused["/users/ann/servers/lab/pause/p1/cancel"] = HubError(409, "Nothing to cancel.")
    assert stopping.pause_all(hub) == []
    assert hub.asked == ["lab cancel", "lab pause"]


def test_a_server_that_is_started_while_others_are_paused_is_paused_too(capsys: pytest.CaptureFixture[str]) -> None:
    hub = Hub(lab=["running"])
    hub.late = {"late": ["running"]}
    assert stopping.pause_all(hub) == []
    assert hub.asked == ["lab pause", "late pause"]
    assert capsys.readouterr().out.count(": paused after") == 2


def test_one_that_cannot_be_paused_is_said_once_and_left(capsys: pytest.CaptureFixture[str]) -> None:
    hub = Hub(lab=["running"], other=["running"])
    hub.pauses = ["preparing", "running"]
    hub.refused["/users/ann/servers/other/pause"] = HubError(507, "The disk is full.")
    assert set(stopping.pause_all(hub)) == {Running("ann", "lab"), Running("ann", "other")}
    said = capsys.readouterr().out
    assert said.count("ann/lab: could not be paused and goes on: It did not work.") == 1
    assert said.count("ann/other: could not be paused: The disk is full.") == 1


# ---------------------------------------------------------------- what a crash took


VIEWS: dict[str, Any] = {
    "up": {"phase": "running", "hub": {"ready": True, "pending": None}, "reason": None},
    "down": {"phase": "running", "hub": {"ready": False, "pending": None}, "reason": None},
    "checked": {"phase": "running", "hub": {"ready": False, "pending": "check"}, "reason": None},
    "saved": {"phase": "paused", "hub": {"ready": False, "pending": None}, "reason": {"code": "server_ended"}},
    "older": {"phase": "paused", "hub": {"ready": False, "pending": None}, "reason": {"code": "ended_by_itself"}},
}


class After(HubClient):
    """A Hub after the crash."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9/hub/api", "")

    def call(self, method: str, path: str, body: Any = None) -> Any:
        name = path.split("/")[4]
        if name not in VIEWS:
            raise HubError(404, "No such server.")
        return VIEWS[name]


def test_lost_is_what_neither_runs_nor_is_paused_with_what_it_had_in_memory() -> None:
    servers = [Running("ann", name) for name in (*VIEWS, "deleted")]
    assert [server.name for server in lost.lost(After(), servers)] == ["down", "older"]


def test_the_hubs_database_says_what_ran(tmp_path: Path) -> None:
    chosen = replace(settings.choose(tmp_path, None, ()), state=str(tmp_path))
    assert lost.ran(chosen) == ()
    with closing(sqlite3.connect(chosen.database)) as database:
        assert lost.ran(chosen) == ()
        database.executescript(
            """
            CREATE TABLE users (id INTEGER, name TEXT);
            CREATE TABLE spawners (name TEXT, user_id INTEGER, server_id INTEGER);
            INSERT INTO users VALUES (1, 'ann'), (2, 'bo');
            INSERT INTO spawners VALUES ('', 1, 7), ('lab', 1, NULL), ('train', 2, 8);
            """
        )
    assert lost.ran(chosen) == (Running("ann", ""), Running("bo", "train"))
