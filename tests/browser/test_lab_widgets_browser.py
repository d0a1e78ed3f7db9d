"""Consoles and terminals through a pause in a real sandbox, in the tab that stayed open and in one that was opened afterwards."""

from __future__ import annotations

import json
import re

from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser.conftest import Picture
from tests.browser.lab import LAB, log_in, overlay, shown, tab_named
from tests.hub.running import RunningHub, wait_for
from tests.sandbox.jupyter import Jupyter

USER = "ida"
MAIN_TABS = "#jp-main-dock-panel .lm-TabBar-tabLabel"


def open_from_launcher(page: Page, category: str, name: str) -> None:
    page.locator(f".jp-LauncherCard:visible[data-category='{category}']", has_text=name).click(timeout=LAB)


def console_of(page: Page) -> Locator:
    """The console in front, when its kernel has introduced itself: with that a console begins anew, and drops what was run before."""
    console = page.locator(".jp-CodeConsole:visible")
    expect(console.locator(".jp-CodeConsole-banner")).to_contain_text("IPython", timeout=LAB)
    return console


def run_in_console(console: Locator, source: str) -> None:
    prompt = console.locator(".jp-CodeConsole-promptCell .cm-content")
    prompt.fill(source)
    expect(prompt).to_have_text(source)
    prompt.press("Shift+Enter")


def said_in(console: Locator) -> Locator:
    return console.locator(".jp-CodeConsole-content .jp-OutputArea-output")


def screen_of(page: Page) -> Locator:
    """The screen of the terminal in front, as a screen reader has it."""
    return page.locator(".jp-Terminal:visible .xterm-accessibility-tree")


def type_in_terminal(page: Page, line: str) -> None:
    page.locator(".jp-Terminal:visible .xterm-helper-textarea").focus()
    page.keyboard.type(line + "\n")


def make_terminals_readable(jupyter: Jupyter) -> None:
    """Without this setting of Lab's a terminal is a picture, which neither a blind person nor a test can read."""
    settings = {"raw": json.dumps({"screenReaderMode": True})}
    status, answer = jupyter.call("PUT", "/lab/api/settings/@jupyterlab/terminal-extension:plugin", settings)
    assert status == 204, answer


def saved_layout(jupyter: Jupyter) -> list[str]:
    """The kinds of the widgets in the layout that Lab has written down (a moment after each change) for the next tab."""
    status, answer = jupyter.call("GET", "/lab/api/workspaces/first")
    dock = answer.get("data", {}).get("layout-restorer:data", {}).get("main", {}).get("dock") if status == 200 else None
    return [name.partition(":")[0] for name in dock["widgets"]] if dock and dock["type"] == "tab-area" else []


def test_a_console_and_a_terminal_go_on_in_the_tab_that_stayed_open_and_in_a_new_one(
    lab_hub: RunningHub, context: BrowserContext, picture: Picture
) -> None:
    page = context.new_page()
    lab_hub.start_server(USER)
    jupyter = Jupyter(lab_hub, USER)
    make_terminals_readable(jupyter)
    log_in(lab_hub, page, USER, to="/hub/home")
    page.goto(f"{lab_hub.url}/user/{USER}/lab/workspaces/first", timeout=LAB)
    shown(page)
    open_from_launcher(page, "Console", "Python 3")
    run_in_console(console_of(page), "import os; y = os.urandom(4).hex(); print('console', os.getpid(), y)")
    expect(said_in(console_of(page))).to_contain_text(re.compile(r"console \d+ [0-9a-f]{8}"), timeout=LAB)
    from_console = said_in(console_of(page)).inner_text().strip()
    page.get_by_role("button", name="New Launcher").first.click()
    open_from_launcher(page, "Other", "Terminal")
    expect(screen_of(page)).to_contain_text("$", timeout=LAB)
    type_in_terminal(page, "made=$RANDOM$RANDOM; echo shell $$ made $made")
    expect(screen_of(page)).to_contain_text(re.compile(r"shell \d+ made \d+"), timeout=LAB)
    found = re.search(r"shell (\d+ made \d+)", screen_of(page).inner_text())
    assert found
    from_shell = found[1]
    layout = ["Console 1", "Terminal 1"]
    expect(page.locator(MAIN_TABS)).to_have_text(layout)
    wait_for("a saved layout", lambda: saved_layout(jupyter) == ["console", "terminal"])

    lab_hub.pause(USER)
    expect(overlay(page)).to_contain_text("This server is paused", timeout=LAB)
    lab_hub.resume(USER)
    expect(overlay(page)).to_have_count(0, timeout=LAB)
    new = context.new_page()
    new.goto(f"{lab_hub.url}/user/{USER}/lab/workspaces/second?clone=first", timeout=LAB)
    expect(new.locator(MAIN_TABS)).to_have_text(layout, timeout=LAB)

    for number, tab in enumerate((page, new), start=1):
        tab_named(tab, "Terminal 1").click()
        expect(screen_of(tab)).to_contain_text(f"shell {from_shell}", timeout=LAB)
        type_in_terminal(tab, f"echo still{number} $$ made $made")
        expect(screen_of(tab)).to_contain_text(f"still{number} {from_shell}", timeout=LAB)
        picture(tab, f"terminal-{number}")
        tab_named(tab, "Console 1").click()
        run_in_console(console_of(tab), "print('console', os.getpid(), y)")
        expect(said_in(console_of(tab)).last).to_have_text(from_console, timeout=LAB)
        picture(tab, f"console-{number}")
