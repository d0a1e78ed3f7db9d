"""Ways back that are not an ordinary resume, in JupyterLab with real sandboxes: a login that ran out, no proof, a fresh start."""

from __future__ import annotations

import re

from playwright.sync_api import BrowserContext, expect

from tests.browser.conftest import Picture
from tests.browser.lab import LAB, fill_login, log_in, open_notebook, overlay, run_cell, shown, write_notebook
from tests.hub.running import RunningHub
from tests.sandbox.faulty_runsc import FaultyRunsc
from tests.sandbox.jupyter import Jupyter


def run_out(hub: RunningHub, context: BrowserContext, user: str) -> None:
    """The browser's logins at the Hub and at the server are over."""
    context.clear_cookies()
    for token in hub.call("GET", f"/users/{user}/tokens")[1]["api_tokens"]:
        if token["note"] != "test" and not token["note"].startswith("Server at"):
            assert hub.call("DELETE", f"/users/{user}/tokens/{token['id']}")[0] == 204


def test_a_login_that_ran_out_during_a_pause_is_one_question_and_one_login(
    lab_hub: RunningHub, context: BrowserContext, picture: Picture
) -> None:
    page = context.new_page()
    lab_hub.start_server("fay")
    log_in(lab_hub, page, "fay", to="/hub/home")
    write_notebook(Jupyter(lab_hub, "fay"), "work.ipynb", "import os; print(os.getpid())")
    open_notebook(lab_hub, page, "fay", "work.ipynb")
    made = run_cell(page, 0)
    expect(made).to_have_text(re.compile(r"\d+"), timeout=LAB)
    pid = made.inner_text()
    lab_hub.pause("fay")
    expect(overlay(page)).to_contain_text("This server is paused", timeout=LAB)
    run_out(lab_hub, context, "fay")
    lab_hub.resume("fay")
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Your login has run out", timeout=LAB)
    expect(dialog).to_have_count(1)
    picture(page, "login-ran-out")
    dialog.get_by_role("button", name="Reload").click()
    page.wait_for_url("**/hub/login?next=**", timeout=LAB)
    fill_login(lab_hub, page, "fay")
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=LAB)
    expect(run_cell(page, 0)).to_have_text(pid, timeout=LAB)
    expect(dialog).to_have_count(0)


def test_a_login_that_only_the_page_still_has_is_one_question_and_no_kernel_without_a_connection(
    lab_hub: RunningHub, context: BrowserContext
) -> None:
    page = context.new_page()
    page.clock.install()
    lab_hub.start_server("hal")
    log_in(lab_hub, page, "hal", to="/hub/home")
    write_notebook(Jupyter(lab_hub, "hal"), "work.ipynb", "import os; print(os.getpid())")
    open_notebook(lab_hub, page, "hal", "work.ipynb")
    made = run_cell(page, 0)
    expect(made).to_have_text(re.compile(r"\d+"), timeout=LAB)
    pid = made.inner_text()
    lab_hub.pause("hal")
    expect(overlay(page)).to_contain_text("This server is paused", timeout=LAB)
    context.clear_cookies(name="jupyterhub-user-hal")  # what is left are the Hub's cookie and the token in the page
    lab_hub.resume("hal")
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Your login has run out", timeout=LAB)
    expect(overlay(page)).to_have_count(0)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(600_000)  # Lab itself looks for its kernel seven times in all
    expect(dialog).to_have_count(1)
    assert [url for url in asked if "/follow/" in url or "/jupyter-pause/" in url] == []
    dialog.get_by_role("button", name="Reload").click()
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=LAB)
    expect(run_cell(page, 0)).to_have_text(pid, timeout=LAB)
    expect(dialog).to_have_count(0)


def test_an_unproven_server_is_told_in_lab_tried_again_and_left_behind_by_a_fresh_start(
    lab_hub: RunningHub, faulty: FaultyRunsc, context: BrowserContext, picture: Picture
) -> None:
    page = context.new_page()
    lab_hub.start_server("gus", "two")
    log_in(lab_hub, page, "gus", to="/hub/workspaces/gus/two")
    jupyter = Jupyter(lab_hub, "gus", "two")
    kernel = jupyter.kernel()
    assert jupyter.run(kernel, "print('ready')") == "ready"
    lab_hub.pause("gus", "two")
    faulty.faults("restore-is-cold")
    badge = page.locator(".gke-ws-badge")
    expect(badge).to_have_text("Paused", timeout=LAB)
    page.get_by_role("button", name="Resume").click()
    expect(badge).to_have_text("Unproven", timeout=LAB)
    picture(page, "unproven")
    page.get_by_role("button", name="Open").click()
    toast = page.locator(".jp-toastContainer", has_text="not the one that was paused")
    expect(toast).to_be_visible(timeout=LAB)
    picture(page, "lab-unproven")
    page.locator(".jp-Dialog", has_text="was not resumed").get_by_role("button", name="Close").click()
    toast.get_by_role("button", name="Choose").click()
    page.wait_for_url("**/hub/workspaces/gus/two", timeout=LAB)
    faulty.faults()
    page.get_by_role("button", name="Try again to restore").click()
    page.wait_for_url("**/user/gus/two/lab**", timeout=LAB)
    shown(page)
    assert kernel in jupyter.kernels()

    lab_hub.pause("gus", "two")
    page.goto(f"{lab_hub.url}/hub/workspaces/gus/two")
    page.get_by_role("button", name="Start fresh").click()
    page.get_by_role("group", name="Please confirm").get_by_role("button", name="Start fresh").click()
    page.wait_for_url("**/user/gus/two/lab**", timeout=LAB)
    shown(page)
    assert kernel not in jupyter.kernels()
    view = lab_hub.workspace("gus", "two")
    assert (view["phase"], [snapshot["state"] for snapshot in view["snapshots"]]) == ("running", ["current", "superseded"])
    page.goto(f"{lab_hub.url}/hub/workspaces/gus/two")
    expect(page.get_by_role("region", name="Kept snapshots")).to_contain_text("superseded: no Resume leads to it")
    picture(page, "fresh-with-kept-snapshot")
