"""The pages in a real Hub: who may see what, what a hostile name or file can do, what a tab is told."""

from __future__ import annotations

import html
import http.client
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from gke_workspaces_spawner.hubapi import pages, urls
from tests.fakes.pages import HOSTILE, LISTED, SERVERS, RunningHub, started
from tests.ports import free_port

EVIL = b"<script>document.title = 'pwned'</script>"
BIG = 5 * 10**9


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("home")
    (root / "work").mkdir()
    (root / "work" / "evil.html").write_bytes(EVIL)
    (root / ".hidden").mkdir()
    (root / "many").mkdir()
    for number in range(LISTED + 10):
        (root / "many" / f"{number}.txt").touch()
    (root / "evil.svg").write_bytes(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    (root / f"{HOSTILE.replace('/', '')}.txt").write_text("hello")
    (root / "o'neil (x) 100%.txt").write_text("o'neil")
    (root / "x%2Fy").write_text("not a folder")
    os.mkdir(root / os.fsdecode(b"not-utf8-\xff"))
    os.mkfifo(root / "fifo")
    (root / "link").symlink_to("/etc/passwd")
    (root / "out").symlink_to("/etc")
    with (root / "big.bin").open("wb") as big:
        big.truncate(BIG)
    return root


@pytest.fixture(scope="module")
def hub(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with started(tmp_path_factory.mktemp("hub"), home, free_port()) as running:
        for user in (HOSTILE, "bo", "ann"):
            running.browser(user)
        yield running


def embedded(page: str) -> dict[str, object]:
    match = re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    assert match
    loaded: dict[str, object] = json.loads(match[1])
    return loaded


def untidied(hub: RunningHub, session: requests.Session, path: str) -> tuple[int, bytes]:
    """GET a path exactly as it is written (every ordinary client resolves the dots first, an attacker does not)."""
    connection = http.client.HTTPConnection(urlsplit(hub.url).netloc, timeout=20)
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in session.cookies)
    try:
        connection.request("GET", path, headers={"Cookie": cookies, "Sec-Fetch-Mode": "navigate"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_list_shows_every_server_of_the_user_and_nobody_else_s(hub: RunningHub) -> None:
    answer = hub.browser("ann").get(hub.url + "hub/workspaces")
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    views = embedded(answer.text)["workspaces"]
    assert isinstance(views, list)
    assert {(view["user"], view["server"]) for view in views} == {("ann", name) for name in SERVERS}


@pytest.mark.parametrize("server", sorted(SERVERS))
def test_every_phase_has_its_page_and_no_hostile_name_becomes_markup(hub: RunningHub, server: str) -> None:
    answer = hub.browser(HOSTILE).get(hub.url.removesuffix("/base/") + urls.page("/base/hub/", HOSTILE, server))
    assert answer.status_code == 200
    # JupyterHub's own "window.jhdata" carries the name inside a script, its own business; ours never does
    ours = answer.text.partition("<body>")[2]
    assert "<img src=x" not in ours
    assert embedded(answer.text)["user"] == HOSTILE
    assert html.escape(HOSTILE, quote=False).replace("'", "&#39;") in ours


def test_pages_lead_to_the_login_page_and_polls_are_told_403_in_json(hub: RunningHub) -> None:
    nobody = hub.browser()
    for path in ("hub/workspaces", "hub/workspaces/ann", "hub/workspaces/files/ann/server"):
        answer = nobody.get(hub.url + path, allow_redirects=False)
        assert answer.status_code == 302
        assert "/hub/login?next=" in answer.headers["Location"]
    for path in ("hub/workspaces/follow", "hub/workspaces/follow/ann", "hub/workspaces/follow/ann/up"):
        answer = nobody.get(hub.url + path, allow_redirects=False)
        assert answer.status_code == 403
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.json() == {"status": 403, "message": "You are not logged in.", "reason": "not_logged_in"}
        assert answer.headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_a_tab_is_told_the_state_of_its_server(hub: RunningHub) -> None:
    ann = hub.browser("ann")
    ann.headers["Sec-Fetch-Mode"] = "cors"
    hub.move("ann", "up", "checkpointing")
    try:
        answer = ann.get(hub.url + "hub/workspaces/follow/ann/up")
        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.json()["phase"] == "checkpointing"
        assert answer.json()["progress"] == 0.42
    finally:
        hub.move("ann", "up", "running")
    assert len(ann.get(hub.url + "hub/workspaces/follow").json()["workspaces"]) == len(SERVERS)


@pytest.mark.parametrize(
    "path", ["hub/workspaces/bo", "hub/workspaces/follow/bo", "hub/workspaces/files/bo/server", "hub/workspaces/nobody"]
)
def test_another_user_s_server_is_as_if_it_were_not_there(hub: RunningHub, path: str) -> None:
    answer = hub.browser("ann").get(hub.url + path)
    assert answer.status_code == 404


def test_a_server_that_does_not_exist_is_not_found(hub: RunningHub) -> None:
    ann = hub.browser("ann")
    assert ann.get(hub.url + "hub/workspaces/ann/nothing").status_code == 404
    answer = ann.get(hub.url + "hub/workspaces/follow/ann/nothing")
    assert answer.status_code == 404
    assert answer.json()["reason"] == "no_such_server"


def test_an_admin_of_servers_sees_phases_and_sizes_but_no_name_from_inside(hub: RunningHub) -> None:
    eve = hub.browser("eve")
    views = [view for view in eve.get(hub.url + "hub/workspaces/follow").json()["workspaces"] if view["user"] != "eve"]
    assert {view["user"] for view in views} == {HOSTILE, "bo"}
    for view in views:
        assert "holds" not in view
        assert "receipt" not in view
        assert "files" not in view["urls"]
        assert view["phase"] in {"paused", "checkpointing"}
    page = eve.get(hub.url + "hub/workspaces/bo/train")
    assert page.status_code == 200
    assert "neil" not in page.text
    assert "db.example.org" not in page.text
    assert eve.get(hub.url + "hub/workspaces/files/bo/server").status_code == 404
    assert eve.get(hub.url + "hub/workspaces/follow/bo/train").status_code == 404


def test_another_page_of_the_same_origin_cannot_fetch_pages_or_files(hub: RunningHub) -> None:
    ann = hub.browser("ann")
    for path in ("hub/workspaces", "hub/workspaces/ann", "hub/workspaces/files/ann/server/work/evil.html"):
        for mode in ("cors", "same-origin", "no-cors"):
            answer = ann.get(hub.url + path, headers={"Sec-Fetch-Mode": mode, "Sec-Fetch-Site": "same-site"})
            assert answer.status_code == 403, (path, mode)
        assert ann.get(hub.url + path).status_code == 200
        assert "frame-ancestors 'none'" in ann.get(hub.url + path).headers["Content-Security-Policy"]


def test_a_file_is_an_attachment_that_no_browser_runs(hub: RunningHub) -> None:
    ann = hub.browser("ann")
    for path, content in (
        ("work/evil.html", EVIL),
        ("evil.svg", None),
        ("x%252Fy", b"not a folder"),
        ("o'neil%20(x)%20100%25.txt", b"o'neil"),
    ):
        answer = ann.get(f"{hub.url}hub/workspaces/files/ann/server/{path}")
        assert answer.status_code == 200, path
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["Content-Disposition"].startswith("attachment; filename=")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
        assert answer.headers["Cache-Control"] == "no-store"
        assert content is None or answer.content == content


def test_a_preview_is_escaped_text_in_our_page(hub: RunningHub) -> None:
    answer = hub.browser("ann").get(hub.url + "hub/workspaces/files/ann/server/work/evil.html?preview=1")
    assert answer.status_code == 200
    assert EVIL.decode() not in answer.text
    assert html.escape(EVIL.decode(), quote=False).replace("'", "&#39;") in answer.text


def test_a_folder_s_page_escapes_names_and_links_only_what_can_be_opened(hub: RunningHub) -> None:
    page = hub.browser("ann").get(hub.url + "hub/workspaces/files/ann/server").content.decode().partition("<body>")[2]
    assert "<img src=x" not in page
    for name in ("fifo", "link", "out", "not-utf8-\N{REPLACEMENT CHARACTER}"):
        assert f"<bdi>{name}</bdi> (cannot be opened here)" in page
    assert 'href="/base/hub/workspaces/files/ann/server/x%252Fy"' in page


def test_a_folder_s_page_shows_what_is_hidden_last_and_says_when_there_is_more(hub: RunningHub) -> None:
    page = hub.browser("ann").get(hub.url + "hub/workspaces/files/ann/server").text.partition("<tbody>")[2]
    names = ["many", "work", "big.bin", "link", ".hidden"]
    assert sorted(names, key=lambda name: page.index(f"<bdi>{name}</bdi>")) == names
    assert "holds more" not in page
    many = hub.browser("ann").get(hub.url + "hub/workspaces/files/ann/server/many").text
    assert many.count("<bdi>") - many.partition("<tbody>")[0].count("<bdi>") == LISTED
    assert f"holds more than the {LISTED} names that are shown" in many


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("..%2f..%2fetc%2fpasswd", 400),
        ("work/..%2f..%2f..", 400),
        ("work/%2e%2e/evil.svg", 400),
        ("%00", 400),
        ("work//evil.html", 400),
        ("%ff%fe", 400),
        ("link", 404),
        ("out", 404),
        ("out/passwd", 404),
        ("fifo", 404),
        ("absent", 404),
        ("evil.svg/x", 404),
    ],
)
def test_nothing_but_ordinary_files_below_the_home_is_opened(hub: RunningHub, path: str, status: int) -> None:
    answered, body = untidied(hub, hub.browser("ann"), f"/base/hub/workspaces/files/ann/server/{path}")
    assert answered == status, body
    assert b"root:" not in body


def test_the_files_of_a_server_that_is_not_paused_are_not_shown(hub: RunningHub) -> None:
    answer = hub.browser("ann").get(hub.url + "hub/workspaces/files/ann/servers/up")
    assert answer.status_code == 409
    assert "while the server is paused" in answer.text


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_huge_file_is_passed_through_and_the_hub_answers_meanwhile(hub: RunningHub) -> None:
    ann = hub.browser("ann")
    before = resident(hub.pid)
    with ann.get(hub.url + "hub/workspaces/files/ann/server/big.bin", stream=True) as answer:
        assert answer.headers["Content-Length"] == str(BIG)
        taken = 0
        for chunk in answer.iter_content(1 << 20):
            taken += len(chunk)
            if taken > 200 << 20:
                break
        assert ann.get(hub.url + "hub/workspaces/follow/ann").status_code == 200
        assert resident(hub.pid) - before < 64 << 20
    assert ann.get(hub.url + "hub/workspaces/follow/ann").status_code == 200


def test_static_files_are_cached_for_good_under_their_version_only(hub: RunningHub) -> None:
    nobody = hub.browser()
    today = nobody.get(hub.url.removesuffix("/base/") + urls.static("/base/hub/", pages.static_version(), "workspaces.js"))
    assert today.status_code == 200
    assert today.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert today.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    other = nobody.get(hub.url + "hub/workspaces/static/current/workspaces.css")
    assert other.status_code == 200
    assert other.headers["Content-Type"] == "text/css; charset=utf-8"
    assert other.headers["Cache-Control"] == "no-cache"
    head = nobody.head(hub.url + "hub/workspaces/static/current/workspaces.css")
    assert head.status_code == 200
    assert not head.content


@pytest.mark.parametrize("path", ["..%2fpages.py", "%2e%2e/pages.py", "..%2f..%2f..%2fetc%2fpasswd", "", "absent.js", "dom.js%00.css"])
def test_nothing_but_static_files_is_served_as_such(hub: RunningHub, path: str) -> None:
    status, body = untidied(hub, hub.browser(), f"/base/hub/workspaces/static/current/{path}")
    assert status in {302, 400, 403, 404}
    assert b"tornado" not in body
    assert b"root:" not in body


def test_the_home_page_carries_our_part_around_jupyterhub_s_own(hub: RunningHub) -> None:
    page = hub.browser("bo").get(hub.url + "hub/home").text
    assert 'data-follow="/base/hub/workspaces/follow"' in page
    assert 'id="start"' in page
    assert "new-server-btn" in page


def test_the_paused_form_stands_in_jupyterhub_s_form_and_works_without_scripts(hub: RunningHub) -> None:
    page = hub.browser("ann").get(hub.url + "hub/spawn/ann").text
    form = page[page.index('id="spawn_form"') : page.index("</form>")]
    assert "_xsrf=" in form[: form.index(">")]
    assert re.search(r'name="gke_workspaces"\s+value="resume"\s+formnovalidate', form)
    assert re.search(r'name="gke_workspaces"\s+value="fresh"', form)
    assert form.index("<details") < form.index("name='memory'") < form.index("</details>")
    plain = hub.browser("bo").get(hub.url + "hub/spawn/bo").text
    assert "<details" not in plain
    assert re.search(r'name="gke_workspaces"\s+value="fresh"', plain)


def test_jupyterhub_s_not_running_page_looks_after_the_right_server(hub: RunningHub) -> None:
    answer = hub.browser("bo").get(hub.url + "user/bo/lab")
    assert answer.status_code == 424
    assert 'data-follow="/base/hub/workspaces/follow/bo"' in answer.text


def test_nothing_of_all_this_was_an_error_for_the_hub(hub: RunningHub) -> None:
    log = hub.log.read_text()
    assert "Traceback" not in log
    assert " 500 " not in log
