"""A named server is deleted in the middle of its pause: it goes with all that was saved of it, whatever becomes of the pause."""

from __future__ import annotations

import pytest

from .running import RunningHub, wait_for

SERVER = "lab"


def delete_while_it_is_held_in(hub: RunningHub, user: str, phase: str) -> int:
    """Begin a pause that stays in that phase, and ask for the deletion; the pid of the server."""
    hub.start_server(user, SERVER)
    pid = hub.pid(user, SERVER)
    hub.fault(hold=phase)
    assert hub.ask("POST", user, SERVER, "/pause", {})[0] == 202
    hub.wait_phase(phase, user, SERVER)
    assert hub.ask("DELETE", user, SERVER, "", {"remove": True})[0] == 202
    return pid


def is_gone(hub: RunningHub, user: str, pid: int) -> None:
    wait_for("the server to be gone", lambda: not hub.model(user, SERVER))
    wait_for("its process to be gone", lambda: not any(pid in pids for pids in hub.pids().values()))


@pytest.mark.parametrize("phase", ["preparing", "checkpointing", "saved"])
def test_a_pause_that_is_cancelled_does_not_keep_it(hub: RunningHub, ann: str, phase: str) -> None:
    pid = delete_while_it_is_held_in(hub, ann, phase)
    assert hub.verb("cancel", ann, SERVER)[0] == 202
    hub.fault()
    is_gone(hub, ann, pid)


@pytest.mark.parametrize("outcome", ["fail", "lost"])
def test_a_save_that_fails_does_not_keep_it(hub: RunningHub, ann: str, outcome: str) -> None:
    pid = delete_while_it_is_held_in(hub, ann, "preparing")
    hub.fault(save=outcome)
    is_gone(hub, ann, pid)


@pytest.mark.parametrize("phase", ["checkpointing", "stopping"])
def test_a_resume_that_was_asked_for_does_not_keep_it(hub: RunningHub, ann: str, phase: str) -> None:
    pid = delete_while_it_is_held_in(hub, ann, phase)
    assert hub.verb("resume", ann, SERVER)[0] == 202
    hub.fault()
    is_gone(hub, ann, pid)


def test_a_server_of_the_same_name_starts_anew(hub: RunningHub, ann: str) -> None:
    pid = delete_while_it_is_held_in(hub, ann, "checkpointing")
    assert hub.verb("cancel", ann, SERVER)[0] == 202
    hub.fault()
    is_gone(hub, ann, pid)
    hub.start_server(ann, SERVER)
    assert hub.workspace(ann, SERVER)["snapshots"] == []
    hub.pause(ann, SERVER)
    assert hub.resume(ann, SERVER)["receipt"]["resumed"] is True


def test_nothing_of_all_this_was_an_unhandled_error(light_hub: RunningHub) -> None:
    assert "Traceback" not in light_hub.log
    assert "never retrieved" not in light_hub.log
