"""The Hub is killed right after each persisted phase, alone or with its process group, and started again: nothing is lost."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import pytest
from jupyterhub.utils import compare_token

from tests.fakes.kill_switch import PHASES

from .running import RunningHub, wait_for

SETTINGS = {"spawner": {"oauth_client_allowed_scopes": ["read:users:name!user"]}}


@pytest.mark.parametrize("group", [False, True], ids=["alone", "with its group"])
@pytest.mark.parametrize(("phase", "proof"), PHASES, ids=[phase + (" after the proof" if proof else "") for phase, proof in PHASES])
def test_a_killed_hub_finds_its_way(hub: RunningHub, ann: str, phase: str, proof: bool, group: bool) -> None:
    hub.start_server(ann)
    first = hub.count(ann)
    last = first["count"]
    tokens = "SELECT t.id FROM api_tokens t JOIN users u ON u.id = t.user_id WHERE u.name = ? AND t.note LIKE 'Server at%'"
    (row,) = hub.rows(tokens, ann)
    at_resume = phase in ("waiting", "restoring", "running")
    if at_resume:
        hub.pause(ann)
    hub.kill_at(phase, proof=proof, group=group)
    hub.in_background(lambda: hub.call("POST", hub.path(ann) + ("" if at_resume else "/pause"), token=hub.user(ann), raw=True))
    hub.wait_killed()
    hub.start()

    view = hub.wait_phase({"running", "paused"}, ann)
    hub.call("POST", "/workspaces/kick", raw=True)
    wait_for("nothing to be pending", lambda: not hub.workspace(ann)["hub"]["pending"])
    view = hub.wait_phase({"running", "paused"}, ann)
    assert view["intent"] == "none"
    if proof or phase == "running":
        assert view["phase"] == "running", view
    if view["phase"] == "paused":
        assert len(view["snapshots"]) == 1
        assert hub.model(ann).get("ready") is not True
    assert hub.pid(ann) == first["pid"]
    if proof or phase == "running":  # logins work: the OAuth client's secret is the token that the process holds
        hub.wait_ready(ann)
        secret, scopes = hub.rows("SELECT secret, allowed_scopes FROM oauth_clients WHERE identifier = ?", f"jupyterhub-user-{ann}")[0]
        assert compare_token(secret, hub.server_token(ann))
        assert "read:users:name" in scopes
    for _ in range(2):
        if hub.workspace(ann)["phase"] == "running":
            hub.wait_ready(ann)
            hub.pause(ann)
        hub.resume(ann)
        last += 1
        assert hub.count(ann) == {**first, "count": last}
    assert hub.pid(ann) == first["pid"]
    assert hub.rows(tokens, ann) == [row]
    assert hub.record(ann)["extra"].keys() == {"token_id", "address", "options"}


def test_a_record_of_a_newer_version_is_kept_aside_and_the_server_can_be_started(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.pause(ann)
    hub.kill()
    saved = hub.record(ann)
    with contextlib.closing(sqlite3.connect(hub.folder / "hub.sqlite", timeout=20)) as database, database:
        query = "SELECT s.id, s.state FROM spawners s JOIN users u ON u.id = s.user_id WHERE u.name = ?"
        row, state = database.execute(query, (ann,)).fetchone()
        newer = json.loads(state)
        newer["gke_workspaces"]["workspace"]["version"] = 99
        database.execute("UPDATE spawners SET state = ? WHERE id = ?", (json.dumps(newer), row))
    hub.start()
    view = hub.workspace(ann)
    assert (view["phase"], view["reason"]["code"], view["actions"]) == ("running", "record_unreadable", ["start"])
    hub.start_server(ann)
    assert hub.record(ann)["extra"]["unreadable"]["pause"] == saved["pause"]
    hub.pause(ann)
    hub.resume(ann)


def test_a_killed_hub_leaves_no_service_behind(hub: RunningHub) -> None:
    wait_for("the service of this Hub alone", lambda: len(hub.services()) == 1)
    (service,) = hub.services()
    hub.kill()
    wait_for("the service to end", lambda: service not in hub.services(), 15)
    hub.start()
    wait_for("the service of the new Hub", lambda: len(hub.services()) == 1)


def test_nothing_of_all_this_was_an_unhandled_error(light_hub: RunningHub) -> None:
    assert "Traceback" not in light_hub.log
