"""A real Jupyter Server in the test's own event loop, with the extension, real kernels, and a small Hub to talk to."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import signal
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from jupyter_server.serverapp import ServerApp
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketClientConnection, websocket_connect
from traitlets.config import Config

from jupyter_pause_ext.extension import PauseExtension, install
from jupyter_pause_ext.signing import parse_secret
from tests.ports import free_port
from tests.sockets import end

SECRET = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
TOKEN = "the-tab's-own-token"
HUB_TOKEN = "the-server's-hub-token"


class Clock:
    """Wall clock that a test may move."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def sign(secret: str, *parts: str) -> str:
    """Written from the contract, not from the code under test."""
    return "v1=" + hmac.new(bytes.fromhex(secret), "\n".join(parts).encode(), hashlib.sha256).hexdigest()


@dataclass
class Client:
    """Talks to a server as its user and as its Hub."""

    port: int
    base: str
    clock: Clock = field(default_factory=Clock)
    token: str = TOKEN
    host: str = "127.0.0.1"

    async def fetch(self, path: str, method: str = "GET", body: str | bytes | None = None, **headers: str) -> HTTPResponse:
        """Any request; header names with underscores for hyphens."""
        request = HTTPRequest(
            f"http://{self.host}:{self.port}{self.base}{path}",
            method,
            {name.replace("_", "-"): value for name, value in headers.items()},
            body,
            allow_nonstandard_methods=True,
            follow_redirects=False,
            request_timeout=20,
        )
        client = AsyncHTTPClient(force_instance=True)
        try:
            return await client.fetch(request, raise_error=False)
        finally:
            client.close()

    async def tab(self, path: str, method: str = "GET", body: Any = None, token: str = "", **headers: str) -> HTTPResponse:
        """As the tab's user, by token."""
        sent = None if method == "GET" else json.dumps({} if body is None else body)
        login = {"Authorization": f"token {token or self.token}", "Content-Type": "application/json"}
        return await self.fetch(path, method, sent, **(login | headers))

    async def hub(self, verb: str, message: Any = None, *, secret: str = SECRET, **change: str) -> HTTPResponse:
        """As the Hub, signed; ``change`` replaces ``time``, ``nonce``, ``signature`` or the signed ``path``."""
        body = message if isinstance(message, bytes) else json.dumps({} if message is None else message).encode()
        path = f"{self.base}jupyter-pause/v1/{verb}"
        stamp = change.get("time", str(int(self.clock())))
        nonce = change.get("nonce", secrets.token_hex(16))
        signature = sign(secret, "request", "POST", change.get("path", path), stamp, nonce, hashlib.sha256(body).hexdigest())
        answer = await self.fetch(
            f"jupyter-pause/v1/{verb}",
            "POST",
            body,
            Content_Type="application/json",
            X_Pause_Time=stamp,
            X_Pause_Nonce=nonce,
            X_Pause_Signature=change.get("signature", signature),
        )
        if answer.code != 403 and "signature" not in change:
            expected = sign(secret, "response", nonce, str(answer.code), hashlib.sha256(answer.body).hexdigest())
            assert answer.headers.get("X-Pause-Signature") == expected
        return answer

    async def prepare(self, pause_id: str = "p1", seconds: float = 30.0) -> dict[str, Any]:
        answer = await self.hub("prepare", {"pause_id": pause_id, "deadline": self.clock() + seconds, "freeze": False, "frozen_for": 60})
        assert answer.code == 200, answer.body
        return read(answer)


@dataclass
class Server(Client):
    """A server in this process."""

    app: ServerApp = field(kw_only=True)
    ext: PauseExtension = field(kw_only=True)
    sockets: list[WebSocketClientConnection] = field(default_factory=list)

    async def kernel(self, path: str = "") -> str:
        """Start a kernel (with a session for a notebook, where a path is given)."""
        if path:
            made = await self.tab("api/sessions", "POST", {"path": path, "type": "notebook", "name": path, "kernel": {"name": "python3"}})
            assert made.code == 201, made.body
            return str(read(made)["kernel"]["id"])
        made = await self.tab("api/kernels", "POST", {"name": "python3"})
        assert made.code == 201, made.body
        return str(read(made)["id"])

    async def channels(self, kernel_id: str, session: str | None = None, protocol: str = "") -> Channel:
        """A kernel's websocket, in the protocol of JupyterLab (v1) or the older one."""
        session = session or uuid.uuid4().hex
        request = HTTPRequest(
            f"ws://127.0.0.1:{self.port}{self.base}api/kernels/{kernel_id}/channels?{urlencode({'session_id': session, 'token': TOKEN})}",
            connect_timeout=60,
        )
        socket = await websocket_connect(request, subprotocols=[protocol] if protocol else None)
        self.sockets.append(socket)
        return Channel(socket, session)

    async def stop(self) -> None:
        for socket in self.sockets:
            end(socket)
        shells = [terminal.ptyproc.pid for terminal in self.app.web_app.settings["terminal_manager"].terminals.values()]
        await self.app._cleanup()
        for pid in shells:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # terminado asks several times and gives up where the shell is being reaped
        self.ext.close()
        self.app.http_server.stop()
        await self.app.http_server.close_all_connections()
        self.app.kernel_manager.context.destroy()


@dataclass
class Channel:
    """One browser session's websocket to a kernel."""

    socket: WebSocketClientConnection
    session: str

    async def send(self, code: str, cell_id: str = "") -> str:
        """Send an execute request as JupyterLab does; its message id."""
        msg_id = uuid.uuid4().hex
        header = {"msg_id": msg_id, "session": self.session, "username": "", "msg_type": "execute_request", "version": "5.3", "date": ""}
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        message = {
            "header": header,
            "parent_header": {},
            "metadata": {"cellId": cell_id} if cell_id else {},
            "content": content,
            "channel": "shell",
            "buffers": [],
        }
        await self.socket.write_message(json.dumps(message))
        return msg_id

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next message that is wanted."""
        while True:
            text = await asyncio.wait_for(self.socket.read_message(), 60)
            assert text is not None, "the websocket was closed"
            message: dict[str, Any] = json.loads(text)
            if wanted(message):
                return message

    async def run(self, code: str, cell_id: str = "") -> str:
        """Run code; what it printed."""
        msg_id = await self.send(code, cell_id)
        printed: list[str] = []

        def end(message: dict[str, Any]) -> bool:
            if message["parent_header"].get("msg_id") != msg_id:
                return False
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])
            return bool(message["msg_type"] == "status" and message["content"]["execution_state"] == "idle")

        await self.until(end)
        return "".join(printed)

    async def closed(self) -> int | None:
        """Wait for the server to close; the code."""
        while await asyncio.wait_for(self.socket.read_message(), 10) is not None:
            pass
        return self.socket.close_code


def read(answer: HTTPResponse) -> dict[str, Any]:
    value = json.loads(answer.body)
    assert isinstance(value, dict)
    return value


def in_its_own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration, data or history of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith(("JUPYTERHUB_", "JPY_")):
            monkeypatch.delenv(name)
    for name, folder in {
        "HOME": "home",
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
    }.items():
        (tmp_path / folder).mkdir(mode=0o700, exist_ok=True)
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv("JUPYTER_NO_CONFIG", "1")


@asynccontextmanager
async def running(
    tmp_path: Path, *, secret: str | None = SECRET, checkpoint_file: str = "/nonexistent", base_url: str = "/user/a.b@c/", **config: Any
) -> AsyncIterator[Server]:
    """A server with the extension put in by hand, so that clock and checkpoint file can be chosen."""
    settings = Config({"ServerApp": {"root_dir": str(tmp_path / "home"), "jpserver_extensions": {"jupyter_server_terminals": True}}})
    settings.IdentityProvider.token = TOKEN
    settings.ServerApp.allow_root = True
    settings.ServerApp.open_browser = False
    settings.ServerApp.ip = "127.0.0.1"
    settings.ServerApp.port = port = free_port()
    settings.ServerApp.port_retries = 0
    settings.ServerApp.base_url = base_url
    settings.merge(Config(config))
    app = ServerApp(config=settings, log_level="INFO")
    app.init_signal = lambda: None  # type: ignore[method-assign]
    app.initialize(argv=[], find_extensions=False)
    clock = Clock()
    ext = PauseExtension(app, parse_secret(secret) if secret else None, clock, checkpoint_file)
    install(ext)
    await asyncio.sleep(0)  # the server binds its port in the loop's next turn
    server = Server(port, str(app.base_url), clock, app=app, ext=ext)
    try:
        yield server
    finally:
        await server.stop()


@dataclass
class Hub:
    """A small tornado server that plays the Hub's API and remembers what it was asked."""

    port: int
    asked: list[tuple[str, str, str, Any]] = field(default_factory=list)
    """(method, raw path, Authorization header, body)"""
    answer: Callable[[RequestHandler], None] | None = None

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hub/api"


@asynccontextmanager
async def playing_hub() -> AsyncIterator[Hub]:
    hub = Hub(0)

    class Handler(RequestHandler):
        async def _all(self) -> None:
            body = json.loads(self.request.body) if self.request.body else None
            hub.asked.append((str(self.request.method), self.request.path, self.request.headers.get("Authorization", ""), body))
            if hub.answer is not None:
                hub.answer(self)

        get = post = _all

    sockets = bind_sockets(0, "127.0.0.1")
    hub.port = sockets[0].getsockname()[1]
    server = HTTPServer(Application([(".*", Handler)]))
    server.add_sockets(sockets)
    try:
        yield hub
    finally:
        server.stop()
        await server.close_all_connections()
