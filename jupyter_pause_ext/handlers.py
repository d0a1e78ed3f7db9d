"""Routes of the Hub alone: signed JSON, no cookie and no token counts.

``prepare``, ``frozen``, ``thaw``, ``restored``, ``identity``, ``activity``. These handlers do not derive from Jupyter's own, so
nothing asks the Hub who is calling; the signature is the whole authentication.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jupyter_server.auth.decorator import allow_unauthenticated
from tornado.web import HTTPError, stream_request_body

from .connections import Closing
from .messages import MAX_BODY, FrozenRequest, Json, PrepareRequest, Refusal, parse_object, parse_pause_id
from .signing import SIGNATURE_HEADER, BadSignature

if TYPE_CHECKING:
    from .extension import PauseExtension

VERBS = ("prepare", "frozen", "thaw", "restored", "identity", "activity")


def send_json_error(handler: Any, status: int, exception: BaseException | None) -> None:
    """Answer an error as every route here does: a reason code and a sentence."""
    if isinstance(exception, Refusal):
        status = exception.status
        body = exception.body()
        for name, value in exception.headers.items():
            handler.set_header(name, value)
    else:
        sentences = {
            403: ("not_allowed", "You are not allowed to do this."),
            404: ("not_found", "There is nothing at this address."),
            405: ("method_not_allowed", "This address does not take that kind of request."),
        }
        bad = ("bad_request", "This request is not understood.") if status < 500 else ("internal_error", "This server made an error.")
        reason, message = sentences.get(status, bad)
        body = {"reason": reason, "message": message}
    handler.set_status(status)
    handler.set_header("Content-Type", "application/json")
    handler.finish(json.dumps(body))


@stream_request_body
class GuestHandler(Closing):
    """One verb of the Hub; ``answer`` does the work."""

    def initialize(self, ext: PauseExtension, verb: str) -> None:
        """Called by tornado with the route's arguments."""
        self.ext = ext
        self.verb = verb
        self.chunks: list[bytes] = []

    def check_xsrf_cookie(self) -> None:
        """No cookie counts here."""

    def prepare(self) -> None:
        """Refuse before a byte of a large body is read."""
        length = self.request.headers.get("Content-Length")
        if length is None and "Transfer-Encoding" in self.request.headers:
            raise Refusal(411, "length_required", "The request must say how long it is.")
        if length is not None and (not length.isdigit() or int(length) > MAX_BODY):
            raise Refusal(413, "too_large", f"The body of the request is larger than {MAX_BODY} bytes.")

    def data_received(self, chunk: bytes) -> None:
        """Called by tornado with parts of the body."""
        self.chunks.append(chunk)

    @allow_unauthenticated
    async def post(self) -> None:
        """Check the signature, do the verb, sign the answer."""
        if self.ext.verifier is None:
            raise Refusal(404, "unavailable", "This server does not belong to a hub that can pause it.")
        body = b"".join(self.chunks)
        try:
            nonce = self.ext.verifier.check("POST", self.request.path, self.request.headers, body)
        except BadSignature as error:
            self.ext.log.warning("pause: refused %s: %s", self.verb, error.reason)
            raise Refusal(403, "bad_signature", "This request is not from the hub.") from None
        status, headers = 200, {}
        try:
            answer = await self._answer(body)
        except Refusal as refusal:
            status, headers, answer = refusal.status, refusal.headers, refusal.body()
        payload = json.dumps(answer).encode()
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.set_header(SIGNATURE_HEADER, self.ext.verifier.sign_response(nonce, status, payload))
        for name, value in headers.items():
            self.set_header(name, value)
        if self.ext.lease.pause_id is not None:
            await self.finish_and_close(payload)
        else:
            self.finish(payload)

    async def _answer(self, body: bytes) -> dict[str, Json]:
        ext = self.ext
        if self.verb == "prepare":
            return await ext.prepare(PrepareRequest.parse(body, ext.clock()), getattr(self.request.connection, "stream", None))
        if self.verb == "frozen":
            return await ext.frozen(FrozenRequest.parse(body))
        if self.verb == "thaw":
            return ext.thaw(parse_pause_id(body))
        if self.verb == "restored":
            return await ext.restored(parse_pause_id(body))
        parse_object(body)
        return ext.identity() if self.verb == "identity" else ext.activity()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """JSON, like everything here."""
        send_json_error(self, status_code, kwargs.get("exc_info", (None, None))[1])

    def log_exception(self, typ: Any, value: BaseException | None, tb: Any) -> None:
        """A refusal is an answer, not an error of this server."""
        if not isinstance(value, (Refusal, HTTPError)):
            super().log_exception(typ, value, tb)
