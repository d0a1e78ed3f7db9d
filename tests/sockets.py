"""Websockets of tests, ended for certain."""

from __future__ import annotations

from tornado.websocket import WebSocketClientConnection


def end(socket: WebSocketClientConnection) -> None:
    """Close it at once: the other side may be frozen and never answer the farewell, and what is left open is a warning for a later test."""
    protocol = socket.protocol
    socket.close()
    if protocol is not None:
        protocol.stream.close()
