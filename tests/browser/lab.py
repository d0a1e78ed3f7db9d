"""What tests do in JupyterLab, as a person does it."""

from __future__ import annotations

import re
import time

from playwright.sync_api import Locator, Page, expect

from tests.hub.running import RunningHub
from tests.sandbox.jupyter import Jupyter

LAB = 90_000
"""Milliseconds that JupyterLab may take to come up on a busy machine."""


def log_in(hub: RunningHub, page: Page, user: str, to: str = "") -> None:
    """Log in and go to that path; without one JupyterHub starts the default server."""
    page.goto(f"{hub.url}/hub/login?next={to}", timeout=LAB)
    fill_login(hub, page, user)


def fill_login(hub: RunningHub, page: Page, user: str) -> None:
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


def shown(page: Page) -> None:
    expect(page.locator("#jp-main-dock-panel")).to_be_visible(timeout=LAB)


def open_notebook(hub: RunningHub, page: Page, server: str, name: str, layout: str = "default") -> None:
    """``server``: ``USER`` or ``USER/SERVER``; a second tab needs a layout of its own (Lab's word for it is workspace)."""
    page.goto(f"{hub.url}/user/{server}/lab/workspaces/{layout}/tree/{name}", timeout=LAB)
    expect(page.locator(".jp-Notebook .jp-Cell").first).to_be_visible(timeout=LAB)
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=LAB)


def outputs_of(page: Page, number: int) -> Locator:
    return page.locator(".jp-Notebook .jp-Cell").nth(number).locator(".jp-OutputArea-output")


def run_cell(page: Page, number: int) -> Locator:
    """Run the cell; its outputs, which are those of this run."""
    cell = page.locator(".jp-Notebook .jp-Cell").nth(number)
    prompt = cell.locator(".jp-InputPrompt")
    before = prompt.inner_text()
    cell.locator(".jp-Cell-inputWrapper .cm-content").click()
    expect(page.locator(".jp-Notebook.jp-mod-editMode .jp-Cell").nth(number)).to_have_class(re.compile("jp-mod-active"))
    page.keyboard.press("Control+Enter")
    expect(prompt).not_to_have_text(before, timeout=LAB)  # `[*]:`, and the outputs of an earlier run are gone
    return outputs_of(page, number)


COUNT = """import os, time
n = 0
while not os.path.exists('enough'):
    print('line', n, flush=True); n += 1; time.sleep(0.1)
print('the end after', n)"""
"""A cell that runs, and writes, until it is told to end: it is running at a pause however long the way there took."""


def end_count(jupyter: Jupyter) -> None:
    """Let the cell of :data:`COUNT` end."""
    status, answer = jupyter.call("PUT", "/api/contents/enough", {"type": "file", "format": "text", "content": ""})
    assert status == 201, answer


def expect_whole_count(outputs: Locator) -> None:
    """Every line of :data:`COUNT` comes to be shown, once and in order."""
    words = re.compile(r"the end after (\d+)")
    found, until = None, time.monotonic() + LAB / 1000
    while found is None:  # Lab draws the outputs anew when those of the time without a tab come in
        assert time.monotonic() < until
        expect(outputs).to_contain_text(words, timeout=LAB)
        found = words.search(outputs.text_content() or "")  # the rendered text of a cell that is not on the screen is empty
    expect(outputs).to_have_text(" ".join([*(f"line {n}" for n in range(int(found[1]))), found[0]]), timeout=LAB)


def tab_named(page: Page, name: str) -> Locator:
    """The tab of the main area with that name."""
    return page.locator("#jp-main-dock-panel .lm-TabBar-tabLabel", has_text=name)


def press_pause(page: Page) -> Locator:
    """Press the button; the dialog that asks."""
    button = page.locator("#jp-gkews-pause jp-button")
    expect(button).to_have_attribute("aria-disabled", "false", timeout=LAB)
    button.click()
    dialog = page.locator(".jp-Dialog", has=page.locator(".jp-gkews-Facts"))
    expect(dialog).to_be_visible(timeout=LAB)
    return dialog


def overlay(page: Page) -> Locator:
    """What stands in front of Lab during a pause."""
    return page.locator(".jp-gkews-Overlay")
