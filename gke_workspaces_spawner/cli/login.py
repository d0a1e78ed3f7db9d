"""Login at the demo's Hub with a ticket (:mod:`.tickets`); for a Hub that only the loopback reaches."""

from __future__ import annotations

import html
from importlib.resources import files
from pathlib import Path
from typing import Any

from jupyterhub.auth import Authenticator
from jupyterhub.handlers.login import LoginHandler
from tornado import web
from traitlets import Unicode

from .tickets import Tickets

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"


class TicketLoginHandler(LoginHandler):  # type: ignore[misc]
    """The login page: a few lines of script read the ticket from the fragment and post it once."""

    @property
    def content_security_policy(self) -> str:
        """Nothing but our own two files."""
        return POLICY

    async def _render(self, login_error: str | None = None, username: str | None = None, **_: Any) -> str:
        page = files(__package__).joinpath("login.html").read_text(encoding="utf-8")
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        values = {
            "BASE": self.hub.base_url,
            "XSRF": self.xsrf_token.decode("ascii"),
            "NEXT": self.get_argument("next", ""),
            "SENTENCE": login_error or "",
            "COMMAND": self.authenticator.login_command,
        }
        for name, value in values.items():
            page = page.replace("{" + name + "}", html.escape(value))
        return page

    async def post(self) -> None:
        """Exactly one of several posts of a ticket gets a session."""
        user = await self.login_user({"ticket": self.get_body_argument("ticket", "")})
        if user is None:
            self.set_status(403)
            self.finish(await self._render("This link was used already, or it is older than ten minutes."))
            return
        self._jupyterhub_user = user
        self.redirect(self.get_next_url(user))


class TicketFileHandler(web.RequestHandler):
    """The login page's script and style."""

    def get(self, name: str) -> None:
        """Two files, known by name."""
        self.set_header("Content-Type", {"js": "text/javascript", "css": "text/css"}[name] + "; charset=utf-8")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.finish(files(__package__).joinpath(f"login.{name}").read_bytes())


class TicketAuthenticator(Authenticator):  # type: ignore[misc]
    """Whoever brings a ticket is the user that it was made for."""

    tickets_file = Unicode(help="SQLite file of the tickets, written by the demo command.").tag(config=True)

    login_command = Unicode(
        "gke-workspaces login NAME", help="The command that makes a link, as the login page shows it: one that works where it is pasted."
    ).tag(config=True)

    def get_handlers(self, app: Any) -> list[tuple[Any, ...]]:
        """Takes the place of the Hub's own login page."""
        return [(r"/login", TicketLoginHandler), (r"/ticket\.(js|css)", TicketFileHandler)]

    def normalize_username(self, username: str) -> str:
        """Names are taken as the command line gave them, upper case too."""
        return username

    async def authenticate(self, handler: Any, data: dict[str, str]) -> str | None:
        """Redeem the ticket."""
        return Tickets(Path(self.tickets_file)).take(data.get("ticket", ""))
