"""Chromium for the browser level: one browser a run, a fresh profile a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(locale="en-GB", timezone_id="UTC", viewport={"width": 1100, "height": 800})
    made.set_default_timeout(10_000)
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
