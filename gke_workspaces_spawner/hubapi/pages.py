"""Pages for people: all servers, one server, what a tab polls, the files of a paused home, and our static files.

They show what :class:`Services` says and decide nothing. Two rules are kept here all the same, because they are about who looks:

* A requester without ``access:servers`` for a server (an admin with ``admin:servers``, say) gets its *outline*: phase, sizes, times; no
  name of a file or a kernel.
* Pages are for navigation. A script that fetches one needs the Hub's XSRF token, which a page of another user's server on the same
  origin does not have. The polled JSON is the exception: a JupyterLab tab has no Hub token, and a frozen server cannot answer it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Awaitable, Mapping, Sequence
from functools import cache
from importlib.resources import files as package_files
from typing import Any, Protocol

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.utils import maybe_future
from tornado import web
from tornado.iostream import StreamClosedError

from . import files, urls

View = dict[str, Any]
"""A workspace as REST gives it: JSON, whitelisted."""

SETTING = "gke_workspaces"
"""Key of the Tornado settings that holds the :class:`Services`."""

OUTLINE = (
    *("user", "server", "phase", "since", "age", "revision", "intent", "progress", "remaining", "actions"),
    *("sentence", "reason", "pause", "snapshot", "snapshots", "hub"),
)
"""Parts of a view without a name from inside the server (sentences are the product's own, from ``reasons.toml``)."""


class Services(Protocol):
    """What the pages need of the rest of the product. Each may be a coroutine."""

    def view(self, user_name: str, server_name: str, handler: BaseHandler) -> View | Awaitable[View | None] | None:
        """The view of one server for this requester; ``None`` when there is no such user or server."""

    def views_for(self, handler: BaseHandler) -> Sequence[View] | Awaitable[Sequence[View]]:
        """Every server that the requester may see, his own first."""

    def homes(self, user_name: str, server_name: str, handler: BaseHandler) -> files.Home | Awaitable[files.Home | None] | None:
        """The home of a paused server; ``None`` when its files cannot be looked at now."""


@cache
def static_version() -> str:
    """Short hash of all static files: changes when one of them does."""
    digest = hashlib.sha256()
    for item in sorted(package_files(__package__).joinpath("static").iterdir(), key=lambda item: item.name):
        digest.update(item.name.encode() + b"\0" + item.read_bytes())
    return digest.hexdigest()[:12]


def template_path() -> str:
    """Folder to append to ``JupyterHub.template_paths``; last, so that a deployment's own templates win."""
    return os.path.join(os.path.dirname(__file__), "templates")


def template_vars() -> dict[str, str]:
    """To merge into ``JupyterHub.template_vars``: what our parts of JupyterHub's own pages need."""
    return {"gke_workspaces_version": static_version()}


def outline(view: Mapping[str, Any]) -> View:
    """What somebody may know of a server that he may not enter."""
    short: View = {name: view[name] for name in OUTLINE if name in view}
    short["actions"] = [action for action in view.get("actions", ()) if action != "open"]
    short["urls"] = {name: url for name, url in view.get("urls", {}).items() if name in {"page", "follow"}}
    return short


def fit(handler: BaseHandler, view: View) -> View:
    """The view as far as the requester of ``handler`` may see it."""
    if handler.has_scope(f"access:servers!server={view['user']}/{view['server']}"):
        return view
    return outline(view)


class PageHandler(BaseHandler):  # type: ignore[misc]  # JupyterHub is untyped
    """Base of our HTML pages: GET by navigation, or with the XSRF token."""

    _xsrf_safe_methods = {"HEAD", "OPTIONS"}

    @property
    def gke(self) -> Services:
        services: Services = self.settings[SETTING]
        return services

    def check_xsrf_cookie(self) -> None:
        """Nobody is logged in: nothing to protect yet, the login page comes next."""
        if self._jupyterhub_user is not None:
            super().check_xsrf_cookie()

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    async def page(self, template: str, **values: object) -> None:
        """Render one of our templates and finish."""
        base = self.hub.base_url
        auth_state = await self.current_user.get_auth_state()
        self.finish(await self.render_template(template, **template_vars(), hub_base=base, gke_urls=urls, auth_state=auth_state, **values))


class WorkspacesHandler(PageHandler):
    """``/hub/workspaces``: every server of the user, and for admins those of others."""

    @web.authenticated
    async def get(self) -> None:
        views = [fit(self, view) for view in await maybe_future(self.gke.views_for(self))]
        await self.page("workspaces.html", views=views)


class WorkspaceHandler(PageHandler):
    """``/hub/workspaces/USER[/SERVER]``: one server; while it is paused, the Paused page."""

    @web.authenticated
    @needs_scope("access:servers", "read:servers", "admin:servers")
    async def get(self, user_name: str, server_name: str = "") -> None:
        view = await maybe_future(self.gke.view(user_name, server_name, self))
        if view is None:
            raise web.HTTPError(404, "There is no such server.")
        await self.page("workspace.html", view=fit(self, view))


class PolledHandler(BaseHandler):  # type: ignore[misc]
    """What open tabs poll. Never a redirect: a script can do nothing with a login page, so it is told 403 in JSON."""

    def _record_activity(self, obj: object, timestamp: object = None) -> bool:
        """A tab that polls is not a person who works."""
        return False

    def get_content_type(self) -> str:
        return "application/json"

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        message = error.log_message if isinstance(error, web.HTTPError) and error.log_message else self._reason
        reasons = {403: "not_allowed" if self.current_user else "not_logged_in", 404: "no_such_server"}
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.write(json.dumps({"status": status_code, "message": message, "reason": reasons.get(status_code, "bad_request")}))

    def need_user(self) -> None:
        if self.current_user is None:
            raise web.HTTPError(403, "You are not logged in.")


class FollowHandler(PolledHandler):
    """Every server that the requester may see: the list, the home page."""

    async def get(self) -> None:
        self.need_user()
        services: Services = self.settings[SETTING]
        views = await maybe_future(services.views_for(self))
        self.finish(json.dumps({"workspaces": [fit(self, view) for view in views]}))


class FollowOneHandler(PolledHandler):
    """One server's view, for its tabs."""

    async def get(self, user_name: str, server_name: str = "") -> None:
        self.need_user()
        await self._get(user_name=user_name, server_name=server_name)

    @needs_scope("access:servers")
    async def _get(self, user_name: str, server_name: str) -> None:
        services: Services = self.settings[SETTING]
        view = await maybe_future(services.view(user_name, server_name, self))
        if view is None:
            raise web.HTTPError(404, "There is no such server.")
        self.finish(json.dumps(view))


class FilesHandler(PageHandler):
    """``/hub/workspaces/files/USER/server[s/SERVER]/PATH``: a folder's page, ``?preview=1`` of a text, or a download."""

    @web.authenticated
    @needs_scope("access:servers")
    async def get(self, user_name: str, server_name: str = "", path: str | None = None) -> None:
        try:
            names = files.split_path(path or "")
        except files.BadPath:
            raise web.HTTPError(400, "That is not a path below the home.") from None
        home = await maybe_future(self.gke.homes(user_name, server_name, self))
        if home is None:
            raise web.HTTPError(409, "Files can be looked at here while the server is paused.")
        what = {"user_name": user_name, "server_name": server_name, "names": names}
        try:
            found = await maybe_future(home.listing(names))
        except NotADirectoryError:
            found = None
        except OSError as error:
            raise self.absent(error) from None
        if found is not None:
            await self.folder(found, **what)
            return
        try:
            fd = await maybe_future(home.open_file(names))
        except OSError as error:
            raise self.absent(error) from None
        try:
            size = files.regular_size(fd)
            if self.get_argument("preview", ""):
                text, whole = await files.preview(fd, size)
                await self.page("workspace_file.html", text=text, whole=whole, size=size, shown=files.shown, **what)
            else:
                await self.download(fd, size, names[-1])
        except OSError as error:
            raise self.absent(error) from None
        finally:
            os.close(fd)

    def absent(self, error: OSError) -> web.HTTPError:
        """One answer for whatever is not an ordinary file or folder: it says nothing about the machine."""
        self.log.info("files of a paused home: %s", error.strerror or error)
        return web.HTTPError(404, "There is no such file or folder, or it is not an ordinary one.")

    async def folder(self, found: files.Listing, **what: Any) -> None:
        await self.page(
            "workspace_files.html",
            entries=files.in_order(found.entries),
            more=found.more,
            shown=files.shown,
            addressable=files.addressable,
            **what,
        )

    async def download(self, fd: int, size: int, name: str) -> None:
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Content-Disposition", files.attachment(name))
        self.set_header("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")
        self.set_header("Content-Length", str(size))
        try:
            async for chunk in files.read(fd, size):
                self.write(chunk)
                await self.flush()
        except StreamClosedError:
            return
        self.finish()


class StaticHandler(web.StaticFileHandler):
    """Our scripts and styles, at ``/hub/workspaces/static/VERSION/NAME``; plain names only, cached for good under today's version."""

    TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}

    async def get(self, path: str, include_body: bool = True, version: str = "") -> None:
        self._today = version == static_version()
        if os.path.splitext(path)[1] not in self.TYPES:
            raise web.HTTPError(404)
        await super().get(path, include_body)

    async def head(self, path: str, version: str = "") -> None:
        await self.get(path, include_body=False, version=version)

    def get_content_type(self) -> str:
        return self.TYPES[os.path.splitext(self.absolute_path or "")[1]]

    def get_cache_time(self, path: str, modified: object, mime_type: str) -> int:
        return 0

    def set_extra_headers(self, path: str) -> None:
        self.set_header("Cache-Control", "public, max-age=31536000, immutable" if self._today else "no-cache")
        self.set_header("X-Content-Type-Options", "nosniff")


_USER = r"(?P<user_name>[^/]+)"
_SERVER = r"(?P<server_name>[^/]+)"
_PATH = r"(?:/(?P<path>.*))?"


def handlers() -> list[tuple[Any, ...]]:
    """For ``JupyterHub.extra_handlers``. The order matters: the fixed words come before the names."""
    static = {"path": os.path.join(os.path.dirname(__file__), "static")}
    return [
        (r"/workspaces/?", WorkspacesHandler),
        (r"/workspaces/static/(?P<version>[0-9a-z]+)/(?P<path>[A-Za-z0-9_.-]+)", StaticHandler, static),
        (r"/workspaces/follow/?", FollowHandler),
        (rf"/workspaces/follow/{_USER}/?", FollowOneHandler),
        (rf"/workspaces/follow/{_USER}/{_SERVER}/?", FollowOneHandler),
        (rf"/workspaces/files/{_USER}/server{_PATH}", FilesHandler),
        (rf"/workspaces/files/{_USER}/servers/{_SERVER}{_PATH}", FilesHandler),
        (rf"/workspaces/{_USER}/?", WorkspaceHandler),
        (rf"/workspaces/{_USER}/{_SERVER}/?", WorkspaceHandler),
    ]
