"""One Ctrl-C pauses; only a person who presses it again, later, ends servers with their memory."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest

from gke_workspaces_spawner.cli import demo


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock that the command looks at."""
    seconds = SimpleNamespace(now=100.0)
    monkeypatch.setattr(demo, "time", SimpleNamespace(monotonic=lambda: seconds.now))
    return seconds


def test_a_ctrl_c_that_arrives_by_two_ways_counts_once_and_a_later_one_ends_at_once(seconds: SimpleNamespace) -> None:
    with demo.signals():
        with pytest.raises(demo.Asked):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # sudo relays what its process group was sent
        seconds.now += demo.SAME_SECONDS + 0.1
        with pytest.raises(demo.AtOnce):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # it is ending already


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_machine_that_asks_again_never_ends_at_once(seconds: SimpleNamespace, number: signal.Signals) -> None:
    with demo.signals():
        with pytest.raises(demo.Asked):
            os.kill(os.getpid(), number)
        seconds.now += 60
        os.kill(os.getpid(), number)


def test_what_must_be_done_to_its_end_is_not_interrupted() -> None:
    with demo.undisturbed():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
