"""The pages in Chromium, against a real Hub with stand-in servers: true without a refresh, usable by keyboard, deaf to hostile names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from gke_workspaces_spawner.hubapi import urls
from tests.browser.conftest import PATIENCE
from tests.fakes.pages import HOSTILE, SERVERS, RunningHub, started
from tests.ports import free_port


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    home = tmp_path_factory.mktemp("home")
    (home / "evil.html").write_text("<script>document.title = 'pwned'</script>")
    (home / f"{HOSTILE.replace('/', '')}.txt").write_text("hello")
    with started(tmp_path_factory.mktemp("hub"), home, free_port()) as running:
        yield running


def log_in(hub: RunningHub, page: Page, user: str) -> None:
    page.goto(hub.url + "hub/login")
    page.fill("#username_input", user)
    page.fill("#password_input", hub.password)
    page.click("#login_submit")
    page.wait_for_url("**/hub/**")


def settle(page: Page) -> None:
    """Wait until our part of a page is painted (a page that follows a server is never idle)."""
    page.wait_for_function(
        "[...document.querySelectorAll('[data-gke-workspaces]')].every(m => m.querySelector('.gke-ws-root')?.firstElementChild)"
    )


def go(hub: RunningHub, page: Page, user: str, server: str = "") -> None:
    page.goto(hub.url.removesuffix("/base/") + urls.page("/base/hub/", user, server))


COUNT_QUESTIONS = """
    window.asked = 0;
    const stock = window.fetch;
    window.fetch = (url, ...more) => {
        window.asked += String(url).includes('/follow/');
        return stock(url, ...more);
    };
"""
"""Counts in the page itself how often it asks: what the test hears of a request may come late."""


def let_time_pass_until(page: Page, reached: Callable[[], bool]) -> None:
    """On a page whose clock the test moves on: it asks again only some time after the last answer, which takes its own time."""
    end = time.monotonic() + PATIENCE / 1000
    while not reached():
        assert time.monotonic() < end, "it never came to that"
        page.clock.run_for(1_000)


def test_a_page_follows_its_server_without_a_refresh(hub: RunningHub, page: Page) -> None:
    log_in(hub, page, "ann")
    go(hub, page, "ann", "up")
    badge = page.locator(".gke-ws-badge")
    expect(badge).to_have_text("Running")
    page.evaluate("window.sameDocument = true")
    page.get_by_role("button", name="Pause").click()
    expect(badge).to_have_text("Pausing")
    bar = page.get_by_role("progressbar", name="Pausing")
    expect(bar).to_have_attribute("aria-valuenow", "42")
    expect(page.get_by_text("42 %, about 10 s left")).to_be_visible()
    hub.move("ann", "up", "stopping")
    expect(bar).not_to_have_attribute("aria-valuenow", "42")
    expect(page.locator("[aria-current=step]")).to_have_text("Free the machine")
    hub.move("ann", "up", "paused")
    expect(badge).to_have_text("Paused")
    expect(page.locator(".gke-ws button")).to_have_text(["Resume", "Start fresh", "Discard"])
    assert page.evaluate("window.sameDocument") is True
    hub.move("ann", "up", "running")


def test_resume_shows_progress_and_then_leads_into_the_server(hub: RunningHub, page: Page) -> None:
    log_in(hub, page, "bo")
    go(hub, page, "bo", "sleep")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("progressbar", name="Restoring")).to_have_attribute("aria-valuenow", "63")
    hub.move("bo", "sleep", "running")
    page.wait_for_url("**/user/bo/sleep/", wait_until="commit")
    hub.move("bo", "sleep", "paused")


def test_a_retry_that_takes_its_time_leads_into_the_server_too(hub: RunningHub, page: Page) -> None:
    page.clock.install()
    log_in(hub, page, "bo")
    page.add_init_script(COUNT_QUESTIONS)
    go(hub, page, "bo", "doubt")
    page.get_by_role("button", name="Try again to restore").click()
    let_time_pass_until(page, lambda: page.evaluate("asked") >= 4)
    expect(page.locator(".gke-ws-badge")).to_have_text("Unproven")
    hub.move("bo", "doubt", "restoring")
    hub.move("bo", "doubt", "running")
    page.wait_for_url("**/user/bo/doubt/", wait_until="commit")
    hub.move("bo", "doubt", "unproven")


def test_a_retry_that_fails_leads_nowhere_afterwards(hub: RunningHub, page: Page) -> None:
    log_in(hub, page, "bo")
    go(hub, page, "bo", "doubt")
    page.get_by_role("button", name="Try again to restore").click()
    expect(page.get_by_role("button", name="Try again to restore")).not_to_have_attribute("aria-disabled", "true")
    hub.move("bo", "doubt", "restoring")
    expect(page.locator(".gke-ws-badge")).to_have_text("Restoring")
    hub.move("bo", "doubt", "unproven")
    expect(page.locator(".gke-ws-badge")).to_have_text("Unproven")
    hub.move("bo", "doubt", "running")
    expect(page.locator(".gke-ws-badge")).to_have_text("Running")
    assert page.url.endswith("/hub/workspaces/bo/doubt")
    hub.move("bo", "doubt", "unproven")


def test_a_resume_that_waits_says_for_what_also_in_the_words_of_the_machine(hub: RunningHub, page: Page) -> None:
    log_in(hub, page, "bo")
    go(hub, page, "bo", "queue")
    expect(page.get_by_text("it needs 1.2 GB, 0.4 GB are free")).to_be_visible()


def test_a_server_that_comes_up_by_itself_takes_nobody_there(hub: RunningHub, page: Page) -> None:
    log_in(hub, page, "bo")
    go(hub, page, "bo", "sleep")
    hub.move("bo", "sleep", "running")
    expect(page.locator(".gke-ws-badge")).to_have_text("Running")
    assert page.url.endswith("/hub/workspaces/bo/sleep")
    hub.move("bo", "sleep", "paused")


def test_discard_asks_on_the_page_and_can_be_done_by_keyboard_alone(hub: RunningHub, page: Page) -> None:
    log_in(hub, page, "bo")
    go(hub, page, "bo", "sleep")
    page.on("dialog", lambda dialog: pytest.fail("a dialog of the browser was opened"))
    page.locator("[data-action=discard]").focus()
    page.keyboard.press("Enter")
    question = page.get_by_role("group", name="Please confirm")
    expect(question).to_contain_text("Discard the snapshot of 1.2 GB?")
    expect(question.locator("p")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("[data-action=discard]")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".gke-ws-badge")).to_have_text("Stopped")
    hub.move("bo", "sleep", "paused")


def test_a_refusal_is_shown_as_text_with_its_reason_and_the_focus_stays(hub: RunningHub, page: Page) -> None:
    log_in(hub, page, "bo")
    go(hub, page, "bo", "doubt")
    page.route("**/follow/bo/doubt", lambda route: route.abort())
    page.route("**/pause/*/retry", lambda route: route.continue_(url=route.request.url.replace("p" * 32, "another")))
    page.locator("[data-action=retry]").click()
    alert = page.locator("[aria-live] .alert-danger").last
    expect(alert).to_have_text("That pause is over. <b>Look</b> again.")
    expect(page.locator("[data-action=retry]")).to_be_focused()


def test_the_focus_stays_while_progress_is_painted(hub: RunningHub, page: Page) -> None:
    log_in(hub, page, "bo")
    go(hub, page, "bo", "train")
    page.locator("[data-action=cancel]").focus()
    hub.move("bo", "train", "preparing")
    expect(page.locator("[aria-current=step]")).to_have_text("Get ready")
    expect(page.locator("[data-action=cancel]")).to_be_focused()
    hub.move("bo", "train", "paused")
    expect(page.locator(".gke-ws-badge")).to_have_text("Paused")
    expect(page.locator("[data-gke-focus=title]")).to_be_focused()
    hub.move("bo", "train", "checkpointing")


def test_a_hidden_tab_asks_nothing_and_a_seen_one_asks_at_once(hub: RunningHub, page: Page) -> None:
    page.clock.install()
    page.add_init_script(COUNT_QUESTIONS)
    log_in(hub, page, "bo")
    go(hub, page, "bo", "train")
    show = """seen => {
        Object.defineProperty(document, 'visibilityState', { value: seen, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    let_time_pass_until(page, lambda: page.evaluate("asked") >= 2)
    page.evaluate(show, "hidden")
    asked = page.evaluate("asked")
    page.clock.run_for(600_000)
    assert page.evaluate("asked") == asked
    with page.expect_response("**/follow/bo/train"):
        page.evaluate(show, "visible")
        page.clock.run_for(1)


def test_who_is_logged_out_is_told_so_and_not_asked_again(hub: RunningHub, page: Page, context: BrowserContext) -> None:
    page.clock.install()
    page.add_init_script(COUNT_QUESTIONS)
    log_in(hub, page, "bo")
    go(hub, page, "bo", "train")
    context.clear_cookies()
    link = page.get_by_role("link", name="Log in again")
    let_time_pass_until(page, link.is_visible)
    expect(link).to_have_attribute("href", "/base/hub/login?next=%2Fbase%2Fhub%2Fworkspaces%2Fbo%2Ftrain")
    asked = page.evaluate("asked")
    page.clock.run_for(600_000)
    assert page.evaluate("asked") == asked


def test_a_hub_that_is_away_is_asked_again_until_it_is_back(hub: RunningHub, page: Page) -> None:
    log_in(hub, page, "bo")
    go(hub, page, "bo", "train")
    page.route("**/follow/bo/train", lambda route: route.abort())
    expect(page.get_by_text("The Hub cannot be reached at the moment")).to_be_visible()
    page.unroute("**/follow/bo/train")
    expect(page.get_by_text("The Hub cannot be reached at the moment")).to_be_hidden()


def test_hostile_names_run_nothing_anywhere(hub: RunningHub, page: Page) -> None:
    log_in(hub, page, HOSTILE)
    user = urls.segment(HOSTILE)
    for path in (
        "hub/home",
        "hub/workspaces",
        *(f"hub/workspaces/{user}/{server}" for server in SERVERS),
        f"hub/workspaces/files/{user}/server",
        f"hub/workspaces/files/{user}/server/evil.html?preview=1",
        f"hub/spawn/{user}",
        f"user/{user}/lab",
    ):
        page.goto(hub.url + path)
        settle(page)
        ours = page.locator(".gke-ws img")
        assert ours.count() == 0, path
        assert "pwned" not in page.title().replace(HOSTILE, ""), path


def test_the_home_page_leads_by_state_and_keeps_jupyterhub_s_own(hub: RunningHub, page: Page) -> None:
    log_in(hub, page, "cy")
    hub.move("cy", "sleep", "paused")
    hub.move("cy", "down", "stopped")
    page.goto(hub.url + "hub/home")
    card = page.locator(".gke-ws-home li").filter(has_text="My server")
    expect(card.get_by_role("button")).to_have_text(["Resume", "Start fresh", "Discard"])
    expect(page.locator("#start")).to_be_hidden()
    row = page.locator("tr[data-server-name=sleep]")
    expect(row.get_by_role("button", name="Resume")).to_be_visible()
    expect(row.locator(".start-server")).to_be_hidden()
    expect(row.locator(".delete-server")).to_be_hidden()
    down = page.locator("tr[data-server-name=down]")
    expect(down.locator(".start-server")).to_be_visible()
    hub.move("cy", "", "stopped")
    expect(card.get_by_role("button")).to_have_text(["Start"])
    hub.move("cy", "", "paused")


def test_the_paused_form_takes_the_place_of_jupyterhub_s_and_keeps_the_admin_s_for_a_fresh_start(hub: RunningHub, page: Page) -> None:
    log_in(hub, page, "ann")
    page.goto(hub.url + "hub/spawn/ann")
    expect(page.get_by_role("heading", level=1)).to_have_text("My server")
    expect(page.get_by_label("Memory")).to_be_hidden()
    expect(page.locator("#spawn_form > .feedback-container")).to_be_hidden()
    page.locator("[data-action=fresh]").click()
    expect(page.get_by_label("Memory")).to_be_focused()
    with page.expect_request(lambda request: request.method == "POST" and "/hub/spawn/ann" in request.url) as posted:
        page.locator("details button[value=fresh]").click()
    body = posted.value.post_data or ""
    assert 'name="gke_workspaces"\r\n\r\nfresh' in body
    assert 'name="memory"\r\n\r\n4 GB' in body


def test_the_paused_form_works_without_scripts(hub: RunningHub, page: Page, browser: Browser, context: BrowserContext) -> None:
    log_in(hub, page, "bo")
    plain = browser.new_context(java_script_enabled=False, storage_state=context.storage_state())
    try:
        bare = plain.new_page()
        bare.goto(hub.url + "hub/spawn/bo")
        expect(bare.get_by_text("Paused for 2 h")).to_be_visible()
        with bare.expect_request(lambda request: request.method == "POST") as posted:
            bare.get_by_role("button", name="Resume").click()
        assert 'name="gke_workspaces"\r\n\r\nresume' in (posted.value.post_data or "")
    finally:
        plain.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_can_be_looked_at(hub: RunningHub, browser: Browser, output: Path, theme: str) -> None:
    """Screenshots for people; what a machine can see: nothing is wider than the window, every control has a name."""
    context = browser.new_context(color_scheme=theme, locale="en-GB", timezone_id="UTC", viewport={"width": 480, "height": 800})  # type: ignore[arg-type]
    try:
        page = context.new_page()
        log_in(hub, page, "dee")
        paths = {"home": "hub/home", "list": "hub/workspaces", "files": "hub/workspaces/files/dee/server", "form": "hub/spawn/dee"}
        paths |= {f"one-{name or 'default'}": f"hub/workspaces/dee/{name}" for name in SERVERS}
        for name, path in paths.items():
            page.goto(hub.url + path)
            settle(page)
            page.screenshot(path=output / f"{name}-{theme}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            nameless = page.evaluate("[...document.querySelectorAll('.gke-ws :is(button, a)')].filter(e => !e.innerText.trim()).length")
            assert nameless == 0, name
    finally:
        context.close()
