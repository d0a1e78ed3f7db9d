"""The whole way in Chromium with servers in real sandboxes: Pause in JupyterLab, the Paused page, Resume, and the next cell."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser.conftest import Picture
from tests.hub.running import RunningHub
from tests.sandbox.jupyter import Jupyter
from tests.sandbox.local_hub import local_hub

LAB = 90_000
"""Milliseconds that JupyterLab may take to come up on a busy machine."""
RUNNING_CELL = "import time\nfor i in range(120):\n    print('line', i, flush=True); time.sleep(0.1)\nprint('the end')"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with local_hub(tmp_path_factory.mktemp("lab")) as hub:
        yield hub


def log_in(hub: RunningHub, page: Page, user: str) -> None:
    page.goto(f"{hub.url}/hub/login")
    page.fill("#username_input", user)
    page.fill("#password_input", hub.password)
    page.click("#login_submit")


def write_notebook(jupyter: Jupyter, name: str, *sources: str) -> None:
    cells = [
        {"cell_type": "code", "id": f"cell-{n}", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
        for n, source in enumerate(sources)
    ]
    content = {
        "cells": cells,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    status, answer = jupyter.call("PUT", f"/api/contents/{name}", {"type": "notebook", "format": "json", "content": content})
    assert status == 201, answer


def open_notebook(hub: RunningHub, page: Page, user: str, name: str) -> None:
    page.goto(f"{hub.url}/user/{user}/lab/tree/{name}", timeout=LAB)
    expect(page.locator(".jp-Notebook .jp-Cell").first).to_be_visible(timeout=LAB)
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=LAB)


def run_cell(page: Page, number: int) -> Locator:
    """Run the cell; its outputs."""
    cell = page.locator(".jp-Notebook .jp-Cell").nth(number)
    cell.locator(".jp-Cell-inputWrapper .cm-content").click()
    expect(page.locator(".jp-Notebook.jp-mod-editMode .jp-Cell").nth(number)).to_have_class(re.compile("jp-mod-active"))
    page.keyboard.press("Control+Enter")
    expect(cell.locator(".jp-InputPrompt")).not_to_have_text("[ ]:", timeout=LAB)
    return cell.locator(".jp-OutputArea-output")


def press_pause(page: Page) -> None:
    page.locator("#jp-gkews-pause jp-button").click()
    expect(page.locator(".jp-Dialog .jp-gkews-Facts")).to_be_visible(timeout=LAB)


def test_pause_and_resume_from_the_button_to_the_next_cell(hub: RunningHub, context: BrowserContext, picture: Picture) -> None:
    page = context.new_page()
    log_in(hub, page, "ann")
    expect(page.locator("#jp-main-dock-panel")).to_be_visible(timeout=LAB)
    jupyter = Jupyter(hub, "ann")
    write_notebook(
        jupyter, "work.ipynb", "import os, secrets\nx = secrets.token_hex(8)\nprint(os.getpid(), x)", "print(os.getpid(), x)", RUNNING_CELL
    )
    open_notebook(hub, page, "ann", "work.ipynb")
    first = run_cell(page, 0)
    expect(first).to_have_text(re.compile(r"\d+ [0-9a-f]{16}"), timeout=LAB)
    made = first.inner_text()
    running = run_cell(page, 2)
    expect(running).to_contain_text("line 3", timeout=LAB)
    other = context.new_page()
    other.goto(f"{hub.url}/user/ann/lab/workspaces/other", timeout=LAB)
    expect(other.locator("#jp-main-dock-panel")).to_be_visible(timeout=LAB)

    picture(page, "lab")
    press_pause(page)
    expect(page.locator(".jp-Dialog")).to_contain_text("network connections")
    picture(page, "lab-dialog")
    page.locator(".jp-Dialog .jp-mod-accept").click()
    page.wait_for_url("**/hub/workspaces/ann", timeout=LAB)
    expect(page.locator(".gke-ws-badge")).to_have_text("Paused", timeout=LAB)
    expect(page.locator(".gke-ws button")).to_have_text(["Resume", "Start fresh", "Discard"])
    picture(page, "paused")
    expect(other.locator(".jp-gkews-Overlay")).to_contain_text("paused", timeout=LAB)
    expect(other.locator(".jp-Dialog", has_text="Restart")).to_have_count(0)
    picture(other, "lab-other-tab-paused")

    page.get_by_role("button", name="Resume").click()
    page.wait_for_url("**/user/ann/lab**", timeout=LAB)
    expect(page.locator(".jp-toastContainer")).to_contain_text("resumed", timeout=LAB, ignore_case=True)
    picture(page, "lab-receipt")
    cells = page.locator(".jp-Notebook .jp-Cell")
    expect(cells.nth(2).locator(".jp-OutputArea-output")).to_contain_text("the end", timeout=LAB)
    text = cells.nth(2).locator(".jp-OutputArea-output").inner_text()
    assert text.split() == " ".join([*(f"line {i}" for i in range(120)), "the end"]).split()
    expect(run_cell(page, 1)).to_have_text(made, timeout=LAB)
    picture(page, "lab-resumed")
    expect(other.locator(".jp-gkews-Overlay")).to_have_count(0, timeout=LAB)
    assert [p for p in context.pages if p not in (page, other)] == []


def test_logging_in_does_not_resume_and_the_form_offers_the_choice(hub: RunningHub, context: BrowserContext, picture: Picture) -> None:
    hub.start_server("bo")
    hub.pause("bo")
    page = context.new_page()
    log_in(hub, page, "bo")
    expect(page.get_by_role("button", name="Resume").first).to_be_visible(timeout=LAB)
    picture(page, "paused-form")
    assert hub.workspace("bo")["phase"] == "paused"
    page.goto(f"{hub.url}/hub/home")
    expect(page.locator(".gke-ws-badge").first).to_have_text("Paused", timeout=LAB)
    picture(page, "home")
    page.goto(f"{hub.url}/hub/workspaces")
    expect(page.locator(".gke-ws-badge").first).to_have_text("Paused", timeout=LAB)
    picture(page, "workspaces")
    page.get_by_role("button", name="Resume").first.click()
    page.wait_for_url("**/user/bo/**", timeout=LAB)
    assert hub.wait_phase("running", "bo")["receipt"]["resumed"] is True
