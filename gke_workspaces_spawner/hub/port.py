"""JupyterHub as a step of the lifecycle needs it: route, stop and start without a handler."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from jupyterhub import scopes
from tornado import web

from ..lifecycle.model import Json, Key, SnapshotManifest
from ..lifecycle.phases import RESUME_UNDER_WAY
from ..lifecycle.ports import Clock
from ..lifecycle.reasons import Conflict, Refused, TryLater
from .credentials import Credentials
from .internals import Internals

START_SCOPES = ("servers", "start:servers")
READY_POLL = 0.02
"""Seconds between two looks at what the Hub has no event for; they cost microseconds and last for as long as its own check."""
TOO_MANY = 429
SETTLE_SECONDS = 30.0


class JupyterHubPort:
    """Implements :class:`~..lifecycle.ports.HubPort`."""

    def __init__(self, internals: Internals, credentials: Credentials, clock: Clock, log: logging.Logger) -> None:
        self._internals = internals
        self._credentials = credentials
        self._clock = clock
        self._log = log
        self._unrouted: set[Key] = set()
        """Servers whose route this life of the Hub has taken away; to take it away again would be an error in its log."""
        self._starting: dict[Key, asyncio.Event] = {}
        """Set while the spawner's ``start`` of that server waits for what the drive of its resume does next."""

    async def unroute(self, key: Key) -> None:
        if key in self._unrouted:
            return
        try:
            await self._internals.delete_route(key)
            self._unrouted.add(key)
        except Exception as error:  # noqa: BLE001 - the proxy's errors have no common class; a proxy that is away has no route either
            self._log.warning("Could not remove the route of %s: %r", key, error)

    async def route(self, key: Key) -> None:
        self._unrouted.discard(key)
        try:
            known = await self._internals.add_route(key)
        except Exception as error:  # noqa: BLE001 - the Hub's own check_routes adds it as soon as the proxy is back
            self._log.warning("Could not add the route of %s: %r", key, error)
            return
        if not known:
            raise Conflict("not_running")

    async def stop(self, key: Key) -> None:
        """The Hub's own stop (its bookkeeping of server row, hooks and state), without a handler."""
        user = self._internals.user(key.user)
        spawner = self._internals.spawner(key)
        if user is None or spawner is None:
            return
        await self._settled(key)
        await self.unroute(key)
        self._unrouted.discard(key)
        await user.stop(key.server)

    async def suspend_tokens(self, key: Key) -> None:
        self._credentials.suspend(key)

    async def plain_launch(self, key: Key) -> Mapping[str, Json]:
        """Rights are asked for by a resume alone: a pause takes nothing that its owner would have to be granted."""
        spawner = self._spawner(key)
        if spawner.workspace.phase in RESUME_UNDER_WAY:
            self.check_rights(key)
        return await spawner.workspace_plain_launch()  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def inside_start(self, key: Key) -> Iterator[None]:
        """Around what the spawner's ``start`` does for a resume: in here, and nowhere else, its restore may begin."""
        inside = self._starting.setdefault(key, asyncio.Event())
        inside.set()
        try:
            yield
        finally:
            inside.clear()

    def starting(self, key: Key) -> bool:
        return key in self._starting and self._starting[key].is_set()

    async def begin(self, key: Key) -> None:
        """Whoever gives this call up does not end the Hub's start, which then finds that there is nothing to go on with."""
        start = asyncio.ensure_future(self.start(key, False))
        start.add_done_callback(lambda done: done.cancelled() or done.exception())
        inside = asyncio.ensure_future(self._starting.setdefault(key, asyncio.Event()).wait())
        try:
            await asyncio.wait({start, inside}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            inside.cancel()
        if self.starting(key):
            return
        if start.cancelled():
            raise Refused("resume_stopped")
        try:
            start.result()
        except Conflict as error:  # another call for that server is under way, and ends by itself
            raise TryLater(error.code, error.detail) from error
        raise TryLater("busy", "the Hub's start has ended meanwhile")

    async def launch(self, key: Key, spec: Mapping[str, Json], manifest: SnapshotManifest) -> None:
        self._credentials.awaken(key)
        spawner = self._spawner(key)
        await spawner.workspace_launch(spec)
        url = spawner.workspace_url()
        if url is not None:
            self._internals.set_address(spawner, url)

    async def routed(self, key: Key, timeout: float) -> bool:
        """Whether the Hub came to call the server ready; False as soon as its spawn ended in another way."""
        end = self._clock.time() + timeout
        while self._clock.time() < end:
            spawner = self._internals.spawner(key)
            if spawner is None:
                return False
            if spawner.ready:
                return True
            if not spawner.active:
                return False
            await self._clock.sleep(READY_POLL)
        return False

    async def start(self, key: Key, fresh: bool) -> None:
        """Our own ``start`` records why it refused; what the Hub refuses before it (a limit, a right) is said here."""
        spawner = self._internals.spawner(key)
        if spawner is None:
            raise Refused("unknown_server")
        pending = await self._settled(key)
        if pending:
            raise Conflict("busy", f"pending {pending}")
        try:
            await self._internals.spawn(key)
        except web.HTTPError as error:
            if error.status_code == TOO_MANY:
                raise TryLater("too_many", error.log_message or "") from error
            recorded = getattr(error.__cause__, "code", None)
            if recorded == "waiting_for_room":
                return
            raise Refused(recorded or "not_allowed", error.log_message or "") from error
        except Exception as error:  # a hook of the deployment, a timeout of the Hub: of any class
            pause = spawner.workspace.pause
            raise Refused((pause.reason if pause else None) or "start_failed", repr(error)) from error

    async def _settled(self, key: Key) -> str | None:
        """Wait until the Hub has finished a start that is over for us (it still looks at the server and adds its route).

        A stop or a start in the middle of that would be undone, or refused. Returns what is still pending after the wait.
        """
        end = self._clock.time() + SETTLE_SECONDS
        while True:
            spawner = self._internals.spawner(key)
            pending = spawner.pending if spawner is not None else None
            if pending != "spawn" or self._clock.time() >= end:
                return pending
            await self._clock.sleep(READY_POLL)

    def _spawner(self, key: Key) -> Any:
        spawner = self._internals.spawner(key)
        if spawner is None:
            raise Refused("unknown_server")
        return spawner

    def check_rights(self, key: Key) -> None:
        """A resume is today's right: the owner may have been blocked, or have lost the right to start servers."""
        user = self._internals.user(key.user)
        authenticator = self._internals.settings.get("authenticator")
        if user is None:
            raise Refused("unknown_server")
        if authenticator is not None and key.user in authenticator.blocked_users:
            raise Refused("not_allowed")
        name = f"{key.user}/{key.server}"
        wanted = {scope for base in START_SCOPES for scope in (base, f"{base}!user={key.user}", f"{base}!server={name}")}
        groups = {f"{base}!group={group.name}" for base in START_SCOPES for group in user.groups}
        if not (wanted | groups) & set(scopes.get_scopes_for(user.orm_user)):
            raise Refused("not_allowed")
