"""What stays on a server's shelf of snapshots and what goes, through a real Hub."""

from __future__ import annotations

from .running import RunningHub, wait_for


def shelf(hub: RunningHub, user: str) -> dict[str, str]:
    """Snapshots by the pause that made them, with their state."""
    return {each["pause_id"]: each["state"] for each in hub.workspace(user)["snapshots"]}


def on_disk(hub: RunningHub, user: str) -> set[str]:
    """Pauses of this user's snapshots that lie on the disk."""
    known = {each["id"]: each["pause_id"] for each in hub.workspace(user)["snapshots"]}
    found = {path.name for path in (hub.folder / "state" / "snapshots").iterdir()}
    return {pause_id for snapshot_id, pause_id in known.items() if snapshot_id in found}


def cycle(hub: RunningHub, user: str) -> str:
    """Pause and resume with proof; the id of the pause."""
    hub.pause(user)
    pause_id = hub.pause_id(user)
    hub.resume(user)
    return pause_id


def rests_at(hub: RunningHub, user: str, wanted: dict[str, str]) -> None:
    """The records say so, and the disk holds just those bytes."""
    wait_for(f"a shelf of {wanted}", lambda: shelf(hub, user) == wanted)
    assert on_disk(hub, user) == set(wanted)


def test_after_a_proved_resume_only_the_last_stays(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    first = cycle(hub, ann)
    rests_at(hub, ann, {first: "current"})
    second = cycle(hub, ann)
    rests_at(hub, ann, {second: "current"})
    assert not list((hub.folder / "state" / "snapshots").glob(f"*{first}*"))


def test_a_superseded_one_stays_through_later_resumes_until_it_is_discarded(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.pause(ann)
    left = hub.pause_id(ann)
    assert hub.verb("fresh", ann)[0] == 202
    hub.wait_phase("running", ann)
    hub.wait_ready(ann)
    cycle(hub, ann)
    last = cycle(hub, ann)
    rests_at(hub, ann, {left: "superseded", last: "current"})
    assert hub.ask("DELETE", ann, path=f"/pause/{left}")[0] == 200
    rests_at(hub, ann, {last: "current"})
    assert not list((hub.folder / "state" / "snapshots").glob(f"*{left}*"))


def test_an_unproven_one_stays_through_later_resumes_until_it_is_discarded(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    hub.pause(ann)
    left = hub.pause_id(ann)
    hub.fault(restore="fresh")
    assert hub.verb("resume", ann)[0] == 202
    hub.wait_phase("unproven", ann)
    hub.fault()
    assert hub.verb("accept", ann)[0] == 200
    hub.wait_phase("running", ann)
    hub.wait_ready(ann)
    cycle(hub, ann)
    last = cycle(hub, ann)
    rests_at(hub, ann, {left: "unproven", last: "current"})
    assert hub.ask("DELETE", ann, path=f"/pause/{left}")[0] == 200
    rests_at(hub, ann, {last: "current"})


def test_discarding_deletes_that_pause_and_no_other_and_the_next_proved_resume_lets_the_older_one_go(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    proved = cycle(hub, ann)
    hub.pause(ann)
    discarded = hub.pause_id(ann)
    assert hub.ask("DELETE", ann, path=f"/pause/{discarded}")[0] == 200
    rests_at(hub, ann, {proved: "current"})
    assert not list((hub.folder / "state" / "snapshots").glob(f"*{discarded}*"))
    view = hub.workspace(ann)
    assert (view["phase"], view["actions"]) == ("running", ["start"])
    hub.start_server(ann)
    rests_at(hub, ann, {proved: "current"})
    last = cycle(hub, ann)
    rests_at(hub, ann, {last: "current"})


def test_while_it_is_paused_again_the_last_proved_one_stays_too(hub: RunningHub, ann: str) -> None:
    hub.start_server(ann)
    proved = cycle(hub, ann)
    hub.pause(ann)
    rests_at(hub, ann, {proved: "current", hub.pause_id(ann): "current"})
