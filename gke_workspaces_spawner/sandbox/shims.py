"""Talking to shims: one that is being started, over a socket pair, and one that runs, over the socket in its room."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import CODES, SandboxError
from .room import SOCKET, Room
from .spec import Json

_PACKAGES = str(Path(__file__).resolve().parents[2])


def spawn(python: str, end: socket.socket) -> subprocess.Popen[bytes]:
    """An interpreter that runs a shim, with that socket for all it is told and says."""
    line = f"import sys; sys.path.insert(0, {_PACKAGES!r}); from gke_workspaces_spawner.sandbox.shim import main; main()"
    with end:
        return subprocess.Popen(
            [python, "-I", "-S", "-c", line],
            stdin=end.fileno(),
            stdout=end.fileno(),
            stderr=end.fileno(),
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
            cwd="/",
        )


async def exchange(end: socket.socket, text: str) -> str:
    """Say that and nothing more; everything that is said until the other end is closed."""
    reader, writer = await asyncio.open_unix_connection(sock=end, limit=1 << 24)
    try:
        writer.write(text.encode())
        writer.write_eof()
        with contextlib.suppress(ConnectionError):  # it ended before it had heard all: what it said tells why
            await writer.drain()
        return (await reader.read()).decode(errors="replace").strip()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def ask(room: Room, request: Mapping[str, Json]) -> Json:
    """What the shim of that room answers. Raises SandboxError, and OSError where there is no shim."""
    # Through a descriptor of the folder: the path of a unix socket holds 107 bytes.
    folder = os.open(room.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{SOCKET}", limit=1 << 24)
    finally:
        os.close(folder)
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        line = await reader.readline()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    if not line:
        raise ConnectionResetError("the shim hung up")
    return result_of(json.loads(line))


def result_of(answer: Mapping[str, Any]) -> Json:
    """The result in an answer. Raises the SandboxError that it tells of."""
    if "error" in answer:
        code = answer["error"]
        raise SandboxError(code if code in CODES else "shim_unreachable", answer["detail"])
    return answer["result"]
