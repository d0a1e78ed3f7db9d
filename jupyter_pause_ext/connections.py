"""Client connections: known, let finish, closed; and the gate that refuses new requests while a pause is prepared.

Open client connections at a checkpoint break the second restore under asyncio's epoll loop (25 cycles against 1, measured),
and a proxy in front logs an uncaught reset for each. So ``prepare`` lets requests under way finish for a moment (a notebook
that is being saved), tells websockets that the service restarts (close code 1012) and closes every connection.

Connections are learned from the requests that pass the router, which sees websockets of all extensions alike; connections
that never sent a request are taken from tornado's server, where it has them.
"""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Callable
from typing import Any

from jupyter_server.auth.decorator import allow_unauthenticated
from tornado.httputil import HTTPServerRequest
from tornado.iostream import IOStream, StreamClosedError
from tornado.routing import Matcher
from tornado.web import RequestHandler

WEBSOCKET_GOING = b"\x88\x02\x03\xf4"
"""A server's close frame with code 1012, service restart (RFC 6455, 5.5.1)."""
FLUSH_SECONDS = 1.0
"""How long written bytes may take to reach a client before its connection is cut."""


class Connections:
    """All connections of clients to this server."""

    def __init__(self, http_server: Callable[[], Any]) -> None:
        """``http_server`` gives tornado's server, or ``None`` before it exists."""
        self._http_server = http_server
        self._streams: weakref.WeakKeyDictionary[IOStream, tuple[weakref.ref[Any], bool]] = weakref.WeakKeyDictionary()

    def saw(self, request: HTTPServerRequest) -> None:
        """Remember the connection of a request."""
        connection: Any = request.connection
        stream = getattr(connection, "stream", None)
        if isinstance(stream, IOStream):
            upgrade = request.headers.get("Upgrade", "").lower() == "websocket"
            self._streams[stream] = (weakref.ref(connection), upgrade)

    def open(self) -> list[IOStream]:
        """Streams that are open now."""
        streams = {id(stream): stream for stream in list(self._streams) if not stream.closed()}
        for server_connection in list(getattr(self._http_server(), "_connections", ())):
            stream = getattr(server_connection, "stream", None)
            if isinstance(stream, IOStream) and not stream.closed():
                streams[id(stream)] = stream
        return list(streams.values())

    async def finish_requests(self, own: IOStream | None, seconds: float) -> int:
        """Wait until requests under way have been answered; how many were not in time."""
        waiting = [future for stream in self.open() if stream is not own and (future := self._answered(stream)) is not None]
        if not waiting:
            return 0
        _, late = await asyncio.wait(waiting, timeout=seconds)
        return len(late)

    async def close(self, own: IOStream | None) -> int:
        """Close every connection but ``own`` (the one that asks); how many were closed."""
        streams = [stream for stream in self.open() if stream is not own]
        await asyncio.gather(*(self._close(stream) for stream in streams))
        for _ in range(3):  # tornado hands a closed stream to its handler (on_close) through the loop
            await asyncio.sleep(0)
        return len(streams)

    def _answered(self, stream: IOStream) -> asyncio.Future[None] | None:
        """The future of the answer that is being made on a stream; ``None`` when there is none (idle, or a websocket)."""
        connection = self._streams.get(stream, (lambda: None, False))[0]()
        future = getattr(connection, "_finish_future", None)
        return future if isinstance(future, asyncio.Future) and not future.done() else None

    def _is_websocket(self, stream: IOStream) -> bool:
        reference, upgrade = self._streams.get(stream, (None, False))
        connection = reference() if reference is not None else None
        return upgrade and connection is not None and getattr(connection, "stream", stream) is None

    async def _close(self, stream: IOStream) -> None:
        try:
            await asyncio.wait_for(stream.write(WEBSOCKET_GOING if self._is_websocket(stream) else b""), FLUSH_SECONDS)
        except (StreamClosedError, asyncio.TimeoutError):
            pass
        stream.close()


class Gate(Matcher):
    """First rule of the router: sees every request, and matches those to refuse."""

    def __init__(self, connections: Connections, closed: Callable[[], bool], passes: Callable[[str], bool]) -> None:
        """``closed()``: a pause is prepared; ``passes(path)``: the Hub's own verbs."""
        self._connections = connections
        self._closed = closed
        self._passes = passes

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """Parameters for :class:`GateHandler`, or ``None`` to let the request go on."""
        self._connections.saw(request)
        return {} if self._closed() and not self._passes(request.path) else None


class Closing(RequestHandler):
    """A handler whose connection can be closed once the answer is out."""

    async def finish_and_close(self, body: bytes) -> None:
        """Send the answer, then close the connection."""
        connection: Any = self.request.connection
        stream = getattr(connection, "stream", None)
        self.set_header("Connection", "close")
        try:
            await self.finish(body)
        except StreamClosedError:
            return
        if stream is not None:
            stream.close()


class GateHandler(Closing):
    """Answers everything with 503 while a pause is prepared, without asking who it is."""

    def check_xsrf_cookie(self) -> None:
        """Nothing is done here that a foreign page could want."""

    def _log(self) -> None:
        """Not an error of this server: tornado lets this be overridden, and would log each with all headers."""

    async def _refuse(self, *_args: str, **_kwargs: str) -> None:
        remaining = self.settings["jupyter_pause"].lease.remaining
        self.set_status(503)
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.set_header("Retry-After", str(max(1, min(5, round(remaining)))))
        body = {"reason": "pause_under_way", "message": "This server is being paused. It goes on, or is saved, in a moment."}
        await self.finish_and_close(json.dumps(body).encode())

    get = head = post = put = patch = delete = options = allow_unauthenticated(_refuse)
