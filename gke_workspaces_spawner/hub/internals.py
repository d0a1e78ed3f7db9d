"""Every name of JupyterHub that its documentation does not promise, feature-detected, for JupyterHub 5 and 6.

Read in jupyterhub 5.5.0 and 6.1.1; nothing else in the project reaches past the public spawner and handler API.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from datetime import timezone
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

from jupyterhub import orm
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.apihandlers.users import UserServerAPIHandler
from jupyterhub.handlers.base import BaseHandler, PrefixRedirectHandler, UserUrlHandler
from sqlalchemy import inspect
from tornado import web
from tornado.httputil import HTTPHeaders, HTTPServerRequest

from ..lifecycle.model import Key

REASON_HEADER = "X-Gke-Workspaces-Reason"
"""Carries our reason code in answers that the Hub's own handlers write, whose JSON has no place for it."""

SEE_OTHER = 303
"""Status with which a browser is sent to another page."""

try:
    from jupyterhub.spawner import SpawnException
except ImportError:
    SpawnException = None
COUNTS_REFUSALS = SpawnException is None
"""JupyterHub 5 counts every start that ends in an error, also one that was refused, and restarts itself after several."""


class Internals:
    """A running Hub, seen through its tornado settings."""

    def __init__(self, settings: MutableMapping[str, Any], log: logging.Logger) -> None:
        self.settings = settings
        self.log = log
        self._rows: dict[Key, Any] = {}

    @property
    def db(self) -> Any:
        """The Hub's one database session."""
        return self.settings["db"]

    @property
    def cookie_secret(self) -> bytes:
        secret = self.settings["cookie_secret"]
        return secret if isinstance(secret, bytes) else str(secret).encode()

    def user(self, name: str) -> Any | None:
        """The Hub's user object, or None."""
        orm_user = orm.User.find(self.db, name)
        return None if orm_user is None else self.settings["users"][orm_user]

    def spawner(self, key: Key) -> Any | None:
        """The spawner object that the Hub holds now, made from its row when there is none; None without a row."""
        user = self.user(key.user)
        if user is None or (key.server not in user.orm_spawners and key.server not in user.spawners):
            return None
        return user.spawners[key.server]

    def orm_spawner(self, key: Key) -> Any | None:
        """The server's row, or None. One query per row: later calls only look whether the row still bears that name."""
        row = self._rows.get(key)
        if row is not None and _lives(row) and (row.user.name, row.name) == (key.user, key.server):
            return row
        self._rows.pop(key, None)
        orm_user = orm.User.find(self.db, key.user)
        row = None if orm_user is None else orm_user.orm_spawners.get(key.server)
        if row is not None:
            self._rows[key] = row
        return row

    def last_activity(self, key: Key) -> float | None:
        """When the Hub last heard of work in that server, seconds since the epoch."""
        row = self.orm_spawner(key)
        seen = row.last_activity if row is not None else None
        return None if seen is None else float(seen.replace(tzinfo=timezone.utc).timestamp())

    def orm_spawners(self) -> Iterator[Any]:
        """All rows, of running and stopped servers alike."""
        return iter(self.db.query(orm.Spawner))

    def system_handler(self) -> BaseHandler:
        """A handler without a client, for what the Hub can only do from a handler (spawn and stop with its bookkeeping).

        Its settings are a copy of its own, in which the Hub counts failures of starts that no client asked for: none of them is to end it.
        """
        request = HTTPServerRequest(
            method="POST",
            uri="/",
            headers=HTTPHeaders(),
            connection=_NoConnection(),  # type: ignore[arg-type]
        )
        settings = {**self.settings, "failure_count": float("-inf")}
        application = SimpleNamespace(settings=settings, ui_methods={}, ui_modules={})
        handler = BaseHandler(application, request)
        handler._jupyterhub_user = None
        return handler

    @staticmethod
    def is_ours(handler: Any) -> bool:
        """Whether it is a :meth:`system_handler`."""
        return handler is not None and isinstance(handler.request.connection, _NoConnection)

    @staticmethod
    def is_of_a_page(handler: Any) -> bool:
        """Whether a browser waits for its answer, to show it."""
        return handler is not None and not isinstance(handler, APIHandler) and not Internals.is_ours(handler)

    async def add_route(self, key: Key) -> bool:
        """Route the server's address to it (again); False when the Hub knows of no such server that runs."""
        spawner = self.spawner(key)
        if spawner is None or spawner.server is None:
            return False
        await self.settings["proxy"].add_route(spawner.proxy_spec, spawner.server.host, {"user": key.user, "server_name": key.server})
        return True

    async def delete_route(self, key: Key) -> None:
        user = self.user(key.user)
        if user is not None:
            await self.settings["proxy"].delete_user(user, key.server)

    async def spawn(self, key: Key) -> None:
        """The Hub's own start, with its saved options, returning when it is under way (or failed)."""
        user = self.user(key.user)
        if user is None:
            return
        self.startable(key)
        await self.system_handler().spawn_single_user(user, key.server)

    def startable(self, key: Key) -> Any:
        """The spawner object, a new one in place of one whose last start failed (which the Hub keeps to tell of it)."""
        user = self.user(key.user)
        assert user is not None
        user.get_spawner(key.server, replace_failed=True)
        spawner = user.spawners[key.server]
        if spawner._spawn_future is not None and spawner._spawn_future.done():
            spawner._spawn_future = None
        return spawner

    def set_oauth_client(self, spawner: Any, token: str, allowed_scopes: list[str], description: str) -> None:
        """Make that token the secret of the server's OAuth client, and give it these scopes and words."""
        client = spawner.orm_spawner.oauth_client
        self.settings["oauth_provider"].add_client(
            client.identifier, token, client.redirect_uri, allowed_scopes=allowed_scopes, description=description
        )
        self.db.commit()

    def set_address(self, spawner: Any, url: str) -> None:
        """Where the server listens, in its row: the Hub itself writes it after ``start`` only, and may be killed before.

        The record's next phase is committed with it: until then a Hub that is killed does not want it.
        """
        parts = urlsplit(url)
        spawner.server.proto, spawner.server.ip, spawner.server.port = parts.scheme, parts.hostname, parts.port

    @staticmethod
    async def apply_options(spawner: Any, options: Mapping[str, Any]) -> None:
        """What the Hub does with options before a start."""
        await spawner._run_apply_user_options(options)

    @staticmethod
    def refusal_of_a_start(spawner: Any, status: int, message: str, code: str, see: str | None = None) -> web.HTTPError:
        """An error for ``Spawner.start``: reaches the caller, and does not move the Hub's counter of failures.

        The counter lies in the settings of the handler that starts the server, which are a copy of the Hub's. With ``see`` (a URL) a
        browser that waits for the answer is sent there instead.
        """
        handler = getattr(spawner, "handler", None)
        if COUNTS_REFUSALS and handler is not None:
            handler.settings["failure_count"] = handler.settings.get("failure_count", 0) - 1  # the Hub adds one
        sent = see is not None and Internals.is_of_a_page(handler)
        error = refusal(SEE_OTHER if sent else status, message, code)
        if sent:
            error.headers["Location"] = see  # type: ignore[attr-defined]
        error.gke_workspaces_page = see  # type: ignore[attr-defined]  # for our part of the Hub's page that tells of the start's end
        return error


def refusal(status: int, message: str, code: str) -> web.HTTPError:
    """An error that the Hub's own handlers pass on with its status, its sentence, and our reason code in a header."""
    error = web.HTTPError(status, "%s", message)
    error.jupyterhub_message = message  # type: ignore[attr-defined]
    error.headers = {REASON_HEADER: code}  # type: ignore[attr-defined]
    return error


MessageFor = Callable[[Any, str, str], Mapping[str, Any] | None]
"""What to tell who asks (a handler) for a server (user, server); None for the Hub's own words."""


def answer_programs(message_for: MessageFor) -> None:
    """Let ``message_for`` say what programs are told that call a server which is not there.

    The Hub redirects such calls to its own prefix and answers there "no longer running, restart it", in two handlers that come before
    any that an extension can add. Where those methods are not there any more, the Hub's own words stand.
    """
    stock_fail = getattr(UserUrlHandler, "_fail_api_request", None)
    if stock_fail is not None and not hasattr(stock_fail, "ours"):

        def fail(handler: Any, user_name: str = "", server_name: str = "") -> None:
            if not _told(handler, message_for(handler, user_name, server_name)):
                stock_fail(handler, user_name, server_name)

        fail.ours = True  # type: ignore[attr-defined]
        UserUrlHandler._fail_api_request = fail
    stock_get = getattr(PrefixRedirectHandler, "get", None)
    if stock_get is not None and not hasattr(stock_get, "ours"):

        def get(handler: Any) -> Any:
            return None if _told(handler, _message(handler, message_for)) else stock_get(handler)

        def other(handler: Any) -> None:
            if not _told(handler, _message(handler, message_for)):
                raise web.HTTPError(405)

        get.ours = True  # type: ignore[attr-defined]
        PrefixRedirectHandler.get = get
        PrefixRedirectHandler.post = PrefixRedirectHandler.put = PrefixRedirectHandler.patch = PrefixRedirectHandler.delete = other
        PrefixRedirectHandler._accept_token_auth = True
        PrefixRedirectHandler._record_activity = UserUrlHandler._record_activity


AfterStop = Callable[[Any, str, str], None]
"""Told of a stop call that the Hub has answered: the handler, user, server."""


def after_stops(tell: AfterStop) -> None:
    """Let ``tell`` hear of every stop call (``DELETE .../server``) that the Hub let through.

    Of a server that neither runs nor is being started or stopped the Hub asks no spawner what a stop of it would be.
    """
    stock = getattr(UserServerAPIHandler, "delete", None)
    if stock is None or hasattr(stock, "ours"):
        return

    @functools.wraps(stock)
    async def delete(handler: Any, user_name: str, server_name: str = "") -> None:
        await stock(handler, user_name, server_name)
        tell(handler, user_name, server_name)

    delete.ours = True  # type: ignore[attr-defined]
    UserServerAPIHandler.delete = delete


def _message(handler: Any, message_for: MessageFor) -> Mapping[str, Any] | None:
    """For ``/user/NAME[/SERVER]/.../api/...`` outside of the Hub's prefix."""
    base: str = handler.base_url
    if not handler.request.path.startswith(base):
        return None
    word, *rest = (unquote(part) for part in handler.request.path[len(base) :].split("/"))
    if word != "user" or "api" not in rest[1:]:
        return None
    user = handler.find_user(rest[0])
    if user is None:
        return None
    return message_for(handler, user.name, rest[1] if rest[1] in user.orm_spawners else "")


def _told(handler: Any, message: Mapping[str, Any] | None) -> bool:
    if message is None:
        return False
    handler.set_status(503 if handler.app.use_legacy_stopped_server_status_code else 424)
    handler.set_header("Content-Type", "application/json")
    handler.finish(json.dumps({"status": handler.get_status(), **message}))
    return True


class _NoConnection:
    """What a handler asks of the connection of its request."""

    context = SimpleNamespace(remote_ip="", protocol="http")

    def set_close_callback(self, callback: Any) -> None:
        """There is nobody to close it."""


def _lives(row: Any) -> bool:
    """Whether a row of a server and that of its user are still in the database, as far as this session knows."""
    return bool(inspect(row).persistent and row.user is not None and inspect(row.user).persistent)
