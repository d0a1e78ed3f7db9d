"""Work that nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

_tasks: set[asyncio.Task[None]] = set()
"""The event loop itself does not keep them."""


def in_background(work: Coroutine[Any, Any, None]) -> None:
    """Do it, kept until it has ended."""
    task = asyncio.ensure_future(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
