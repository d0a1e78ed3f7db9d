"""What an idle Hub with many paused servers costs, beside the same Hub with none. Run by ``make bench`` only."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path

from gke_workspaces_spawner.sandbox.processes import command_lines
from tests.hub.running import ROOT, RunningHub
from tests.sandbox import local_hub as local

PAUSED = 100
SECONDS = float(os.environ.get("BENCH_IDLE_SECONDS", "65"))
"""Longer than the minute between two kicks of our service, so that one of them is in it."""
START_SECONDS = 15.0
"""What follows the Hub's start and its first answers is not idle."""
OUT = Path(os.environ.get("BENCH_OUT", ROOT / "build" / "bench"))


def processor_seconds(root: int) -> float:
    """User and system time of a process and its children that live (the Hub and its service)."""
    total, todo = 0.0, [root]
    while todo:
        pid = todo.pop()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        todo += [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return total


def idle_share(hub: RunningHub, seconds: float = SECONDS) -> float:
    """Share of one processor that the Hub takes while nobody asks it for anything."""
    (pid,) = [pid for pid, words in command_lines() if "jupyterhub" in words and os.readlink(f"/proc/{pid}/cwd") == str(hub.folder)]
    begin, before = time.monotonic(), processor_seconds(pid)
    time.sleep(seconds)  # the measurement itself: for so long nothing is asked
    return (processor_seconds(pid) - before) / (time.monotonic() - begin)


def copy_record(hub: RunningHub, names: list[str]) -> None:
    """Write the paused record of ann for other users, each of a lineage of its own, while the Hub is down."""
    with sqlite3.connect(hub.folder / "hub.sqlite") as database:
        (state,) = database.execute(
            "SELECT spawners.state FROM spawners JOIN users ON users.id = spawners.user_id WHERE users.name = 'ann'"
        ).fetchone()
        for name in names:
            (user,) = database.execute("SELECT id FROM users WHERE name = ?", (name,)).fetchone()
            one = json.loads(state)
            record = one["gke_workspaces"]["workspace"]
            record["owner"] = {**record["owner"], "user_id": user, "lineage": f"{user:032x}"}
            record["key"] = {**record["key"], "user": name} if isinstance(record.get("key"), dict) else record.get("key")
            database.execute("DELETE FROM spawners WHERE user_id = ? AND name = ''", (user,))
            database.execute("INSERT INTO spawners (user_id, name, state) VALUES (?, '', ?)", (user, json.dumps(one)))


def test_an_idle_hub_costs_next_to_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    folder.mkdir(mode=0o700)
    with local.local_hub(folder) as hub:
        names = [f"user{number}" for number in range(PAUSED - 1)]
        for name in names:
            assert hub.call("POST", f"/users/{name}", {})[0] == 201
        idle_share(hub, START_SECONDS)
        nothing = idle_share(hub)
        hub.start_server("ann")
        hub.pause("ann")
        hub.kill()
        copy_record(hub, names)
        hub.start()
        assert hub.workspace(names[-1])["phase"] == "paused"
        start = idle_share(hub, START_SECONDS)
        many = idle_share(hub)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "idle.json").write_text(
        json.dumps({"none": nothing, "paused": many, "after the start": start, "servers": PAUSED, "load": os.getloadavg()[0]})
    )
    print(f"idle: {nothing:.2%} of a processor with no paused server, {many:.2%} with {PAUSED}", flush=True)
    assert many < 0.01 + nothing
