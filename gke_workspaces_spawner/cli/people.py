"""The tokens and links of the demo's people: made at each start, worthless after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from ..hubclient import HubClient
from .hub_config import COMMAND
from .settings import Settings
from .tickets import Tickets

ADMIN = "admin"
PAGE = 200
"""As many users in an answer as the Hub allows by default."""


def welcome(settings: Settings) -> dict[str, Any]:
    """What the ready file says; tokens of an earlier start are revoked first."""
    revoke(settings)
    client = HubClient(settings.hub_api_url, settings.command_token)
    tickets = Tickets(settings.tickets)
    return {
        "url": settings.url,
        "hub_api_url": settings.hub_api_url,
        "admin_token": _new_token(client, ADMIN),
        "users": {
            name: {"token": _new_token(client, name), "login_url": settings.login_url(tickets.issue(name))} for name in settings.users
        },
    }


def revoke(settings: Settings) -> None:
    """Make every token and link worthless that the demo gave out."""
    Tickets(settings.tickets).clear()
    client = HubClient(settings.hub_api_url, settings.command_token)
    for name in [user["name"] for user in users(client)]:  # a start that was killed may have had others than this one
        for token in client.call("GET", f"/users/{quote(name, safe='')}/tokens")["api_tokens"]:
            if token["note"] == COMMAND:
                client.call("DELETE", f"/users/{quote(name, safe='')}/tokens/{token['id']}")


def users(client: HubClient) -> Iterator[dict[str, Any]]:
    """The Hub's models of all its users, page by page."""
    offset = 0
    while page := client.call("GET", f"/users?offset={offset}&limit={PAGE}"):
        yield from page
        offset += len(page)


def _new_token(client: HubClient, name: str) -> str:
    return str(client.call("POST", f"/users/{quote(name, safe='')}/tokens", {"note": COMMAND})["token"])
