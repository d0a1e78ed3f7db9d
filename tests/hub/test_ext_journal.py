"""Output of running cells is kept while no browser is there: with a real kernel, then the journal's rules alone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1

from jupyter_pause_ext.journal import SETTLE_SECONDS, Journal
from jupyter_pause_ext.websocket import V1, execute_request

from .ext_server import Channel, Server, in_its_own_home, read, running

PRINTING = """
import pathlib, time
print("one", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.01)
print("two", flush=True)
"""


@pytest_asyncio.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    in_its_own_home(tmp_path, monkeypatch)
    async with running(tmp_path) as running_server:
        yield running_server


async def journal(server: Server, kernel_id: str, since: int = 0) -> dict[str, Any]:
    answer = await server.tab(f"jupyter-pause/v1/journal?kernel_id={kernel_id}&since={since}")
    assert answer.code == 200, answer.body
    return read(answer)


async def started(server: Server, cell_id: str = "cell-1") -> tuple[str, Channel, str]:
    """A kernel in which a cell has printed "one" and waits."""
    kernel_id = await server.kernel("work.ipynb")
    channel = await server.channels(kernel_id)
    msg_id = await channel.send(PRINTING, cell_id)
    await channel.until(lambda message: message["msg_type"] == "stream")
    return kernel_id, channel, msg_id


def idle_of(msg_id: str) -> Any:
    def wanted(message: dict[str, Any]) -> bool:
        return bool(
            message["parent_header"].get("msg_id") == msg_id
            and message["msg_type"] == "status"
            and message["content"]["execution_state"] == "idle"
        )

    return wanted


async def test_a_cell_that_prints_with_no_tab_open_is_complete_after_a_reload(server: Server, tmp_path: Path) -> None:
    kernel_id, channel, msg_id = await started(server)
    channel.socket.close()
    await channel.closed()
    (tmp_path / "home" / "go").touch()
    while not (cells := (await journal(server, kernel_id))["cells"]) or not cells[0]["done"]:
        pass
    reloaded = await server.channels(kernel_id)
    found = await journal(server, kernel_id)
    (cell,) = found["cells"]
    assert cell | {"started": 0} == {
        "cell_id": "cell-1",
        "msg_id": msg_id,
        "outputs": [{"output_type": "stream", "name": "stdout", "text": "one\ntwo\n"}],
        "done": True,
        "execution_count": 1,
        "truncated": False,
        "started": 0,
    }
    assert (await journal(server, kernel_id, found["next"]))["cells"] == []
    assert await reloaded.run("print('on')", "cell-2") == "on\n"


async def test_a_cell_that_ends_after_the_reload_is_complete_too(server: Server, tmp_path: Path) -> None:
    kernel_id, channel, msg_id = await started(server)
    channel.socket.close()
    await channel.closed()
    reloaded = await server.channels(kernel_id)
    while not (first := await journal(server, kernel_id))["cells"]:
        pass
    assert [(cell["done"], cell["outputs"][0]["text"]) for cell in first["cells"]] == [(False, "one\n")]
    (tmp_path / "home" / "go").touch()
    await reloaded.until(idle_of(msg_id))
    while not (cells := (await journal(server, kernel_id, first["next"]))["cells"]) or not cells[0]["done"]:
        pass
    assert [(cell["done"], cell["outputs"][0]["text"]) for cell in cells] == [(True, "one\ntwo\n")]


async def test_a_cell_is_kept_in_jupyterlabs_own_protocol_too(server: Server, tmp_path: Path) -> None:
    kernel_id = await server.kernel("work.ipynb")
    channel = await server.channels(kernel_id, protocol=V1)
    assert channel.socket.selected_subprotocol == V1
    header = {"msg_id": "m1", "session": channel.session, "username": "", "msg_type": "execute_request", "version": "5.3", "date": ""}
    content = {"code": PRINTING, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
    parts = [json.dumps(part).encode() for part in (header, {}, {"cellId": "cell-1"}, content)]
    await channel.socket.write_message(v1("shell", *parts), binary=True)
    while b'"stream"' not in (await channel.socket.read_message() or b""):
        pass
    channel.socket.close()
    (tmp_path / "home" / "go").touch()
    while not (cells := (await journal(server, kernel_id))["cells"]) or not cells[0]["done"]:
        pass
    assert [(cell["cell_id"], cell["msg_id"], cell["outputs"][0]["text"]) for cell in cells] == [("cell-1", "m1", "one\ntwo\n")]


async def test_a_pause_is_such_an_absence(server: Server, tmp_path: Path) -> None:
    kernel_id, channel, _ = await started(server)
    await server.prepare("p1")
    assert await channel.closed() == 1012
    (tmp_path / "home" / "go").touch()
    assert (await server.hub("thaw", {"pause_id": "p1"})).code == 200
    while not (cells := (await journal(server, kernel_id))["cells"]) or not cells[0]["done"]:
        pass
    assert cells[0]["outputs"][0]["text"] == "one\ntwo\n"


async def test_what_a_tab_saw_to_its_end_is_not_offered(server: Server, tmp_path: Path) -> None:
    kernel_id, channel, msg_id = await started(server)
    (tmp_path / "home" / "go").touch()
    await channel.until(idle_of(msg_id))
    assert (await journal(server, kernel_id))["cells"] == []


async def test_all_kinds_of_output_are_kept_as_a_notebook_has_them(server: Server) -> None:
    kernel_id = await server.kernel("work.ipynb")
    channel = await server.channels(kernel_id)
    code = """
import sys
from IPython.display import clear_output, display, HTML
print("gone"); clear_output()
print("replaced"); clear_output(wait=True)
print("kept"); print("bad", file=sys.stderr)
handle = display(HTML("<b>first</b>"), display_id="d")
handle.update(HTML("<b>second</b>"))
display(HTML("<i>x</i>"))
1 / 0
"""
    await channel.send("1 + 1", "cell-0")
    msg_id = await channel.send(code, "cell-1")
    await channel.until(idle_of(msg_id))
    channel.socket.close()
    await channel.closed()
    first, second = (await journal(server, kernel_id))["cells"]
    assert first["outputs"] == [{"output_type": "execute_result", "data": {"text/plain": "2"}, "metadata": {}, "execution_count": 1}]
    said = [output.get("text") or output.get("data", {}).get("text/html") or output.get("ename") for output in second["outputs"]]
    assert list(zip([output["output_type"] for output in second["outputs"]], said, strict=True)) == [
        ("stream", "kept\n"),
        ("stream", "bad\n"),
        ("display_data", "<b>second</b>"),
        ("display_data", "<i>x</i>"),
        ("error", "ZeroDivisionError"),
    ]


async def test_a_kernel_that_restarts_ends_its_cells(server: Server) -> None:
    kernel_id, channel, _ = await started(server)
    channel.socket.close()
    await channel.closed()
    assert (await server.tab(f"api/kernels/{kernel_id}/restart", "POST")).code == 200
    while not (cells := (await journal(server, kernel_id))["cells"]) or not cells[0]["done"]:
        pass
    assert cells[0]["outputs"][0]["text"] == "one\n"
    again = await server.channels(kernel_id)
    msg_id = await again.send("print('again')", "cell-1")
    await again.until(idle_of(msg_id))
    again.socket.close()
    await again.closed()
    (cell,) = (await journal(server, kernel_id))["cells"]
    assert (cell["msg_id"], cell["outputs"][0]["text"]) == (msg_id, "again\n")


async def test_an_admins_own_websocket_class_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_its_own_home(tmp_path, monkeypatch)
    mine = "tests.hub.ext_connection.AdminsConnection"
    async with running(tmp_path, ServerApp={"kernel_websocket_connection_class": mine}) as server:
        kernel_id = await server.kernel()
        channel = await server.channels(kernel_id)
        assert await channel.run("print(1)", "cell-1") == "1\n"
        channel.socket.close()
        await channel.closed()
        assert (await journal(server, kernel_id))["cells"] == []


# ---------------------------------------------------------------- the rules alone


class Moment:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Stream:
    """In place of zmq's stream: the tests speak for the kernel."""

    def on_recv(self, _callback: Any) -> None: ...
    def closed(self) -> bool:
        return True


@pytest.fixture
def moment() -> Moment:
    return Moment()


@pytest.fixture
def book(moment: Moment) -> Journal:
    return Journal({"k"}.__contains__, moment, cell_bytes=1000, total_bytes=2500)


def message(kind: str, parent: str | None, content: Any) -> list[bytes]:
    header, over = {"msg_type": kind}, {"msg_id": parent} if parent else {}
    return [b"topic", b"<IDS|MSG>", b"sig", json.dumps(header).encode(), json.dumps(over).encode(), b"{}", json.dumps(content).encode()]


def stdout(text: str) -> Any:
    return {"name": "stdout", "text": text}


IDLE = {"execution_state": "idle"}


def test_a_cell_that_prints_too_much_is_cut_and_says_so(book: Journal) -> None:
    book.asked("k", "s", "m", "c")
    for _ in range(100):
        book.heard("k", message("stream", "m", stdout("x" * 100)))
    (cell,) = book.read("k", 0)["cells"]
    assert cell["truncated"] is True
    assert 0 < len(cell["outputs"][0]["text"]) <= 1000


def test_all_cells_together_stay_within_the_total(book: Journal) -> None:
    for number in range(10):
        book.asked("k", "s", f"m{number}", f"c{number}")
        book.heard("k", message("stream", f"m{number}", stdout("x" * 800)))
        if number < 5:
            book.heard("k", message("status", f"m{number}", IDLE))
    cells = book.read("k", 0)["cells"]
    assert sum(len(output["text"]) for cell in cells for output in cell["outputs"]) <= 2500
    assert {cell["cell_id"] for cell in cells if cell["truncated"]} | {cell["cell_id"] for cell in cells if cell["outputs"]} == {
        f"c{n}" for n in range(5, 10)
    }


def test_a_cell_run_again_replaces_what_was_kept(book: Journal) -> None:
    book.asked("k", "s", "m1", "c")
    book.heard("k", message("stream", "m1", stdout("old")))
    book.asked("k", "s", "m2", "c")
    assert [cell["msg_id"] for cell in book.read("k", 0)["cells"]] == ["m2"]


def test_a_cell_that_ended_just_before_its_tab_went_is_kept_and_an_older_one_is_not(book: Journal, moment: Moment) -> None:
    book.connected("k", "s", Stream)
    for msg_id in ("m1", "m2"):
        book.asked("k", "s", msg_id, msg_id)
        book.heard("k", message("status", msg_id, IDLE))
        moment.now += SETTLE_SECONDS
    moment.now -= 1
    book.disconnected("k", "s")
    assert [cell["msg_id"] for cell in book.read("k", 0)["cells"]] == ["m2"]


def test_a_second_websocket_of_the_same_session_counts_as_present(book: Journal) -> None:
    book.connected("k", "s", Stream)
    book.connected("k", "s", Stream)
    book.asked("k", "s", "m", "c")
    book.disconnected("k", "s")
    assert book.read("k", 0)["cells"] == []


def test_a_dead_kernels_cells_are_forgotten(moment: Moment) -> None:
    alive = {"k"}
    book = Journal(alive.__contains__, moment)
    book.asked("k", "s", "m", "c")
    alive.clear()
    assert book.read("k", 0)["cells"] == []


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b"<IDS|MSG>"],
        [b"<IDS|MSG>", b"", b"{", b"{}", b"{}", b"{}"],
        [b"<IDS|MSG>", b"", b"[]", b"{}", b"{}", b"{}"],
        message("stream", "m", []),
        message("stream", "m", {"name": "stdout"}),
        message("display_data", "m", {"transient": 3, "data": {}}),
        message("update_display_data", "m", {}),
        message("status", "m", {}),
        message("status", None, []),
        message("error", "m", {"ename": "x"}),
    ],
)
def test_nonsense_from_user_code_is_not_output(book: Journal, parts: list[bytes]) -> None:
    book.asked("k", "s", "m", "c")
    book.heard("k", parts)
    assert book.read("k", 0)["cells"][0]["outputs"] == []


def v1(channel: str, *parts: bytes) -> bytes:
    message: bytes = serialize_msg_to_ws_v1(list(parts), channel)  # type: ignore[no-untyped-call]
    return message


EXECUTE, NAMED = b'{"msg_type": "execute_request", "msg_id": "m"}', b'{"cellId": "c"}'


def test_the_cell_of_an_execute_request_is_read_in_both_protocols() -> None:
    assert execute_request(v1("shell", EXECUTE, b"{}", NAMED, b"{}", b"buffer"), True) == ("m", "c")
    assert execute_request(json.dumps({"header": json.loads(EXECUTE), "metadata": json.loads(NAMED)}), False) == ("m", "c")


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        "[]",
        '"execute_request"',
        '{"header": {"msg_type": "execute_request"}}',
        b"",
        b"execute_request" * 9,
        b"\xff" * 100,
        v1("control", EXECUTE, b"{}", NAMED, b"{}"),
        v1("shell", EXECUTE, b"{}", b"{}", b"{}"),
        v1("shell", EXECUTE, b"{}", b'{"cellId": 3}', b"{}"),
        v1("shell", b'{"msg_type": "kernel_info_request", "msg_id": "execute_request"}', b"{}", NAMED, b"{}"),
    ],
)
def test_only_execute_requests_that_name_their_cell_are_noted(message: str | bytes) -> None:
    assert execute_request(message, True) is None
    assert execute_request(message, False) is None
