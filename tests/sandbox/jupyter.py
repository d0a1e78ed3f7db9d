"""A client of one single-user server through the Hub's proxy: REST, kernels and terminals over their websockets."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import websocket

from tests.hub.running import RunningHub, wait_for

CELL_SECONDS = 120.0


class Jupyter:
    """Talks to the server of a user; works again after a resume."""

    def __init__(self, hub: RunningHub, user: str, server: str = "") -> None:
        self.hub = hub
        self.user = user
        self.server = server
        self.prefix = f"/user/{quote(user, safe='@~')}" + (f"/{quote(server, safe='@~')}" if server else "")

    def call(self, method: str, path: str, body: object = None, *, raw: bool = False) -> tuple[int, Any]:
        return self.hub.call(method, path, body, token=self.hub.user(self.user), base=self.prefix, raw=raw)

    def kernel(self, name: str = "python3") -> str:
        """Start a kernel of that kind; its id."""
        status, answer = self.call("POST", "/api/kernels", {"name": name})
        assert status == 201, answer
        return str(answer["id"])

    def kernels(self) -> dict[str, dict[str, Any]]:
        return {k["id"]: k for k in self.call("GET", "/api/kernels")[1]}

    @contextlib.contextmanager
    def socket(self, path: str) -> Iterator[websocket.WebSocket]:
        url = self.hub.url.replace("http", "ws", 1) + self.prefix + path
        socket = websocket.create_connection(url, header=[f"Authorization: token {self.hub.user(self.user)}"], timeout=CELL_SECONDS)
        try:
            yield socket
        finally:
            with contextlib.suppress(OSError, websocket.WebSocketException):
                socket.close()

    @contextlib.contextmanager
    def channels(self, kernel: str) -> Iterator[Channels]:
        with self.socket(f"/api/kernels/{kernel}/channels?session_id={uuid.uuid4().hex}") as socket:
            yield Channels(socket)

    def run(self, kernel: str, code: str) -> str:
        """What a cell prints (and the name of its error)."""
        with self.channels(kernel) as channels:
            return channels.run(code)

    def terminal(self) -> str:
        return str(self.call("POST", "/api/terminals", {})[1]["name"])

    def type(self, terminal: str, line: str, until: str) -> str:
        """Type a line; everything seen on the screen, from its redrawing on, until that text appeared."""
        with self.socket(f"/terminals/websocket/{terminal}") as socket:
            socket.send(json.dumps(["stdin", line + "\r"]))
            seen = ""
            end = time.monotonic() + CELL_SECONDS
            while until not in seen:
                assert time.monotonic() < end, seen
                kind, *rest = json.loads(socket.recv())
                if kind == "stdout":
                    seen += rest[0]
            return seen

    def pause(self) -> dict[str, Any]:
        return self.hub.pause(self.user, self.server)

    def resume(self) -> dict[str, Any]:
        """Resume by the Hub's ordinary start and wait for the verdict."""
        self.hub.start_server(self.user, self.server)
        return self.hub.wait_phase({"running", "unproven"}, self.user, self.server)


class Channels:
    """One websocket of a kernel."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self._socket = socket

    def send(self, code: str, cell_id: str | None = None) -> str:
        """Ask for execution; returns the message's id."""
        message_id = uuid.uuid4().hex
        self._socket.send(
            json.dumps(
                {
                    "channel": "shell",
                    "header": {
                        "msg_id": message_id,
                        "msg_type": "execute_request",
                        "username": "",
                        "session": uuid.uuid4().hex,
                        "version": "5.3",
                        "date": "",
                    },
                    "parent_header": {},
                    "metadata": {"cellId": cell_id} if cell_id else {},
                    "content": {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False},
                }
            )
        )
        return message_id

    def messages(self, message_id: str) -> Iterator[dict[str, Any]]:
        """Messages that answer that request, as they come."""
        while True:
            message = json.loads(self._socket.recv())
            if message["parent_header"].get("msg_id") == message_id:
                yield message

    def run(self, code: str) -> str:
        message_id = self.send(code)
        out, idle, reply = "", False, False
        for message in self.messages(message_id):
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                out += content["text"]
            elif kind == "error":
                out += f"{content['ename']}: {content['evalue']}"
            idle = idle or (kind == "status" and content["execution_state"] == "idle")
            reply = reply or kind == "execute_reply"
            if idle and reply:
                return out.strip()
        raise AssertionError("the socket ended")


def wait_until_idle(jupyter: Jupyter, kernel: str) -> None:
    wait_for("an idle kernel", lambda: jupyter.kernels()[kernel]["execution_state"] == "idle")
