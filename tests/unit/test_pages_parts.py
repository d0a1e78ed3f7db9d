"""Addresses, paths into a home, and what somebody may know of a server that he may not enter."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gke_workspaces_spawner.hubapi import files, handlers, pages, urls
from gke_workspaces_spawner.lifecycle.reasons import table
from tests.fakes.pages import HOSTILE, SERVERS, view

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1, max_size=60)
ROUTES = [(re.compile("/hub" + route[0] + "$"), route[1]) for route in pages.handlers()]


def routed(url: str) -> tuple[type, dict[str, str | None]]:
    """The handler that Tornado chooses for a raw path, and its arguments."""
    for pattern, handler in ROUTES:
        match = pattern.match(url)
        if match:
            return handler, {name: unquote(value) if value is not None else None for name, value in match.groupdict().items()}
    raise AssertionError(url)


@given(user=NAMES | st.sampled_from(["follow", "files", "static"]), server=NAMES | st.just(""))
def test_every_name_reaches_its_own_page_and_no_other_route(user: str, server: str) -> None:
    wanted = {"user_name": user, **({"server_name": server} if server else {})}
    assert routed(urls.page("/hub/", user, server)) == (pages.WorkspaceHandler, wanted)
    assert routed(urls.follow("/hub/", user, server)) == (pages.FollowOneHandler, wanted)
    assert routed(urls.files("/hub/", user, server)) == (pages.FilesHandler, {**wanted, "path": None})


@given(
    path=st.lists(
        NAMES.filter(lambda name: name not in {".", ".."} and "\0" not in name and len(name.encode()) <= 255), min_size=1, max_size=4
    )
)
def test_a_path_into_a_home_comes_out_as_it_went_in(path: list[str]) -> None:
    handler, arguments = routed(urls.files("/hub/", "ann", "", path))
    assert handler is pages.FilesHandler
    assert files.split_path(arguments["path"] or "") == tuple(path)


@pytest.mark.parametrize("path", ["..", "a/../b", "a/./b", "a//b", "a/\0b", "x" * 256, "../../etc/passwd", "a/.."])
def test_a_path_that_leaves_the_home_or_is_none_is_refused(path: str) -> None:
    with pytest.raises(files.BadPath):
        files.split_path(path)


def test_a_download_s_name_cannot_break_out_of_its_header() -> None:
    header = files.attachment('a"; filename="b.html\r\nSet-Cookie: x=1\\é%20.ipynb')
    assert "\r" not in header
    assert "\n" not in header
    assert header.count('"') == 2
    assert header.endswith("filename*=UTF-8''a%22%3B%20filename%3D%22b.html%0D%0ASet-Cookie%3A%20x%3D1%5C%C3%A9%2520.ipynb")


def test_only_a_regular_file_has_a_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", Path("/dev/null")):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            with pytest.raises(OSError, match="not a regular file"):
                files.regular_size(fd)
        finally:
            os.close(fd)


async def test_a_file_that_grows_gives_no_more_than_it_had_when_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 10)
    fd = os.open(path, os.O_RDONLY)
    try:
        size = files.regular_size(fd)
        path.write_bytes(b"a" * 10 + b"b" * 10)
        assert b"".join([chunk async for chunk in files.read(fd, size)]) == b"a" * 10
    finally:
        os.close(fd)


async def test_a_preview_is_text_and_bounded(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"\xff" + b"x" * files.PREVIEW)
    (tmp_path / "binary").write_bytes(b"PK\0\1")
    results = []
    for name in ("long", "binary"):
        fd = os.open(tmp_path / name, os.O_RDONLY)
        try:
            results.append(await files.preview(fd, files.regular_size(fd)))
        finally:
            os.close(fd)
    text, whole = results[0]
    assert text is not None
    assert text.startswith("\N{REPLACEMENT CHARACTER}x")
    assert not whole
    assert results[1] == (None, False)


@pytest.mark.parametrize("state", sorted(set(SERVERS.values())))
def test_who_may_not_enter_a_server_learns_no_name_from_inside_it(state: str) -> None:
    full = view("ann", "train", state)
    short = pages.outline(full)
    assert HOSTILE not in str(short)
    assert "neil" not in str(short)
    assert "db.example.org" not in str(short)
    assert "open" not in short["actions"]
    assert short["phase"] == full["phase"]
    assert short["snapshot"] == full["snapshot"]
    assert set(short["urls"]) == {"page", "follow"}


def test_the_version_of_the_static_files_is_the_hash_of_what_is_there() -> None:
    assert re.fullmatch(r"[0-9a-f]{12}", pages.static_version())
    assert pages.template_vars() == {"gke_workspaces_version": pages.static_version()}


def test_openapi_names_exactly_the_routes_that_there_are() -> None:
    document = yaml.safe_load(Path(pages.__file__).with_name("openapi.yaml").read_text(encoding="utf-8"))
    examples = {"user_name": "ann", "server_name": "train", "pause_id": "p1", "verb": "cancel"}
    routes = [(re.compile(route + "$"), handler) for route, handler in handlers.handlers()]
    met = set()
    for path, item in document["paths"].items():
        url = "/api" + re.sub(r"{(\w+)}", lambda match: examples[match[1]], path)
        pattern, handler = next((pattern.pattern, handler) for pattern, handler in routes if pattern.match(url))
        met.add(pattern)
        for method in {"get", "post", "delete"} & set(item):
            assert method in vars(handler), f"{method} {path}"
        for method in {"get", "post", "delete"} - set(item):
            assert method not in vars(handler), f"{method} {path} is not described"
    assert met == {pattern.pattern for pattern, _ in routes}


def test_openapi_s_reason_codes_exist() -> None:
    text = Path(pages.__file__).with_name("openapi.yaml").read_text(encoding="utf-8")
    responses = yaml.safe_load(text)["components"]["responses"]
    for response in responses.values():
        codes = set(re.findall(r"`([a-z_]+)`", response["description"]))
        for media in response["content"].values():
            codes |= {media["example"]["reason"]} if isinstance(media["example"].get("reason"), str) else set()
        assert codes <= set(table()), response["description"]


def test_openapi_s_example_of_a_workspace_has_every_part_that_it_promises() -> None:
    document = yaml.safe_load(Path(pages.__file__).with_name("openapi.yaml").read_text(encoding="utf-8"))
    schema = document["components"]["schemas"]["Workspace"]
    example = document["components"]["responses"]["Workspace"]["content"]["application/json"]["example"]
    assert set(schema["required"]) <= set(example)
    assert set(example) <= set(schema["properties"])
