"""Who presses Resume where there is no room is led to the server's page, which says so, and from there into the server; in Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.hub.conftest import CONFIG
from tests.hub.running import RunningHub, running_hub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub"), CONFIG, {"light": True}) as hub:
        yield hub


def paused_without_room(hub: RunningHub, page: Page, user: str) -> None:
    """A paused server that no room is for, and a browser in which its user is logged in."""
    hub.start_server(user)
    hub.pause(user)
    hub.fault(capacity="not_enough_memory")
    page.goto(f"{hub.url}/hub/login")
    page.fill("#username_input", user)
    page.fill("#password_input", hub.password)
    page.click("#login_submit")
    page.wait_for_url("**/hub/**")


def waits_and_comes_back(hub: RunningHub, page: Page, user: str) -> None:
    page.wait_for_url(f"{hub.url}/hub/workspaces/{user}", timeout=20_000)
    expect(page.locator(".gke-ws-badge")).to_have_text("Waiting")
    expect(page.get_by_text("There is not enough free memory")).to_be_visible()
    expect(page.locator(".gke-ws button")).to_have_text(["Stop resuming"])
    expect(page.get_by_text("1 byte is free")).to_be_visible()
    hub.fault()
    page.wait_for_url(f"{hub.url}/user/{user}/**", timeout=30_000)


def test_a_start_that_waits_for_room_leads_from_the_hubs_page_to_the_servers(hub: RunningHub, page: Page) -> None:
    paused_without_room(hub, page, "ann")
    ours = "**/workspaces/static/**/*.js"
    page.route(ours, lambda route: route.abort())  # the form as it is without our scripts
    page.goto(f"{hub.url}/hub/spawn")
    page.unroute(ours)
    page.click("button[name=gke_workspaces][value=resume]")
    page.wait_for_url("**/hub/spawn-pending/ann**")
    waits_and_comes_back(hub, page, "ann")


def test_the_hubs_page_of_a_start_leads_there_whether_it_has_ended_or_not(hub: RunningHub, page: Page) -> None:
    paused_without_room(hub, page, "bo")
    page.goto(f"{hub.url}/hub/workspaces/bo")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".gke-ws-badge")).to_have_text("Waiting")
    page.goto(f"{hub.url}/hub/spawn-pending/bo")
    waits_and_comes_back(hub, page, "bo")
