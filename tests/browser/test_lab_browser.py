"""The whole way in Chromium with servers in real sandboxes: Pause in JupyterLab, the Paused page, Resume, and the next cell."""

from __future__ import annotations

import re

from playwright.sync_api import BrowserContext, expect

from tests.browser.conftest import Picture
from tests.browser.lab import (
    COUNT,
    LAB,
    end_count,
    expect_whole_count,
    log_in,
    open_notebook,
    outputs_of,
    press_pause,
    run_cell,
    shown,
    write_notebook,
)
from tests.hub.running import RunningHub
from tests.sandbox.jupyter import Jupyter


def test_pause_and_resume_from_the_button_to_the_next_cell(lab_hub: RunningHub, context: BrowserContext, picture: Picture) -> None:
    page = context.new_page()
    log_in(lab_hub, page, "ann")
    shown(page)
    jupyter = Jupyter(lab_hub, "ann")
    write_notebook(
        jupyter, "work.ipynb", "import os, secrets\nx = secrets.token_hex(8)\nprint(os.getpid(), x)", "print(os.getpid(), x)", COUNT
    )
    open_notebook(lab_hub, page, "ann", "work.ipynb")
    first = run_cell(page, 0)
    expect(first).to_have_text(re.compile(r"\d+ [0-9a-f]{16}"), timeout=LAB)
    made = first.inner_text()
    running = run_cell(page, 2)
    expect(running).to_contain_text("line 3", timeout=LAB)
    other = context.new_page()
    other.goto(f"{lab_hub.url}/user/ann/lab/workspaces/other", timeout=LAB)
    shown(other)

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
    end_count(jupyter)
    expect_whole_count(outputs_of(page, 2))
    expect(run_cell(page, 1)).to_have_text(made, timeout=LAB)
    picture(page, "lab-resumed")
    expect(other.locator(".jp-gkews-Overlay")).to_have_count(0, timeout=LAB)
    assert [p for p in context.pages if p not in (page, other)] == []


def test_logging_in_does_not_resume_and_the_form_offers_the_choice(lab_hub: RunningHub, context: BrowserContext, picture: Picture) -> None:
    lab_hub.start_server("bo")
    lab_hub.pause("bo")
    page = context.new_page()
    log_in(lab_hub, page, "bo")
    expect(page.get_by_role("button", name="Resume").first).to_be_visible(timeout=LAB)
    picture(page, "paused-form")
    assert lab_hub.workspace("bo")["phase"] == "paused"
    page.goto(f"{lab_hub.url}/hub/home")
    expect(page.locator(".gke-ws-badge").first).to_have_text("Paused", timeout=LAB)
    picture(page, "home")
    page.goto(f"{lab_hub.url}/hub/workspaces")
    expect(page.locator(".gke-ws-badge").first).to_have_text("Paused", timeout=LAB)
    picture(page, "workspaces")
    page.get_by_role("button", name="Resume").first.click()
    page.wait_for_url("**/user/bo/**", timeout=LAB)
    assert lab_hub.wait_phase("running", "bo")["receipt"]["resumed"] is True
