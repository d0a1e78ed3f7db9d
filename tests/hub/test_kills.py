"""The Hub is killed right after each persisted phase, alone or with its process group, and started again: nothing is lost."""

from __future__ import annotations

import pytest

from .running import RunningHub, wait_for

PHASES = [
    ("preparing", False),
    ("checkpointing", False),
    ("saved", False),
    ("stopping", False),
    ("paused", False),
    ("waiting", False),
    ("restoring", False),
    ("restoring", True),
    ("running", False),
]
"""Phase that is persisted, and whether it is the proof within it."""


@pytest.mark.parametrize("group", [False, True], ids=["alone", "with its group"])
@pytest.mark.parametrize(("phase", "proof"), PHASES, ids=[phase + (" after the proof" if proof else "") for phase, proof in PHASES])
def test_a_killed_hub_finds_its_way(hub: RunningHub, ann: str, phase: str, proof: bool, group: bool) -> None:
    hub.start_server(ann)
    first = hub.count(ann)
    tokens = hub.rows("SELECT count(*) FROM api_tokens")
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
    for cycle in range(2):
        if hub.workspace(ann)["phase"] == "running":
            hub.wait_ready(ann)
            assert hub.count(ann) == {**first, "count": first["count"] + cycle + 1}
            hub.pause(ann)
        hub.resume(ann)
    assert hub.pid(ann) == first["pid"]
    assert hub.count(ann)["boot_id"] == first["boot_id"]
    wait_for("one token row", lambda: hub.rows("SELECT count(*) FROM api_tokens") == tokens, 10)


def test_nothing_of_all_this_was_an_unhandled_error(light_hub: RunningHub) -> None:
    assert "Traceback" not in light_hub.log
