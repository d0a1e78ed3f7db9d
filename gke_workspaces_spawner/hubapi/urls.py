"""Addresses of our pages below the Hub's prefix: the one place that knows them.

A user may be called ``follow``, ``files`` or ``static``, words that these addresses use themselves. Such a name's first letter is
percent-encoded; browsers and Tornado keep it so until the route is chosen, hence no name can reach another route.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

RESERVED = frozenset({"follow", "files", "static"})
"""First path segments below ``/hub/workspaces/`` that are routes."""


def segment(name: str) -> str:
    """A user's or server's name as one path segment, the way JupyterHub writes it (``@`` and ``~`` stay)."""
    return quote(name, safe="@~")


def _user(name: str) -> str:
    return f"%{ord(name[0]):02x}{name[1:]}" if name in RESERVED else segment(name)


def workspaces(hub_base: str) -> str:
    """The list of all servers; ``hub_base`` is the Hub's prefix with a slash at its end (``/hub/``)."""
    return f"{hub_base}workspaces"


def page(hub_base: str, user: str, server: str = "") -> str:
    """The state page of one server (``""``: the default server)."""
    return f"{hub_base}workspaces/{_user(user)}" + (f"/{segment(server)}" if server else "")


def follow(hub_base: str, user: str | None = None, server: str = "") -> str:
    """The JSON that a tab polls: of one server, or without ``user`` of every server that the caller may see."""
    if user is None:
        return f"{hub_base}workspaces/follow"
    return f"{hub_base}workspaces/follow/{segment(user)}" + (f"/{segment(server)}" if server else "")


def files(hub_base: str, user: str, server: str = "", path: Sequence[str] = ()) -> str:
    """The home of a paused server, or one folder or file in it; spelled like the REST (``server``, ``servers/NAME``)."""
    which = f"servers/{segment(server)}" if server else "server"
    return "/".join((f"{hub_base}workspaces/files/{segment(user)}/{which}", *(quote(part, safe="") for part in path)))


def cancel(hub_base: str, user: str, server: str, pause_id: str) -> str:
    """Where a tab hands in its ticket for cancelling that pause."""
    which = f"servers/{segment(server)}" if server else "server"
    return f"{hub_base}api/users/{segment(user)}/{which}/pause/{pause_id}/cancel-ticket"


def static(hub_base: str, version: str, name: str) -> str:
    """A static file; the version in the path makes the imports between our modules agree as well."""
    return f"{hub_base}workspaces/static/{version}/{name}"
