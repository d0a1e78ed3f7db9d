"""Chromium for the browser level: one browser a run, a fresh profile a test; and one Hub with real sandboxes for all that needs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from gke_workspaces_spawner.hubapi import urls
from tests.hub.running import RunningHub, wait_for
from tests.sandbox.faulty_runsc import FaultyRunsc
from tests.sandbox.local_hub import local_hub, runsc

CHROMIUM = "/usr/bin/chromium"

PATIENCE = 30_000
"""Milliseconds for what takes a moment, on a busy machine: a page that rests asks the Hub every 15 seconds at the least."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        expect.set_options(timeout=PATIENCE)
        yield chromium
        chromium.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(locale="en-GB", timezone_id="UTC", viewport={"width": 1100, "height": 800})
    made.set_default_timeout(PATIENCE)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page; the test fails when a script on it does."""
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    assert errors == []


@pytest.fixture(scope="session")
def bad_runsc(tmp_path_factory: pytest.TempPathFactory) -> FaultyRunsc:
    """The sandboxes' runsc, which does as it is told; see :func:`faulty`."""
    return FaultyRunsc(tmp_path_factory.mktemp("faulty") / "bin", runsc())


@pytest.fixture(scope="session")
def lab_hub(tmp_path_factory: pytest.TempPathFactory, bad_runsc: FaultyRunsc) -> Iterator[RunningHub]:
    """A Hub whose servers are JupyterLabs in real sandboxes; each test takes users of its own."""
    with local_hub(tmp_path_factory.mktemp("lab"), {"runsc": str(bad_runsc.path)}) as hub:
        yield hub


@pytest.fixture(autouse=True)
def nobody_from_before(request: pytest.FixtureRequest) -> None:
    """A test that is run once more takes users whose servers its first attempt has left: they go before."""
    if getattr(request.node, "execution_count", 1) > 1 and "lab_hub" in request.fixturenames:
        hub: RunningHub = request.getfixturevalue("lab_hub")
        for user in hub.call("GET", "/users")[1]:
            if not user["admin"]:
                path = f"/users/{urls.segment(user['name'])}"
                wait_for(f"the end of {user['name']}", lambda path=path: hub.call("DELETE", path, raw=True)[0] in (204, 404))
                hub.forget_user(user["name"])


@pytest.fixture
def faulty(bad_runsc: FaultyRunsc) -> Iterator[FaultyRunsc]:
    """Lets the sandboxes' runsc get something wrong during this test."""
    bad_runsc.faults()
    yield bad_runsc
    bad_runsc.faults()


@pytest.fixture
def picture(output: Path) -> Picture:
    """Keeps screenshots in the run's output folder."""
    return Picture(output)


class Picture:
    """Takes screenshots of a page by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, page: Page, name: str) -> None:
        page.screenshot(path=self._folder / f"{name}.png")
