"""A ticket logs in once, whoever else has it."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from gke_workspaces_spawner.cli.tickets import Tickets


@pytest.fixture
def tickets(tmp_path: Path) -> Tickets:
    return Tickets(tmp_path / "tickets.sqlite")


def test_a_ticket_gives_its_user_once(tickets: Tickets) -> None:
    ann, bo = tickets.issue("ann"), tickets.issue("bö@x.org")
    assert tickets.take(bo) == "bö@x.org"
    assert tickets.take(bo) is None
    assert tickets.take(ann) == "ann"


def test_of_many_takers_at_once_one_gets_it(tickets: Tickets) -> None:
    for _ in range(5):
        ticket = tickets.issue("ann")
        barrier = threading.Barrier(20)
        got: list[str | None] = []

        def take(ticket: str = ticket, barrier: threading.Barrier = barrier, got: list[str | None] = got) -> None:
            barrier.wait()
            got.append(tickets.take(ticket))

        threads = [threading.Thread(target=take) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got, key=str) == [None] * 19 + ["ann"]


def test_an_old_ticket_is_worthless_and_forgotten(tickets: Tickets) -> None:
    assert tickets.take(tickets.issue("ann", lifetime=-1)) is None


@pytest.mark.parametrize("bad", ["", "x", "\udcff", "' OR 1=1 --", "a" * 100_000])
def test_what_is_no_ticket_gives_nobody(tickets: Tickets, bad: str) -> None:
    tickets.issue("ann")
    assert tickets.take(bad) is None


def test_the_file_holds_no_ticket_and_is_private(tickets: Tickets, tmp_path: Path) -> None:
    ticket = tickets.issue("ann")
    assert len(ticket) >= 22, "128 bits in base64"
    assert stat.S_IMODE((tmp_path / "tickets.sqlite").stat().st_mode) == 0o600
    assert all(ticket.encode() not in path.read_bytes() for path in tmp_path.iterdir())


def test_clearing_makes_all_worthless(tickets: Tickets) -> None:
    ticket = tickets.issue("ann")
    tickets.clear()
    assert tickets.take(ticket) is None
