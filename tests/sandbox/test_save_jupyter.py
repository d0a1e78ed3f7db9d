"""A whole Jupyter server with a kernel, saved and restored."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

from tests.sockets import end

from .conftest import Lab

TOKEN = "token-of-the-test"


async def api(ip: str, path: str, method: str = "GET", **body: Any) -> Any:
    """One call of the server's REST API."""
    request = HTTPRequest(
        f"http://{ip}:8888/api/{path}",
        method,
        headers={"Authorization": f"token {TOKEN}"},
        body=json.dumps(body) if method == "POST" else None,
        request_timeout=20,
    )
    return json.loads((await AsyncHTTPClient().fetch(request)).body or "null")


async def execute(ip: str, kernel: str, code: str) -> str:
    """What a cell prints, over a websocket of its own."""
    url = HTTPRequest(f"ws://{ip}:8888/api/kernels/{kernel}/channels", headers={"Authorization": f"token {TOKEN}"}, connect_timeout=20)
    socket = await websocket_connect(url)
    try:
        header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": "s", "username": "u", "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        await socket.write_message(
            json.dumps({"header": header, "parent_header": {}, "metadata": {}, "channel": "shell", "content": content, "buffers": []})
        )
        text = ""
        while True:
            raw = await asyncio.wait_for(socket.read_message(), 30)
            assert raw is not None, "the server hung up"
            message = json.loads(raw)
            if message["parent_header"].get("msg_id") != header["msg_id"]:
                continue
            assert message["msg_type"] != "error", message["content"]
            if message["msg_type"] == "stream":
                text += message["content"]["text"]
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return text
    finally:
        end(socket)


async def test_kernels_keep_variables_counts_and_pids_through_two_cycles(lab: Lab) -> None:
    argv = (
        *(sys.executable, "-m", "jupyter", "server", "--ip=0.0.0.0", "--port=8888", "--no-browser"),
        "--ServerApp.allow_remote_access=True",
    )
    spec = lab.spec()._replace(argv=argv, env={**lab.spec().env, "PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"})
    address = await lab.sandboxes.start("one", spec, {"JUPYTER_TOKEN": TOKEN})

    async def answers(ip: str) -> None:
        while True:
            try:
                await api(ip, "status")
                return
            except OSError:
                await asyncio.sleep(0.05)

    await asyncio.wait_for(answers(address.ip), 60)
    kernel = (await api(address.ip, "kernels", "POST", name="python3"))["id"]
    await execute(address.ip, kernel, "import os, hashlib, itertools\nx = os.urandom(32 << 20)\ncounter = itertools.count()")
    expected = await execute(address.ip, kernel, "print(hashlib.sha256(x).hexdigest(), os.getpid())")
    for number in range(2):
        await lab.pause("one", f"p{number}", f"s{number}")
        address = await lab.sandboxes.restore("one", spec, f"s{number}")
        await asyncio.wait_for(answers(address.ip), 30)
        assert [found["id"] for found in await api(address.ip, "kernels")] == [kernel]
        seen = await execute(address.ip, kernel, "print(hashlib.sha256(x).hexdigest(), os.getpid())")
        assert seen == expected
        assert await execute(address.ip, kernel, "print(next(counter))") == f"{number}\n"
