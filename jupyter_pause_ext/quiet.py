"""The server itself while its user's processes stand: it writes nothing to the home and does not end.

* Writes through the contents manager that are under way are waited for, whoever asked (a request whose connection was cut
  goes on in the server); after that new ones are refused, also those of extensions that save on a timer.
* SIGTERM, SIGINT and SIGHUP are ignored: the clean-up of a server that ends deletes its kernels' files and kills the
  kernels (tried: files within 1 s, a frozen kernel after 6). They are forgotten, not kept for later: a copy that is
  restored must not end because somebody ended the original.
* Kernels that end meanwhile are not started anew.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from tornado.web import HTTPError

from . import kernels as kernel_access

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

WRITING = (
    "save",
    "delete_file",
    "rename_file",
    "copy",
    "create_checkpoint",
    "restore_checkpoint",
    "delete_checkpoint",
)
"""Methods of a contents manager that write by themselves; all others go through these."""
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Writes:
    """Writes through the contents manager: counted, and refused while ``closed``. For the event loop's thread."""

    def __init__(self, manager: Any) -> None:
        """Puts itself in front of the manager's methods (of this object, not of its class)."""
        self.closed = False
        self._open = 0
        self._none_open = asyncio.Event()
        self._none_open.set()
        for name in WRITING:
            method = getattr(manager, name, None)
            if callable(method):
                setattr(manager, name, self._guarded(method))

    async def finish(self, seconds: float) -> bool:
        """Wait until no write is open; the caller closes in the same turn of the loop. False when it takes longer."""
        try:
            await asyncio.wait_for(self._none_open.wait(), seconds)
        except asyncio.TimeoutError:
            return False
        return self._open == 0

    def _guarded(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if self.closed:
                raise HTTPError(503, "This server is being paused. It goes on, or is saved, in a moment.")
            self._begin()
            try:
                result = method(*args, **kwargs)
            except BaseException:
                self._end()
                raise
            if isawaitable(result):
                return self._finished(result)
            self._end()
            return result

        return guarded

    async def _finished(self, result: Awaitable[Any]) -> Any:
        try:
            return await result
        finally:
            self._end()

    def _begin(self) -> None:
        self._open += 1
        self._none_open.clear()

    def _end(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._none_open.set()


class Quiet:
    """Begins when it is made, ends with :meth:`end`; in the event loop's thread."""

    def __init__(self, serverapp: ServerApp, writes: Writes) -> None:
        self._serverapp = serverapp
        self._writes = writes
        writes.closed = True
        self._restarters = kernel_access.stop_restarters(serverapp)
        self._handlers: dict[signal.Signals, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            serverapp.log.warning("pause: the server does not run in its process's main thread; it cannot ignore signals")
            return
        for number in IGNORED:
            handler = signal.getsignal(number)
            if handler is not None:  # one that was not set by Python could not be set back
                self._handlers[number] = handler
                signal.signal(number, signal.SIG_IGN)

    def end(self) -> None:
        """As before; a second time it does nothing."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}
        kernel_access.start_restarters(self._restarters)
        self._restarters = []
        self._writes.closed = False
