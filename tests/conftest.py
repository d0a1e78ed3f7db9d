"""What every level shares: levels from folders, no silent skips, an output folder, and a look at what a run leaves behind."""

from __future__ import annotations

import gc
import os
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import leaks
from tests.ports import free_port as find_free_port

ROOT = Path(__file__).resolve().parent.parent
LEVELS = ("unit", "bank", "hub", "kube", "sandbox", "browser")
"""The folder below ``tests/`` says the level, and a run goes through them in this order: cheapest first, and the browser last,
for Playwright's event loop is there until the run ends and asyncio tests could not have theirs after it."""

STRICT = bool(os.environ.get("CI") or os.environ.get("GKE_WORKSPACES_NO_SKIPS"))
"""In CI a test that did not run is a failure, and so is anything that a run leaves behind on the machine."""

SETTLE = float(os.environ.get("GKE_WORKSPACES_SETTLE_SECONDS", "15"))
"""How long something that is going away at the end may take for it."""

NEEDS_ROOT = frozenset({"sandbox", "browser"})

attempts_failed: list[str] = []
"""Tests of which an attempt failed, whatever a further one did."""
not_run: list[str] = []
"""Tests that were skipped or were expected to fail, with the reason that pytest was given."""


def level_of(path: Path) -> str | None:
    """The level that a test file belongs to; ``None`` for files outside of the levels (bench, emulator)."""
    tests = ROOT / "tests"
    level = path.relative_to(tests).parts[0] if path.is_relative_to(tests) else ""
    return level if level in LEVELS else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        level = level_of(item.path)
        if level:
            item.add_marker(level)
        if level in NEEDS_ROOT and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason=f"the {level} level makes network namespaces and sandboxes: run it as root"))
    order = {level: number for number, level in enumerate(LEVELS)}
    items.sort(key=lambda item: order.get(level_of(item.path) or "", len(LEVELS)))


def pytest_configure(config: pytest.Config) -> None:
    os.environ[leaks.MARK] = leaks.RUN
    config.stash[before_key] = leaks.look() if STRICT else None


before_key: pytest.StashKey[leaks.Machine | None] = pytest.StashKey()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.outcome in ("failed", "rerun"):
        attempts_failed.append(report.nodeid)
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
        not_run.append(f"{report.nodeid}: {reason}")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        not_run.append(f"{report.nodeid}: {reason}")


def let_go_of_failures() -> None:
    """Free what failed attempts held (sockets in the frames of a traceback): a warning for that would fail a run whose tests all passed."""
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        if hasattr(sys, name):
            delattr(sys, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a strict run that skipped something or that left something on the machine."""
    if attempts_failed:
        let_go_of_failures()
    if not STRICT:
        return
    before = session.config.stash[before_key]
    assert before is not None
    left = leaks.settled_difference(before, SETTLE)
    session.config.stash[complaints_key] = [f"not run: {line}" for line in not_run] + [f"left behind: {line}" for line in left]
    if session.config.stash[complaints_key] and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


complaints_key: pytest.StashKey[list[str]] = pytest.StashKey()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    complaints = config.stash.get(complaints_key, [])
    if complaints:
        terminalreporter.section("a strict run may not skip tests or leave anything behind", red=True)
        for line in complaints:
            terminalreporter.write_line(line)


@pytest.fixture
def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listened on a moment ago."""
    return find_free_port()


@pytest.fixture(scope="session")
def output_root() -> Path:
    """Where a run keeps what a person may want to look at afterwards: screenshots, logs of hubs and sandboxes."""
    folder = Path(os.environ.get("GKE_WORKSPACES_TEST_OUTPUT", ROOT / "test-output"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def output(output_root: Path, request: pytest.FixtureRequest) -> Path:
    """This test's own folder below :func:`output_root`."""
    name = re.sub(r"[^\w.=-]+", "-", request.node.nodeid.removeprefix("tests/")).strip("-")[:150]
    folder = output_root / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail the test that leaves a process, namespace, mount, interface or packet-filter table behind.

    Ask for it first (it looks after every fixture that was asked for later has been torn down). Do not use it while something
    else on the machine makes namespaces or interfaces.
    """
    before = leaks.look()
    yield
    left = leaks.settled_difference(before, SETTLE)
    assert not left, "left behind:\n" + "\n".join(left)
