"""What a restored server sets right, before anybody is let in.

A restore is a jump in time and place: wall-clock timers would call everybody idle, connections to the outside are dead,
answers of the Hub that are cached may be revoked, and random generators repeat themselves in a second copy. Each repair
stands alone: one that fails or does not end is logged with its traceback and reported, and the others are done.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from .hub import hub_auths, single_user_app
from .kernels import bump_activity
from .messages import Json
from .reseed import reseed_openssl

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

EACH_SECONDS = 5.0
"""How long one repair may take: the Hub, and whoever waits for the server, waits for all of them."""
REPORT_SECONDS = 60.0
"""How long the report of activity to the Hub may be tried."""


class Repairer:
    """The repairs; running them twice does no harm."""

    def __init__(self, serverapp: ServerApp) -> None:
        self._serverapp = serverapp
        self._report: asyncio.Task[None] | None = None

    async def repair(self) -> dict[str, Json]:
        """Do all of it; what was done, by name (``None`` for what failed)."""
        repaired: dict[str, Json] = {}
        steps: dict[str, Callable[[], Json | Awaitable[Json]]] = {
            "activity": lambda: bump_activity(self._serverapp),
            "openssl": reseed_openssl,
            "hub_caches": self._clear_hub_caches,
            "hub_connections": self._close_hub_connections,
            "cloud_credentials": drop_google_credentials,
        }
        for name, step in steps.items():
            try:
                result = step()
                repaired[name] = await asyncio.wait_for(result, EACH_SECONDS) if isinstance(result, Awaitable) else result
            except Exception:  # one repair must not keep the server from coming back; it is told and logged
                self._serverapp.log.exception("pause: repair %r after a restore failed", name)
                repaired[name] = None
        repaired["activity_report"] = self._start_report()
        return repaired

    def _clear_hub_caches(self) -> int:
        """Answers of the Hub about tokens may have been revoked meanwhile."""
        auths = hub_auths(self._serverapp)
        for auth in auths:
            cache = getattr(auth, "cache", None)
            if cache is not None:
                cache.clear()
        return len(auths)

    async def _close_hub_connections(self) -> int:
        """JupyterHub 6 keeps aiohttp connections to the Hub; they are dead, and its token check does not try twice."""
        module: Any = sys.modules.get("jupyterhub.httpclient")
        if module is None:
            return 0
        closed = 0
        here = asyncio.get_running_loop()
        for loop, client in _hub_http_clients(module.JupyterHubHTTPClient):
            if not getattr(client, "_has_session", False):
                continue
            if loop is here or loop is None or not loop.is_running():
                await _close_session(client._session, loop is here)
            else:
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(client._session.close(), loop))
            closed += 1
        return closed

    def _start_report(self) -> bool:
        """Tell the Hub that this server is active, in the background: its culler counts wall time too."""
        app = single_user_app(self._serverapp)
        if app is None:
            return False
        if self._report is not None:
            self._report.cancel()
        self._report = asyncio.ensure_future(self._notify(app))
        return True

    async def _notify(self, app: Any) -> None:
        try:
            await asyncio.wait_for(app.notify_activity(), REPORT_SECONDS)
        except Exception:  # JupyterHub's own loop reports again within minutes; its errors are many and not typed
            self._serverapp.log.warning("pause: the hub could not be told of activity after a restore", exc_info=True)

    def close(self) -> None:
        """Give up a report that is still being tried."""
        if self._report is not None:
            self._report.cancel()


def _hub_http_clients(cls: Any) -> Iterator[tuple[asyncio.AbstractEventLoop | None, Any]]:
    """Every client of JupyterHub 6 with its loop; names that it does not promise, so each may be absent."""
    if cls.initialized():
        client = cls.instance()
        yield getattr(client, "_loop", None), client
    yield from list(getattr(cls, "_loop_instances", {}).items())


async def _close_session(session: Any, same_loop: bool) -> None:
    """Close an aiohttp session; one of a loop that stands still can only have its sockets dropped."""
    if same_loop:
        await session.close()
    else:
        connector = session.connector
        if connector is not None:
            connector._close()


def drop_google_credentials() -> int:
    """Make google-auth credentials in this process fetch a new token at the next use; how many there were."""
    module: Any = sys.modules.get("google.auth.credentials")
    if module is None:
        return 0
    dropped = 0
    for thing in gc.get_objects():
        if issubclass(type(thing), module.Credentials):
            thing.token = None
            thing.expiry = None
            dropped += 1
    return dropped
