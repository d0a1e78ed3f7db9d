"""A pause of days, on real Hubs and servers whose wall clock is moved: logins, tokens, idle kernels, reports of activity."""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
import requests

from gke_workspaces_spawner.hubapi.scopes import KICK
from tests.sandbox.jupyter import Jupyter

from .conftest import CONFIG
from .moved_clock import MovedClock
from .running import RunningHub, running_hub, wait_for

DAY = 86400.0
IDLE_SECONDS = 6 * 3600
TICK_SECONDS = 5
CULLING = [f"--MappingKernelManager.cull_idle_timeout={IDLE_SECONDS}", f"--MappingKernelManager.cull_interval={TICK_SECONDS}"]
COOKIE_DAYS = 3
EXPIRES_DAYS = 30
LOGIN_HOURS = 12
"""For so long a server believes a browser's token; then it asks the Hub, which knows the browser by its cookie."""


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> MovedClock:
    return MovedClock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def kernels_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Jupyter data with a kernel that has the machine's own clock: ZeroMQ does not come up with a moved one, and nobody asks it."""
    folder = tmp_path_factory.mktemp("data")
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python 3",
        "language": "python",
        "env": {"LD_PRELOAD": ""},
    }
    (folder / "kernels" / "own").mkdir(parents=True)
    (folder / "kernels" / "own" / "kernel.json").write_text(json.dumps(spec))
    return folder


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, clock: MovedClock, kernels_of_their_own: Path) -> Iterator[RunningHub]:
    environment = {**clock.environment, "JUPYTER_PATH": str(kernels_of_their_own)}
    settings: dict[str, Any] = {
        "environment": dict(clock.environment),
        "roles": [{"name": "kicker", "scopes": [KICK], "services": ["test"]}],
        "hub": {"cookie_max_age_days": COOKIE_DAYS, "oauth_token_expires_in": LOGIN_HOURS * 3600},
        "spawner": {"environment": environment, "args": CULLING, "snapshot_expires": EXPIRES_DAYS * DAY},
    }
    with running_hub(tmp_path_factory.mktemp("days"), CONFIG, settings) as hub:
        yield hub


def pause_for(hub: RunningHub, clock: MovedClock, user: str, days: float) -> dict[str, Any]:
    """Pause, let so many days pass, resume; the view after it."""
    hub.pause(user)
    clock.move(days * DAY)
    return hub.resume(user)


def lab(hub: RunningHub, user: str) -> str:
    return f"{hub.url}/user/{user}/lab"


def is_lab(answer: requests.Response) -> bool:
    return answer.status_code == 200 and "JupyterLab" in answer.text and "/hub/" not in answer.url


def logins(answer: requests.Response) -> int:
    """How often the browser was shown the way to a login page."""
    return sum("/hub/login" in each.url for each in [*answer.history, answer])


def log_in(hub: RunningHub, browser: requests.Session, user: str, page: requests.Response) -> requests.Response:
    """Fill in the login page that is shown, as a person does."""
    form = re.search(r'<form[^>]*action="([^"]+)"', page.text)
    token = re.search(r'name="_xsrf" value="([^"]+)"', page.text)
    assert form, page.text
    assert token, page.text
    fields = {"username": user, "password": hub.password, "_xsrf": token.group(1)}
    return browser.post(urljoin(page.url, html.unescape(form.group(1))), data=fields, timeout=60)


def test_two_days_are_a_silent_login_for_a_browser_and_twenty_are_one_clean_one(hub: RunningHub, clock: MovedClock, ann: str) -> None:
    hub.start_server(ann)
    browser = hub.browser(ann)
    assert is_lab(browser.get(lab(hub, ann), timeout=60))

    receipt = pause_for(hub, clock, ann, 2)["receipt"]
    assert receipt["resumed"] is True
    assert receipt["seconds"]["paused"] == pytest.approx(2 * DAY, abs=300)
    answer = browser.get(lab(hub, ann), timeout=60)
    assert is_lab(answer), answer.url
    assert logins(answer) == 0
    assert len(answer.history) >= 2, "the browser's token has expired: the server has to ask the Hub"

    assert pause_for(hub, clock, ann, 20)["receipt"]["resumed"] is True
    page = browser.get(lab(hub, ann), timeout=60)
    assert page.status_code == 200
    assert logins(page) == 1
    answer = log_in(hub, browser, ann, page)
    assert is_lab(answer), answer.url
    assert logins(answer) == 1, "the page that was filled in, and no other"
    again = browser.get(lab(hub, ann), timeout=60)
    assert is_lab(again)
    assert logins(again) == 0
    assert browser.get(f"{hub.url}/user/{ann}/api/status", timeout=60, allow_redirects=False).status_code == 200


def test_an_idle_kernel_and_its_server_are_not_idle_for_the_days_of_a_pause(hub: RunningHub, clock: MovedClock, ann: str) -> None:
    hub.start_server(ann)
    jupyter = Jupyter(hub, ann)
    kernel = jupyter.kernel("own")
    jupyter.run(kernel, "x = 42")
    pause_for(hub, clock, ann, 2)
    back = clock.time()
    # The next tick of the culler, and one more, find a kernel that nobody has used for two days.
    wait_for("two looks of the culler", lambda: kernel not in jupyter.kernels() or clock.time() > back + 2 * TICK_SECONDS + 2)
    assert list(jupyter.kernels()) == [kernel]
    # An idle culler asks the Hub: no time of the server may be from before the pause, or from the future.
    wait_for("a report of activity from after the resume", lambda: back - 60 < hub_says(hub, ann) <= clock.time() + 1)
    clock.move(IDLE_SECONDS + 60)  # it goes on counting from there
    wait_for("the culler's work", lambda: not jupyter.kernels(), 20 * TICK_SECONDS)


def hub_says(hub: RunningHub, user: str) -> float:
    text: str = hub.model(user)["last_activity"]
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_the_record_of_days_ago_is_told_in_days_and_a_month_ends_it_with_its_bytes(hub: RunningHub, clock: MovedClock, ann: str) -> None:
    hub.start_server(ann)
    hub.pause(ann)
    clock.move(2 * DAY)
    view = hub.workspace(ann)
    assert view["phase"] == "paused"
    assert view["age"] == pytest.approx(2 * DAY, abs=60)
    assert "2 d" in view["sentence"]
    hub.restart()
    assert hub.workspace(ann)["phase"] == "paused"
    assert hub.resume(ann)["receipt"]["resumed"] is True
    pause_id = hub.pause(ann)["pause"]["id"]
    kept = hub.folder / "state" / "snapshots"
    assert list(kept.glob(f"*{pause_id}*"))
    clock.move(EXPIRES_DAYS * DAY + 60)
    assert hub.call("POST", "/workspaces/kick", {})[0] < 300
    hub.wait_phase("running", ann)
    assert not list(kept.glob(f"*{pause_id}*"))
    view = wait_for("the end of the one that was kept of the pause before", lambda: without_snapshots(hub, ann))
    assert view["actions"] == ["start"]


def without_snapshots(hub: RunningHub, user: str) -> dict[str, Any] | None:
    view = hub.workspace(user)
    return None if view["snapshots"] else view


@pytest.mark.parametrize("hours", [-1, 24])
def test_45_a_clock_that_was_set_back_or_forward_leaves_times_and_logins_right(
    hub: RunningHub, clock: MovedClock, ann: str, hours: int
) -> None:
    """Report 45 of the bank, with the clock of the Hub and its servers (a sandbox's own cannot be set alone)."""
    hub.start_server(ann)
    browser = hub.browser(ann)
    assert is_lab(browser.get(lab(hub, ann), timeout=60))
    jupyter = Jupyter(hub, ann)
    kernel = jupyter.kernel("own")
    jupyter.run(kernel, "x = 42")
    hub.pause(ann)
    clock.move(hours * 3600)
    view = hub.workspace(ann)
    assert view["age"] >= 0
    assert "-" not in view["sentence"]
    assert hub.resume(ann)["receipt"]["resumed"] is True
    back = clock.time()
    assert list(jupyter.kernels()) == [kernel]
    wait_for("a report of activity with today's time", lambda: back - 60 < hub_says(hub, ann) <= clock.time() + 1)
    answer = browser.get(lab(hub, ann), timeout=60)
    assert is_lab(answer), answer.url
    assert logins(answer) == 0
    assert hub.workspace(ann)["phase"] == "running", "nothing paused it at once"


def test_nothing_of_all_this_was_an_unhandled_error(hub: RunningHub) -> None:
    assert "Uncaught exception" not in hub.log
    assert Path(hub.folder / "hub.log").exists()
