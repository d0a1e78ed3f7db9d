"""The Hub as this server calls it: with the server's own token, to the Hub's own API, and nowhere else.

The token is read from the live ``HubOAuth`` (it may be exchanged while the server runs) and never leaves for another
address: redirects are not followed and the address is the one that JupyterHub gave this server at its start. Answers are
bounded in size and time and strictly read; none of it is used as a path or an address here.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.simple_httpclient import HTTPStreamClosedError, HTTPTimeoutError

from .messages import MAX_BODY, Json, Refusal, parse_object

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

TIMEOUT = 20.0
"""Seconds for a whole call, answer included."""


@dataclass(frozen=True)
class Place:
    """Where this server lives on its Hub, as JupyterHub told it by environment variables."""

    user: str
    server: str
    hub_prefix: str
    hub_host: str

    @property
    def tail(self) -> str:
        """This server's pause resource below the Hub's API; names escaped as JupyterHub does (``quote(name, safe="@~")``)."""
        user = quote(self.user, safe="@~")
        server = f"servers/{quote(self.server, safe='@~')}" if self.server else "server"
        return f"users/{user}/{server}/pause"

    @property
    def follow_url(self) -> str:
        """Public address where the tab follows a pause, since a frozen server cannot answer; the Hub's own answer comes first."""
        names = "/".join(quote(name, safe="@~") for name in (self.user, self.server) if name)
        return f"{self.hub_host}{self.hub_prefix}workspaces/follow/{names}"


def find_place() -> Place | None:
    """``None`` without a Hub."""
    user = os.environ.get("JUPYTERHUB_USER", "")
    if not user or not os.environ.get("JUPYTERHUB_API_URL"):
        return None
    base = os.environ.get("JUPYTERHUB_BASE_URL") or "/"
    return Place(user, os.environ.get("JUPYTERHUB_SERVER_NAME", ""), base.rstrip("/") + "/hub/", os.environ.get("JUPYTERHUB_HOST", ""))


def hub_auths(serverapp: ServerApp) -> list[Any]:
    """The live ``HubOAuth`` objects; JupyterHub's single-user extension has two of them."""
    holders = [serverapp.identity_provider, serverapp, *_extension_apps(serverapp)]
    found: list[Any] = [getattr(holder, "hub_auth", None) for holder in holders]
    found.append(serverapp.web_app.settings.get("hub_auth"))
    return list({id(auth): auth for auth in found if auth is not None}.values())


def single_user_app(serverapp: ServerApp) -> Any:
    """The object that reports activity to the Hub (``notify_activity``), or ``None``."""
    return next((app for app in (*_extension_apps(serverapp), serverapp) if hasattr(app, "notify_activity")), None)


def _extension_apps(serverapp: ServerApp) -> list[Any]:
    """JupyterHub's single-user server is one of the extensions (JupyterHub 5 and 6) or the server itself (older)."""
    apps: Mapping[str, Iterable[Any]] = getattr(serverapp.extension_manager, "extension_apps", {})
    return [app for group in apps.values() for app in group if hasattr(app, "hub_auth")]


class HubClient:
    """Calls this server's pause resource on its Hub."""

    def __init__(self, serverapp: ServerApp, place: Place) -> None:
        self._serverapp = serverapp
        self._place = place

    @property
    def api_url(self) -> str:
        """Address of the Hub's API, without a slash at its end."""
        auth = next(iter(hub_auths(self._serverapp)), None)
        return str(getattr(auth, "api_url", "") or os.environ.get("JUPYTERHUB_API_URL", "")).rstrip("/")

    async def call(self, method: str, action: str = "", body: Mapping[str, Json] | None = None) -> tuple[int, dict[str, Json]]:
        """Status and JSON of a 2xx answer. Raises :class:`Refusal`: the Hub's own 4xx, or 502, 503, 504 when it does not answer."""
        auths = hub_auths(self._serverapp)
        token = str(getattr(auths[0], "api_token", "") if auths else "") or os.environ.get("JUPYTERHUB_API_TOKEN", "")
        url = self.api_url
        if not token or urlsplit(url).scheme not in {"http", "https"}:
            raise Refusal(503, "hub_unreachable", "This server has no way to talk to its hub.")
        request = HTTPRequest(
            f"{url}/{self._place.tail}{action}",
            method=method,
            headers={"Authorization": f"token {token}", "Accept": "application/json", "Content-Type": "application/json"},
            body=json.dumps(body or {}) if method != "GET" else None,
            follow_redirects=False,
            connect_timeout=TIMEOUT,
            request_timeout=TIMEOUT,
            decompress_response=False,
            ssl_options=_ssl_context(auths[0]) if auths and url.startswith("https:") else None,
        )
        client = AsyncHTTPClient(force_instance=True, max_body_size=MAX_BODY)
        try:
            response = await client.fetch(request, raise_error=False)
        except HTTPTimeoutError:
            raise Refusal(504, "hub_unreachable", "The hub did not answer in time. Try again in a moment.") from None
        except (OSError, HTTPStreamClosedError, HTTPClientError, ValueError) as error:
            self._serverapp.log.warning("pause: call to the hub failed: %s", type(error).__name__)
            raise Refusal(502, "hub_unreachable", "The hub cannot be reached. Try again in a moment.") from None
        finally:
            client.close()
        return self._judge(response.code, response.body)

    def _judge(self, status: int, body: bytes) -> tuple[int, dict[str, Json]]:
        try:
            answer = parse_object(body)
        except Refusal:
            answer = None
        if answer is not None and 200 <= status < 300:
            return status, answer
        if answer is not None and 400 <= status < 500:
            reason, message = answer.get("reason"), answer.get("message")
            if isinstance(reason, str) and isinstance(message, str) and reason:
                raise Refusal(status, reason[:100], message[:2000])
            if status in {401, 403}:
                raise Refusal(403, "hub_refused", "The hub does not allow this server to be paused from here.")
            if status == 404:
                raise Refusal(409, "hub_cannot_pause", "This hub does not know how to pause this server.")
        self._serverapp.log.warning("pause: the hub answered %d with %d bytes that are of no use", status, len(body))
        raise Refusal(502, "hub_error", "The hub gave an answer that this server does not understand.")


def _ssl_context(auth: Any) -> ssl.SSLContext | None:
    """For a Hub with ``internal_ssl``: the certificates that JupyterHub gave this server."""
    keyfile, certfile, authority = (getattr(auth, name, "") for name in ("keyfile", "certfile", "client_ca"))
    if not certfile:
        return None
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=authority or None)
    context.load_cert_chain(certfile, keyfile or None)
    return context
