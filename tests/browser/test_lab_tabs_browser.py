"""What a person has open in JupyterLab, through pauses in real sandboxes: named servers, several tabs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Dialog, expect

from tests.browser.conftest import Picture
from tests.browser.lab import (
    COUNT,
    LAB,
    end_count,
    expect_whole_count,
    log_in,
    open_notebook,
    outputs_of,
    overlay,
    press_pause,
    run_cell,
    shown,
    tab_named,
    write_notebook,
)
from tests.hub.running import RunningHub
from tests.sandbox.faulty_runsc import FaultyRunsc
from tests.sandbox.jupyter import Jupyter

MAKE = "import os, secrets\nx = secrets.token_hex(8)\nprint(os.getpid(), x)"
LOOK = "print(os.getpid(), x)"
SERVER = "lab-two"


@pytest.fixture
def asked(context: BrowserContext) -> Iterator[list[str]]:
    """What the browser itself asked ("Leave site?"); none of these tests may end with a question."""
    questions: list[str] = []

    def take(dialog: Dialog) -> None:
        questions.append(f"{dialog.type} at {dialog.page.url if dialog.page else ''}: {dialog.message}")
        dialog.accept()

    context.on("dialog", take)
    yield questions
    assert questions == []


def test_a_named_server_comes_back_in_each_of_its_tabs_also_with_what_was_never_saved(
    lab_hub: RunningHub, context: BrowserContext, asked: list[str], picture: Picture
) -> None:
    page = context.new_page()
    lab_hub.start_server("di", SERVER)
    log_in(lab_hub, page, "di", to="/hub/home")
    jupyter = Jupyter(lab_hub, "di", SERVER)
    write_notebook(jupyter, "work.ipynb", MAKE, LOOK)
    open_notebook(lab_hub, page, "di/lab-two", "work.ipynb")
    made = run_cell(page, 0)
    expect(made).to_have_text(re.compile(r"\d+ [0-9a-f]{16}"), timeout=LAB)
    words = made.inner_text()
    tabs = page.locator("#jp-main-dock-panel .lm-TabBar-tabLabel")
    expect(tabs).to_have_text(["work.ipynb"])
    other = context.new_page()
    other.goto(f"{lab_hub.url}/user/di/lab-two/lab/workspaces/other", timeout=LAB)
    shown(other)
    other.locator(".jp-LauncherCard:visible", has_text="Python File").click()
    other.locator(".jp-FileEditor .cm-content").click(timeout=LAB)
    other.keyboard.type("never = 'saved'")

    dialog = press_pause(page)
    expect(dialog).to_contain_text("1 kernel")
    picture(page, "named-dialog")
    dialog.locator(".jp-mod-accept").click()
    page.wait_for_url("**/hub/workspaces/di/lab-two", timeout=LAB)
    expect(page.locator(".gke-ws-badge")).to_have_text("Paused", timeout=LAB)
    picture(page, "named-paused")
    expect(overlay(other)).to_contain_text("This server is paused", timeout=LAB)
    page.get_by_role("button", name="Resume").click()
    page.wait_for_url("**/user/di/lab-two/lab**", timeout=LAB)
    expect(page.locator(".jp-toastContainer")).to_contain_text("1 kernel", timeout=LAB)
    expect(tabs).to_have_text(["work.ipynb"], timeout=LAB)
    expect(overlay(other)).to_have_count(0, timeout=LAB)
    expect(other.locator(".jp-FileEditor .cm-content")).to_have_text("never = 'saved'")
    assert jupyter.call("GET", "/api/contents/untitled.py")[1]["content"] == ""
    tab_named(page, "work.ipynb").click()
    expect(run_cell(page, 1)).to_have_text(words, timeout=LAB)


def test_two_tabs_with_the_same_notebook_go_through_a_cancelled_pause_and_a_real_one(
    lab_hub: RunningHub, faulty: FaultyRunsc, context: BrowserContext, asked: list[str], picture: Picture
) -> None:
    page, other = context.new_page(), context.new_page()
    lab_hub.start_server("eve")
    log_in(lab_hub, page, "eve", to="/hub/home")
    jupyter = Jupyter(lab_hub, "eve")
    write_notebook(jupyter, "two.ipynb", MAKE, LOOK, COUNT)
    open_notebook(lab_hub, page, "eve", "two.ipynb")
    made = run_cell(page, 0)
    expect(made).to_have_text(re.compile(r"\d+ [0-9a-f]{16}"), timeout=LAB)
    words = made.inner_text()
    open_notebook(lab_hub, other, "eve", "two.ipynb", "other")
    expect(run_cell(other, 1)).to_have_text(words, timeout=LAB)

    faulty.faults("checkpoint-hangs")
    press_pause(page).locator(".jp-mod-accept").click()
    expect(page.get_by_role("progressbar", name="Pausing your server")).to_be_visible(timeout=LAB)
    expect(overlay(other)).to_contain_text("Pausing your server", timeout=LAB)
    expect(overlay(other).get_by_role("button")).to_have_count(0)
    cancel = page.get_by_role("button", name="Cancel the pause")
    picture(page, "overlay-cancel")
    cancel.click(timeout=LAB)
    expect(page.locator(".jp-toastContainer")).to_contain_text("was cancelled", timeout=LAB)
    for tab in (page, other):
        expect(overlay(tab)).to_have_count(0, timeout=LAB)
        expect(run_cell(tab, 1)).to_have_text(words, timeout=LAB)

    running = run_cell(page, 2)  # makes the document dirty again after the dialog has saved it
    expect(running).to_contain_text("line 1", timeout=LAB)
    press_pause(page).locator(".jp-mod-accept").click()
    overlay(page).get_by_role("link", name="Open the pause page").click(timeout=LAB)
    page.wait_for_url("**/hub/workspaces/eve#cancel", timeout=LAB)
    expect(page.locator("[data-action=cancel]")).to_be_focused(timeout=LAB)
    faulty.faults()
    page.keyboard.press("Enter")
    expect(page.locator(".gke-ws-badge")).to_have_text("Running", timeout=LAB)
    lab_hub.pause("eve")
    expect(page.locator(".gke-ws-badge")).to_have_text("Paused", timeout=LAB)
    page.get_by_role("button", name="Resume").click()
    page.wait_for_url("**/user/eve/lab**", timeout=LAB)
    end_count(jupyter)
    for tab in (page, other):
        expect(overlay(tab)).to_have_count(0, timeout=LAB)
        expect_whole_count(outputs_of(tab, 2))
        expect(run_cell(tab, 1)).to_have_text(words, timeout=LAB)
