"""Routes of the JupyterLab tab: for the authenticated user, with XSRF for cookies, JSON only, no CORS.

The tab asks its own server, which asks the Hub with the server's token: no hub token and no hub cookie is needed in a page.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado.web import HTTPError, authenticated

from .handlers import send_json_error
from .hub import HubClient
from .messages import MAX_BODY, PREFLIGHT_FIELDS, WORKSPACE_FIELDS, Json, Refusal, parse_object, safe_cancel, safe_follow_url, whitelist

if TYPE_CHECKING:
    from .extension import PauseExtension

_KERNEL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_CURSOR = re.compile(r"[0-9]{1,15}", re.ASCII)


class TabHandler(APIHandler):
    """What the tab's routes share."""

    auth_resource = "jupyter_pause"
    _track_activity = False

    def initialize(self, ext: PauseExtension) -> None:
        """Called by tornado with the route's arguments."""
        self.ext = ext

    def set_cors_headers(self) -> None:
        """None: no other origin has business here, whatever the server allows elsewhere."""

    def options(self, *_args: Any, **_kwargs: Any) -> None:
        """No preflight of another origin succeeds."""
        raise HTTPError(405)

    options.__dict__["__allow_unauthenticated"] = True

    def json_body(self) -> dict[str, Json]:
        """The request's JSON object. Raises :class:`Refusal`."""
        kind = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(415, "not_json", "The request must be of type application/json.")
        if len(self.request.body) > MAX_BODY:
            raise Refusal(413, "too_large", f"The body of the request is larger than {MAX_BODY} bytes.")
        return parse_object(self.request.body)

    def hub(self) -> HubClient:
        """The client of the Hub. Raises :class:`Refusal` without a hub that can pause."""
        if self.ext.hub is None or not self.ext.available:
            raise Refusal(409, "unavailable", "This server does not belong to a hub that can pause it.")
        return self.ext.hub

    def answer(self, value: Json, status: int = 200) -> None:
        """Send JSON that no cache keeps."""
        self.set_status(status)
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(value))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """JSON with a reason code and a sentence."""
        send_json_error(self, status_code, kwargs.get("exc_info", (None, None))[1])

    def log_exception(self, typ: Any, value: BaseException | None, tb: Any) -> None:
        """A refusal is an answer, not an error of this server."""
        if not isinstance(value, Refusal):
            super().log_exception(typ, value, tb)

    def whitelisted(self, answer: dict[str, Json], fields: frozenset[str]) -> dict[str, Json]:
        """The Hub's answer as the tab may see it; an address that does not lie on the Hub is dropped."""
        found = whitelist(answer, fields)
        if "follow_url" in found:
            found["follow_url"] = safe_follow_url(found["follow_url"], self.ext.place.hub_host if self.ext.place else "")
        if "cancel" in found:
            found["cancel"] = safe_cancel(answer["cancel"], self.ext.place.hub_host if self.ext.place else "")
        return found


class StatusHandler(TabHandler):
    """What this server is and whether it can be paused; asks nobody."""

    @authenticated
    @authorized
    async def get(self) -> None:
        """Answer :meth:`PauseExtension.status`."""
        self.answer(self.ext.status())


class PreflightHandler(TabHandler):
    """What a pause would save, cost and lose, before anything is touched."""

    @authenticated
    @authorized
    async def post(self) -> None:
        """Send this server's facts to the Hub, pass on its answer."""
        self.json_body()
        facts = await self.ext.facts()
        _, answer = await self.hub().call("POST", "/preflight", {"facts": facts})
        self.answer(self.whitelisted(answer, PREFLIGHT_FIELDS) | {"facts": facts})


class PauseHandler(TabHandler):
    """Ask the Hub to pause this server."""

    @authenticated
    @authorized
    async def post(self) -> None:
        """The Hub's 202 and its record; the tab then follows ``follow_url`` on the Hub, since this server is going to sleep."""
        self.json_body()
        status, answer = await self.hub().call("POST", "", {"facts": await self.ext.facts()})
        found = self.whitelisted(answer, WORKSPACE_FIELDS)
        if not found.get("follow_url") and self.ext.place is not None:
            found["follow_url"] = self.ext.place.follow_url
        self.answer(found, status)


class ReceiptHandler(TabHandler):
    """The workspace as the Hub sees it, with the receipt of the last resume."""

    @authenticated
    @authorized
    async def get(self) -> None:
        """Pass on the Hub's answer."""
        _, answer = await self.hub().call("GET")
        found = self.whitelisted(answer, WORKSPACE_FIELDS)
        if isinstance(found.get("receipt"), dict):
            self.ext.receipt = found["receipt"]
        self.answer(found)


class JournalHandler(TabHandler):
    """Output that cells made while nobody was connected."""

    @authenticated
    @authorized
    async def get(self) -> None:
        """Cells of one kernel that changed after the cursor ``since``."""
        kernel_id = self.get_query_argument("kernel_id", "")
        since = self.get_query_argument("since", "") or "0"
        if not _KERNEL_ID.fullmatch(kernel_id):
            raise Refusal(400, "bad_kernel_id", "kernel_id must name a kernel.")
        if not _CURSOR.fullmatch(since):
            raise Refusal(400, "bad_since", "since must be the value of next of an earlier answer, or 0.")
        if kernel_id not in self.ext.serverapp.kernel_manager:
            raise Refusal(404, "kernel_unknown", "This kernel is not running on this server.")
        self.answer(self.ext.journal.read(kernel_id, int(since)))


TAB_ROUTES: dict[str, type[TabHandler]] = {
    "status": StatusHandler,
    "preflight": PreflightHandler,
    "pause": PauseHandler,
    "receipt": ReceiptHandler,
    "journal": JournalHandler,
}
