"""One Ctrl-C pauses; only a person who presses it again, later, ends servers with their memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from gke_workspaces_spawner.cli import signals
from gke_workspaces_spawner.cli.signals import SAME_SECONDS, Asked, AtOnce


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock that the command looks at."""
    seconds = SimpleNamespace(now=100.0)
    monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: seconds.now))
    return seconds


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_ctrl_c_after_the_end_does_not_change_how_it_ended() -> None:
    with signals.signals(), pytest.raises(Asked):
        send(signal.SIGINT)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        send(number)


def test_a_ctrl_c_that_arrives_by_two_ways_counts_once_and_a_later_one_ends_at_once(seconds: SimpleNamespace) -> None:
    with signals.signals():
        with pytest.raises(Asked):
            send(signal.SIGINT)
        send(signal.SIGINT)  # sudo relays what its process group was sent
        seconds.now += SAME_SECONDS + 0.1
        with pytest.raises(AtOnce):
            send(signal.SIGINT)
        send(signal.SIGINT)  # it is ending already


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_machine_that_asks_again_never_ends_at_once(seconds: SimpleNamespace, number: signal.Signals) -> None:
    with signals.signals():
        with pytest.raises(Asked):
            send(number)
        seconds.now += 60
        send(number)


def test_what_must_be_done_to_its_end_is_not_interrupted() -> None:
    with signals.signals() as coming:
        coming.over()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            send(number)


def test_what_is_half_done_is_done_before_anything_is_raised() -> None:
    done = []
    with signals.signals() as coming:
        try:
            with coming.held():
                send(signal.SIGINT)
                done.append("the other half")
        except Asked:
            done.append("asked")
        with coming.held():
            pass
    assert done == ["the other half", "asked"]


def test_under_nohup_a_terminal_that_is_closed_asks_for_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.signals():
            send(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
