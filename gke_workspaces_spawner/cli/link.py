"""``gke-workspaces login``: another link for a demo that runs."""

from __future__ import annotations

from pathlib import Path

from . import settings
from .say import Stopped
from .tickets import Tickets


def new_link(state: Path, name: str | None) -> str:
    """A link that logs that user in, once, within ten minutes. Raises Stopped when there is no such demo or user."""
    chosen = settings.load(state)
    if chosen is None or settings.free(chosen.port):
        raise Stopped(f"No demo with the state folder {state} runs now: start it, or name its folder with --state.")
    user = name or chosen.users[0]
    if user not in (*chosen.users, "admin"):
        raise Stopped(f"The demo has no user {user!r}; it has {', '.join((*chosen.users, 'admin'))}.")
    return chosen.login_url(Tickets(chosen.tickets).issue(user))
