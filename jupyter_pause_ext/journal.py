"""Output that running cells make while their browser is away.

Stock Jupyter Server gives the output back only to the same browser session; after a page reload it is lost, and a page that
is reloaded does not attach to a cell that was started by the old one at all. So the output of each cell is recorded from
its start, per kernel, by a listener of its own (one more subscriber of the kernel's iopub, which never holds the kernel
up: its queue drops instead of waiting), and kept when the session that asked for it was away at any moment until its end.
The labextension reads it and completes the cell.

Bounded: bytes per cell and in total, cells per kernel. What does not fit is cut, and said so.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .messages import Json

CELL_BYTES = 1024 * 1024
TOTAL_BYTES = 16 * 1024 * 1024
CELLS = 200
"""Cells kept per kernel."""
SETTLE_SECONDS = 5.0
"""A cell that ended this shortly before its session went away may not have been delivered."""
MAX_ID = 200
"""Characters of an id that is recorded."""


@dataclass
class Cell:
    """One execution of a cell."""

    kernel_id: str
    msg_id: str
    cell_id: str
    session: str
    outputs: list[dict[str, Json]] = field(default_factory=list)
    displays: dict[str, list[int]] = field(default_factory=dict)
    """Display id -> indices of outputs."""
    execution_count: int | None = None
    started: float = 0.0
    ended: float | None = None
    missed: bool = False
    truncated: bool = False
    clear_next: bool = False
    size: int = 0
    cursor: int = 0

    def view(self) -> dict[str, Json]:
        """As the tab gets it."""
        return {
            "cell_id": self.cell_id,
            "msg_id": self.msg_id,
            "outputs": self.outputs,
            "done": self.ended is not None,
            "execution_count": self.execution_count,
            "truncated": self.truncated,
            "started": self.started,
        }


class Journal:
    """Cells of all kernels, oldest first."""

    def __init__(
        self,
        kernel_lives: Callable[[str], bool],
        clock: Callable[[], float] = time.time,
        cell_bytes: int = CELL_BYTES,
        total_bytes: int = TOTAL_BYTES,
    ) -> None:
        self._kernel_lives = kernel_lives
        self._clock = clock
        self._cell_bytes = cell_bytes
        self._total_bytes = total_bytes
        self._cells: OrderedDict[str, Cell] = OrderedDict()
        self._size = 0
        self._cursor = 0
        self._connected: dict[tuple[str, str], int] = {}
        self._listeners: dict[str, Any] = {}
        self._heard: set[str] = set()

    # ------------------------------------------------------------ told by websockets

    def connected(self, kernel_id: str, session: str, listener: Callable[[], Any]) -> None:
        """A session opened a websocket; ``listener()`` makes the kernel's stream of iopub where there is none yet."""
        self._sweep()
        key = (kernel_id, session)
        self._connected[key] = self._connected.get(key, 0) + 1
        if kernel_id not in self._listeners:
            stream = listener()
            stream.on_recv(lambda parts: self.heard(kernel_id, parts))
            self._listeners[kernel_id] = stream

    def listens(self, kernel_id: str) -> bool:
        """Whether the kernel has been heard: only then is the subscription known to be in place."""
        return kernel_id in self._heard

    def disconnected(self, kernel_id: str, session: str) -> None:
        """A session's websocket closed: what it asked for and has not surely seen is kept."""
        key = (kernel_id, session)
        left = self._connected.get(key, 0) - 1
        if left > 0:
            self._connected[key] = left
            return
        self._connected.pop(key, None)
        now = self._clock()
        for cell in self._cells.values():
            settled = cell.ended is not None and not 0 <= now - cell.ended <= SETTLE_SECONDS
            if (cell.kernel_id, cell.session) == key and not settled and not cell.missed:
                cell.missed = True
                self._touch(cell)
        self._sweep()

    def asked(self, kernel_id: str, session: str, msg_id: str, cell_id: str) -> None:
        """A session sent an execute request for a cell."""
        self._sweep()
        for old in [cell for cell in self._cells.values() if (cell.kernel_id, cell.cell_id) == (kernel_id, cell_id)]:
            self._drop(old)
        mine = [cell for cell in self._cells.values() if cell.kernel_id == kernel_id]
        if len(mine) >= CELLS:
            self._drop(mine[0])
        cell = Cell(kernel_id, msg_id[:MAX_ID], cell_id[:MAX_ID], session, started=self._clock())
        cell.missed = (kernel_id, session) not in self._connected
        self._cells[cell.msg_id] = cell
        self._touch(cell)

    # ------------------------------------------------------------ told by kernels

    def heard(self, kernel_id: str, parts: list[bytes]) -> None:
        """One message of a kernel's iopub, as zmq gives it (topics, delimiter, signature, header, parent, metadata, content)."""
        self._heard.add(kernel_id)
        try:
            start = parts.index(b"<IDS|MSG>") + 2
            header, parent = json.loads(parts[start]), json.loads(parts[start + 1])
            kind, parent_id = header["msg_type"], parent.get("msg_id")
            if kind == "status" and not parent_id:
                if json.loads(parts[start + 3]).get("execution_state") in {"starting", "restarting"}:
                    self._abandon(kernel_id)
                return
            cell = self._cells.get(parent_id)
            if kind == "update_display_data":
                self._update(kernel_id, json.loads(parts[start + 3]))
            elif cell is not None and cell.kernel_id == kernel_id:
                self._take(cell, kind, parts[start + 3])
        except (ValueError, IndexError, KeyError, TypeError, AttributeError):
            return  # user code may publish anything on this socket; what is not a message is not output

    def _take(self, cell: Cell, kind: str, content_bytes: bytes) -> None:
        if kind == "status":
            if json.loads(content_bytes)["execution_state"] == "idle":
                self._end(cell)
        elif kind == "execute_input":
            count = json.loads(content_bytes).get("execution_count")
            cell.execution_count = count if isinstance(count, int) else None
        elif kind == "clear_output":
            if json.loads(content_bytes).get("wait"):
                cell.clear_next = True
            else:
                self._clear(cell)
        elif kind in {"stream", "display_data", "execute_result", "error"}:
            if cell.clear_next:
                self._clear(cell)
            if cell.truncated or cell.size + len(content_bytes) > self._cell_bytes:
                cell.truncated = True
            else:
                self._add(cell, kind, json.loads(content_bytes), len(content_bytes))
        else:
            return
        self._touch(cell)

    def _add(self, cell: Cell, kind: str, content: dict[str, Json], size: int) -> None:
        last = cell.outputs[-1] if cell.outputs else None
        if kind == "stream":
            name, text = str(content["name"]), str(content["text"])
            if last is not None and last["output_type"] == "stream" and last["name"] == name:
                last["text"] += text
            else:
                cell.outputs.append({"output_type": "stream", "name": name, "text": text})
        elif kind == "error":
            cell.outputs.append({"output_type": "error", **{key: content[key] for key in ("ename", "evalue", "traceback")}})
        else:
            output: dict[str, Json] = {"output_type": kind, "data": content["data"], "metadata": content.get("metadata", {})}
            if kind == "execute_result":
                output["execution_count"] = content.get("execution_count")
            display_id = (content.get("transient") or {}).get("display_id")
            if isinstance(display_id, str):
                cell.displays.setdefault(display_id, []).append(len(cell.outputs))
            cell.outputs.append(output)
        cell.size += size
        self._size += size
        self._fit()

    def _update(self, kernel_id: str, content: dict[str, Json]) -> None:
        """A display of any cell of that kernel gets other data."""
        display_id = content["transient"]["display_id"]
        size = len(json.dumps(content["data"]))
        for cell in [cell for cell in self._cells.values() if cell.kernel_id == kernel_id and display_id in cell.displays]:
            if cell.size + size > self._cell_bytes:
                cell.truncated = True
            else:
                for index in cell.displays[display_id]:
                    old = len(json.dumps(cell.outputs[index]["data"]))
                    cell.outputs[index] |= {"data": content["data"], "metadata": content.get("metadata", {})}
                    cell.size += size - old
                    self._size += size - old
            self._touch(cell)
        self._fit()

    # ------------------------------------------------------------ asked by the tab

    def read(self, kernel_id: str, since: int) -> dict[str, Json]:
        """Cells of that kernel that were not surely delivered and changed after the cursor."""
        self._sweep()
        cells = [cell for cell in self._cells.values() if cell.kernel_id == kernel_id and cell.missed and cell.cursor > since]
        return {"kernel_id": kernel_id, "cells": [cell.view() for cell in cells], "next": self._cursor}

    # ------------------------------------------------------------ inside

    def _touch(self, cell: Cell) -> None:
        self._cursor += 1
        cell.cursor = self._cursor

    def _end(self, cell: Cell) -> None:
        cell.ended = self._clock()
        if (cell.kernel_id, cell.session) not in self._connected:
            cell.missed = True

    def _abandon(self, kernel_id: str) -> None:
        """The kernel started anew: what ran will not go on."""
        for cell in self._cells.values():
            if cell.kernel_id == kernel_id and cell.ended is None:
                self._end(cell)
                self._touch(cell)

    def _clear(self, cell: Cell) -> None:
        self._size -= cell.size
        cell.size = 0
        cell.outputs, cell.displays = [], {}
        cell.clear_next = cell.truncated = False

    def _fit(self) -> None:
        """Keep the total: ended cells go first, then running ones keep what they have and take no more."""
        for cell in [cell for cell in self._cells.values() if cell.ended is not None]:
            if self._size <= self._total_bytes:
                return
            self._drop(cell)
        for cell in self._cells.values():
            if self._size <= self._total_bytes:
                return
            self._clear(cell)
            cell.truncated = True
            self._touch(cell)

    def _drop(self, cell: Cell) -> None:
        if self._cells.pop(cell.msg_id, None) is not None:
            self._size -= cell.size

    def _sweep(self) -> None:
        """Forget kernels that ended, and cells that were delivered."""
        now = self._clock()
        for kernel_id in [kernel_id for kernel_id in self._listeners if not self._kernel_lives(kernel_id)]:
            _close_stream(self._listeners.pop(kernel_id))
            self._heard.discard(kernel_id)
        for cell in list(self._cells.values()):
            delivered = cell.ended is not None and not cell.missed and not 0 <= now - cell.ended <= SETTLE_SECONDS
            if delivered or not self._kernel_lives(cell.kernel_id):
                self._drop(cell)

    def close(self) -> None:
        """Close the listeners."""
        for stream in self._listeners.values():
            _close_stream(stream)
        self._listeners.clear()


def _close_stream(stream: Any) -> None:
    if not stream.closed():
        stream.on_recv(None)
        stream.close(linger=0)
