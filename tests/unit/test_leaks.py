"""The look at what a run leaves behind sees each kind of thing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import leaks


@pytest.fixture
def child():
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, leaks.MARK: leaks.RUN},
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.communicate()


def test_a_process_in_a_session_of_its_own_is_seen(child: subprocess.Popen[bytes]):
    after = leaks.look()
    assert any(line.startswith(f"{child.pid} ") for line in after.processes)


def test_a_process_that_ended_is_no_longer_seen(child: subprocess.Popen[bytes]):
    before = leaks.look()
    child.communicate()
    assert not any(line.startswith(f"{child.pid} ") for line in leaks.look().processes)
    assert any(line.startswith(f"{child.pid} ") for line in before.processes)


@pytest.mark.parametrize("kind", ["processes", "namespaces", "mounts", "interfaces", "tables"])
def test_each_kind_is_compared(kind: str):
    nothing = leaks.Machine(*[frozenset()] * 5)
    something = leaks.Machine(**{name: frozenset({"x"}) if name == kind else frozenset() for name in vars(nothing)})
    assert leaks.difference(nothing, something) == [f"{kind}: x"]
    assert leaks.difference(something, nothing) == []
    assert leaks.difference(something, something) == []
