"""What the Hub asks of the server extension: a real Jupyter Server, real kernels, signed messages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from jupyter_pause_ext import procfs

from .ext_server import SECRET, Server, in_its_own_home, read, running


@pytest_asyncio.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    in_its_own_home(tmp_path, monkeypatch)
    async with running(tmp_path) as running_server:
        yield running_server


async def test_a_signed_request_is_answered_and_the_answer_is_signed(server: Server) -> None:
    identity = read(await server.hub("identity"))["identity"]
    assert identity == {"boot_id": server.ext.boot_id, "server_pid": os.getpid(), "kernels": []}
    assert len(identity["boot_id"]) == 32


@pytest.mark.parametrize(
    ("change", "secret"),
    [
        ({"signature": ""}, SECRET),
        ({"signature": "v1=" + "0" * 64}, SECRET),
        ({"signature": "v1=é"}, SECRET),
        ({"nonce": "short"}, SECRET),
        ({"time": "1"}, SECRET),
        ({"time": "nan"}, SECRET),
        ({"path": "/user/other/jupyter-pause/v1/identity"}, SECRET),
        ({}, "ff" * 32),
    ],
)
async def test_a_request_that_the_hub_did_not_sign_is_refused(server: Server, change: dict[str, str], secret: str) -> None:
    answer = await server.hub("identity", secret=secret, **change)
    assert answer.code == 403
    assert read(answer)["reason"] == "bad_signature"
    assert "X-Pause-Signature" not in answer.headers


async def test_a_message_counts_once(server: Server) -> None:
    nonce = "ab" * 16
    assert (await server.hub("identity", nonce=nonce)).code == 200
    assert (await server.hub("identity", nonce=nonce)).code == 403


async def test_a_token_of_the_user_is_no_signature(server: Server) -> None:
    for verb in ("prepare", "thaw", "restored", "identity", "activity"):
        answer = await server.tab(f"jupyter-pause/v1/{verb}", "POST", {"pause_id": "p1", "deadline": 2e9})
        assert (answer.code, read(answer)["reason"]) == (403, "bad_signature")
    assert server.ext.lease.pause_id is None


@pytest.mark.parametrize(
    ("verb", "body", "reason"),
    [
        ("prepare", {}, "bad_pause_id"),
        ("prepare", {"pause_id": "a/b", "deadline": 9e9}, "bad_pause_id"),
        ("prepare", {"pause_id": "a" * 65, "deadline": 9e9}, "bad_pause_id"),
        ("prepare", {"pause_id": "p\n", "deadline": 9e9}, "bad_pause_id"),
        ("prepare", {"pause_id": "p", "deadline": "soon"}, "bad_deadline"),
        ("prepare", {"pause_id": "p", "deadline": True}, "bad_deadline"),
        ("prepare", {"pause_id": "p", "deadline": 10**400}, "bad_deadline"),
        ("prepare", {"pause_id": "p", "deadline": 5}, "deadline_passed"),
        ("prepare", {"pause_id": "p", "deadline": 9e9, "freeze": 1}, "bad_freeze"),
        ("prepare", {"pause_id": "p", "deadline": 9e9, "frozen_for": -1}, "bad_frozen_for"),
        ("prepare", b"[]", "bad_json"),
        ("prepare", b"{", "bad_json"),
        ("prepare", b'{"pause_id": "p", "deadline": NaN}', "bad_json"),
        ("prepare", b"[" * 60000, "bad_json"),
        ("prepare", b"\xff\xfe", "bad_json"),
        ("thaw", {"pause_id": 3}, "bad_pause_id"),
        ("restored", {}, "bad_pause_id"),
        ("identity", b"3", "bad_json"),
        ("activity", b'"x"', "bad_json"),
    ],
)
async def test_bad_input_is_refused_with_a_sentence(server: Server, verb: str, body: object, reason: str) -> None:
    answer = await server.hub(verb, body)
    assert answer.code == 400
    assert read(answer)["reason"] == reason
    assert read(answer)["message"].endswith(".")
    assert server.ext.lease.pause_id is None


async def test_a_large_body_is_refused_before_it_is_read(server: Server) -> None:
    answer = await server.fetch("jupyter-pause/v1/prepare", "POST", b"x" * (64 * 1024 + 1), Content_Type="application/json")
    assert (answer.code, read(answer)["reason"]) == (413, "too_large")
    answer = await server.fetch("jupyter-pause/v1/prepare", "GET")
    assert (answer.code, read(answer)["reason"]) == (405, "method_not_allowed")


async def test_freezing_by_the_extension_is_refused_by_name(server: Server) -> None:
    answer = await server.hub("prepare", {"pause_id": "p", "deadline": server.clock() + 9, "freeze": True, "frozen_for": 9})
    assert (answer.code, read(answer)["reason"]) == (409, "freeze_unavailable")
    assert (await server.tab("api/status")).code == 200


async def test_without_a_secret_no_verb_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_its_own_home(tmp_path, monkeypatch)
    async with running(tmp_path, secret=None) as plain:
        answer = await plain.hub("prepare", {"pause_id": "p", "deadline": 9e9}, signature="v1=")
        assert (answer.code, read(answer)["reason"]) == (404, "unavailable")


async def test_prepare_closes_live_connections_and_thaw_lets_the_kernel_go_on(server: Server) -> None:
    kernel_id = await server.kernel("work.ipynb")
    channel = await server.channels(kernel_id)
    assert await channel.run("x = 41; print('ready')") == "ready\n"
    terminal = read(await server.tab("api/terminals", "POST"))["name"]

    prepared = await server.prepare("p1")
    assert await channel.closed() == 1012
    assert prepared["blockers"] == []
    (kernel,) = prepared["identity"]["kernels"]
    assert kernel["kernel_id"] == kernel_id
    assert kernel["started"] == procfs.started(kernel["pid"])
    assert prepared["facts"]["terminals"] == 1
    assert prepared["facts"]["kernels"][0] | {"state": ""} == {"kernel_id": kernel_id, "name": "python3", "state": "", "path": "work.ipynb"}
    assert [stream for stream in server.ext.connections.open() if not stream.closed()] == []

    for path in ("api/status", "jupyter-pause/v1/status", f"terminals/websocket/{terminal}", "lab", ""):
        refused = await server.fetch(path)
        assert (refused.code, read(refused)["reason"]) == (503, "pause_under_way")
        assert int(refused.headers["Retry-After"]) >= 1
        assert refused.headers["Connection"] == "close"

    assert read(await server.hub("thaw", {"pause_id": "another"})) == {"thawed": False}
    assert (await server.tab("api/status")).code == 503
    assert read(await server.hub("thaw", {"pause_id": "p1"})) == {"thawed": True}
    assert read(await server.hub("thaw", {"pause_id": "p1"})) == {"thawed": False}
    again = await server.channels(kernel_id)
    assert await again.run("print(x + 1)") == "42\n"
    assert read(await server.hub("identity"))["identity"] == prepared["identity"]


async def test_prepare_lets_a_request_under_way_finish(server: Server) -> None:
    """A kernel's start is a request that takes a second: it is answered, not cut."""
    starting = asyncio.ensure_future(server.tab("api/kernels", "POST", {"name": "python3"}))
    while not server.app.kernel_manager.list_kernel_ids():
        await asyncio.sleep(0.01)
    await server.prepare()
    assert (await starting).code == 201


async def test_the_lease_ends_by_itself_at_its_deadline(server: Server) -> None:
    await server.prepare(seconds=60)
    assert (await server.tab("api/status")).code == 503
    server.clock.ahead += 61
    assert (await server.tab("api/status")).code == 200


async def test_the_lease_ends_at_its_deadline_with_nobody_asking(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await server.prepare(seconds=60)
    ended = asyncio.Event()
    monkeypatch.setattr(server.ext.lease, "_on_end", lambda *_: ended.set())
    server.clock.ahead += 61
    await asyncio.wait_for(ended.wait(), 10)


async def test_prepare_again_extends_and_a_later_pause_takes_over(server: Server) -> None:
    await server.prepare("p1", seconds=60)
    await server.prepare("p1", seconds=600)
    server.clock.ahead += 61
    assert (await server.tab("api/status")).code == 503
    await server.prepare("p2", seconds=60)
    assert read(await server.hub("thaw", {"pause_id": "p1"})) == {"thawed": False}
    assert read(await server.hub("thaw", {"pause_id": "p2"})) == {"thawed": True}


async def test_activity_counts_what_runs(server: Server) -> None:
    kernel_id = await server.kernel()
    channel = await server.channels(kernel_id)
    await channel.send("import threading; threading.Event().wait(60)")
    await channel.until(lambda message: message["msg_type"] == "execute_input")
    activity = read(await server.hub("activity"))
    assert (activity["kernels"], activity["busy"], activity["terminals"]) == (1, 1, 0)
    assert abs(activity["last_activity"] - server.clock()) < 60
