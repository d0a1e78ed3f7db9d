"""Names of people and servers as JupyterHub allows them, one a prefix of another, taken away and given again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from .running import RunningHub, wait_for

USERS = [r"corp\ana", "o'neil (x)", "a+b", "zoë", "x%2fy", "bo@x.org", "UPPER", "u" * 60, "follow", "server", "пользователь"]


@pytest.mark.parametrize("user", USERS)
def test_a_user_of_that_name_pauses_and_resumes(hub: RunningHub, user: str) -> None:
    """Bank of reports, 20."""
    hub.start_server(user)
    first = hub.count(user)
    view = hub.pause(user)
    assert view["user"] == user
    pause_id = view["pause"]["id"]
    if user == user.lower():  # the login form knows no other
        assert hub.browser(user).get(hub.url + view["urls"]["page"], timeout=30).status_code == 200
    assert hub.verb("resume", user, pause_id=pause_id)[0] == 202
    hub.wait_phase("running", user)
    hub.wait_ready(user)
    assert hub.count(user)["boot_id"] == first["boot_id"]
    hub.pause(user)
    for each in (hub.pause_id(user), pause_id):  # the paused state, then what was kept of the first pause
        assert hub.ask("DELETE", user, path=f"/pause/{each}")[0] == 200
    assert hub.workspace(user)["snapshots"] == []


def test_names_that_begin_alike_keep_apart(hub: RunningHub) -> None:
    """Bank of reports, 18."""
    servers = [("test1", ""), ("test11", ""), ("test1", "one"), ("test1", "one1"), ("test1", "lab"), ("test1", "lab-2"), ("test11", "lab")]
    if not hub.renames:  # JupyterHub 5 allows nearly every name
        servers += [("test1", "Träin (1)"), ("test1", "a.b@c"), ("test11", "x%2Fy"), ("test11", "server"), ("test1", "1")]
    first = {}
    for user, server in servers:
        hub.start_server(user, server)
        first[user, server] = hub.count(user, server)
    assert len({counted["pid"] for counted in first.values()}) == len(servers)
    for user, server in servers:
        hub.pause(user, server)
    snapshots = {key: [s["id"] for s in hub.workspace(*key)["snapshots"]] for key in servers}
    assert len({tuple(ids) for ids in snapshots.values()}) == len(servers)
    listed = hub.call("GET", "/workspaces")[1]["workspaces"]
    assert {(v["user"], v["server"]) for v in listed if v["user"].startswith("test1")} >= set(servers)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda key: hub.start_server(*key), servers[:2]))
    for key in servers[:2]:
        hub.wait_phase("running", *key)
        assert hub.count(*key)["boot_id"] == first[key]["boot_id"]
    hub.resume("test1", "one")
    assert hub.count("test1", "one")["boot_id"] == first["test1", "one"]["boot_id"]

    for key in (("test1", ""), ("test1", "one")):
        hub.pause(*key)
    assert hub.call("DELETE", "/users/test1")[0] == 204
    left = {path.name for path in (hub.folder / "state" / "snapshots").iterdir()}
    assert not left & {i for (user, _), ids in snapshots.items() if user == "test1" for i in ids}
    for key in servers:
        if key[0] == "test11" and key != ("test11", ""):
            assert set(snapshots[key]) <= left
            hub.resume(*key)
            assert hub.count(*key)["boot_id"] == first[key]["boot_id"]


def test_a_server_deleted_while_it_is_paused_takes_snapshot_and_tokens_with_it(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    rows = "SELECT count(*) FROM api_tokens WHERE note LIKE ?"
    hub.start_server(ann, "lab")
    pid = hub.pid(ann, "lab")
    view = hub.pause(ann, "lab")
    assert hub.ask("DELETE", ann, "lab", body={"remove": True})[0] == 204
    assert hub.rows(rows, f"Server at /user/{ann}/lab/") == [(0,)]
    assert hub.rows(rows, f"Server at /user/{ann}/") == [(1,)]
    assert not (hub.folder / "state" / "snapshots" / view["snapshot"]["id"]).exists()
    assert all(pid not in pids for pids in hub.pids().values())
    assert hub.ask("GET", ann, "lab", "/pause")[0] == 404
    assert hub.ask("POST", ann, "lab", f"/pause/{view['pause']['id']}/resume", {})[0] == 404
    hub.start_server(ann, "lab")
    assert hub.workspace(ann, "lab")["snapshots"] == []
    assert hub.workspace(ann, "lab")["pause"] is None


def test_a_new_user_of_an_old_name_is_offered_nothing_old(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    old = hub.count(ann)
    view = hub.pause(ann)
    assert hub.call("DELETE", f"/users/{ann}")[0] == 204
    assert hub.rows("SELECT count(*) FROM api_tokens WHERE note = ?", f"Server at /user/{ann}/") == [(0,)]
    hub.forget_user(ann)
    hub.user(ann)
    new = hub.workspace(ann)
    assert (new["phase"], new["pause"], new["snapshots"], new["actions"]) == ("running", None, [], ["start"])
    status, answer = hub.verb("resume", ann, pause_id=view["pause"]["id"])
    assert (status, answer["reason"]) == (409, "wrong_pause")
    hub.start_server(ann)
    assert hub.count(ann)["boot_id"] != old["boot_id"]


def test_a_user_renamed_while_paused_is_told_and_nothing_is_lost(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    first = hub.count(ann)
    hub.pause(ann)
    assert hub.call("PATCH", f"/users/{ann}", {"name": f"{ann}-new"})[0] == 200
    status, answer = hub.call("POST", f"/users/{ann}-new/server")
    assert status == 409
    assert "address" in answer["message"]
    status, view = hub.call("GET", f"/users/{ann}-new/server/pause")
    assert (view["phase"], len(view["snapshots"])) == ("paused", 1)
    hub.forget_user(ann)
    hub.user(ann)  # somebody else takes the old name
    assert hub.workspace(ann)["snapshots"] == []
    assert hub.call("DELETE", f"/users/{ann}")[0] == 204
    assert hub.call("PATCH", f"/users/{ann}-new", {"name": ann})[0] == 200
    hub.forget_user(ann)
    hub.resume_as_admin(ann)
    wait_for("the restored server", lambda: hub.call("GET", f"/users/{ann}/server/pause")[1]["hub"]["ready"])
    assert hub.pids()[hub.record(ann)["owner"]["lineage"]] == [first["pid"]]


def test_a_named_server_can_be_renamed_when_nothing_of_it_is_saved(hub: RunningHub, ann: str) -> None:
    if not hub.renames:
        return
    hub.start_server(ann, "lab")
    hub.ask("DELETE", ann, "lab")
    wait_for("a stopped server", lambda: hub.workspace(ann, "lab")["actions"] == ["start"])
    assert hub.ask("PATCH", ann, "lab", body={"name": "new"})[0] == 200
    hub.start_server(ann, "new")
    hub.pause(ann, "new")
    hub.resume(ann, "new")
    hub.start_server(ann, "lab")
    assert hub.workspace(ann, "lab")["pause"] is None


def test_nothing_of_all_this_was_an_unhandled_error(light_hub: RunningHub) -> None:
    assert "Traceback" not in light_hub.log
