"""Every name of JupyterHub that its documentation does not promise, feature-detected, for JupyterHub 5 and 6.

Read in jupyterhub 5.5.0 and 6.1.1; nothing else in the project reaches past the public spawner and handler API.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import jupyterhub
from jupyterhub import orm
from jupyterhub.handlers.base import BaseHandler
from tornado.httputil import HTTPHeaders, HTTPServerRequest

from ..lifecycle.model import Key

JUPYTERHUB_MAJOR = int(jupyterhub.__version__.split(".", maxsplit=1)[0])

try:  # new in JupyterHub 6
    from jupyterhub.spawner import SpawnException
except ImportError:  # JupyterHub 5: an HTTPError below 500 is what the Hub does not count as its own failure
    SpawnException = None


class Internals:
    """A running Hub, seen through its tornado settings."""

    def __init__(self, settings: Mapping[str, Any], log: logging.Logger) -> None:
        self.settings = settings
        self.log = log

    @property
    def db(self) -> Any:
        """The Hub's one database session."""
        return self.settings["db"]

    @property
    def cookie_secret(self) -> bytes:
        secret = self.settings["cookie_secret"]
        return secret if isinstance(secret, bytes) else str(secret).encode()

    @property
    def slow_stop_timeout(self) -> float:
        return float(self.settings.get("slow_stop_timeout", 10))

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
        orm_user = orm.User.find(self.db, key.user)
        return None if orm_user is None else orm_user.orm_spawners.get(key.server)

    def orm_spawners(self) -> Iterator[Any]:
        """All rows, of running and stopped servers alike."""
        return iter(self.db.query(orm.Spawner))

    def system_handler(self) -> BaseHandler:
        """A handler without a client, for what the Hub can only do from a handler (spawn and stop with its bookkeeping)."""
        request = HTTPServerRequest(
            method="POST",
            uri="/",
            headers=HTTPHeaders(),
            connection=SimpleNamespace(set_close_callback=lambda _callback: None, context=SimpleNamespace(remote_ip="", protocol="http")),  # type: ignore[arg-type]
        )
        application = SimpleNamespace(settings=self.settings, ui_methods={}, ui_modules={})
        handler = BaseHandler(application, request)  # type: ignore[arg-type]
        handler._jupyterhub_user = None
        return handler

    async def add_route(self, key: Key) -> None:
        """Route the server's address to it (again)."""
        spawner = self.spawner(key)
        if spawner is None or spawner.server is None:
            return
        await self.settings["proxy"].add_route(
            spawner.proxy_spec, spawner.server.host, {"user": key.user, "server_name": key.server}
        )

    async def delete_route(self, key: Key) -> None:
        user = self.user(key.user)
        if user is not None:
            await self.settings["proxy"].delete_user(user, key.server)

    async def spawn(self, key: Key) -> None:
        """The Hub's own start, with its saved options, returning when it is under way (or failed)."""
        user = self.user(key.user)
        if user is None:
            return
        spawner = user.get_or_create_spawner(key.server, replace_failed=True) if hasattr(user, "get_or_create_spawner") else user.spawners[key.server]
        if spawner._spawn_future and spawner._spawn_future.done():
            spawner._spawn_future = None
        await self.system_handler().spawn_single_user(user, key.server)


def hub_failure_free_error(status: int, message: str) -> Exception:
    """An error for ``Spawner.start`` that reaches the user and does not move the Hub's failure counter."""
    from tornado import web

    error = web.HTTPError(status, "%s", message, reason=None)
    error.jupyterhub_message = message  # type: ignore[attr-defined]
    return error
