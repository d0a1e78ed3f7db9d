"""Client of the server extension inside a server. Addresses are reused and user code can answer on the port, so:

* the server's token is never sent; requests are signed with a secret of that lineage, and so must be the answers;
* no redirects, 64 KiB at most, one deadline for the whole exchange, JSON of a known shape or nothing.

What it says are claims. They can lower the lifecycle's verdict, never raise it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from ..lifecycle.model import Identity, Json, KernelProcess, Key
from ..lifecycle.ports import Absent, Clock, Prepared, Restored
from ..lifecycle.reasons import Refused

MAX_ANSWER = 64 * 1024
REQUEST_SECONDS = 10.0
MOST_KERNELS = 200
UNREACHABLE = "guest_unreachable"
NO_SUCH_ROUTE = (403, 404, 405)
"""What a server without the extension answers, unsigned: 403 is its XSRF check, which comes before "not found"."""
FREEZE_CODES = ("freeze_unavailable", "freeze_incomplete")
"""Refusals of ``prepare`` that a pause may go on after, where the admin allows it."""
NOT_OURS = "bad_signature"
"""Reason of the extension's unsigned refusal of a message that it does not take for the Hub's."""


def _is_the_extension(body: bytes) -> bool:
    """Whether an unsigned refusal is the extension's own, which did not take our signature (its clock, say): then it is not absent.

    Anybody can write that; it makes the call fail, where "absent" would let a pause go on with a weaker proof.
    """
    try:
        answer = json.loads(body)
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.get("reason") == NOT_OURS


def guest_secret(hub_key: bytes, lineage: str) -> str:
    """The secret that Hub and server share, hex: derived, so that it needs no place of its own."""
    return hmac.new(hub_key, f"gke-workspaces/guest/v1/{lineage}".encode(), hashlib.sha256).hexdigest()


def _signature(secret: str, *parts: str) -> str:
    return "v1=" + hmac.new(bytes.fromhex(secret), "\n".join(parts).encode(), hashlib.sha256).hexdigest()


def sign_request(secret: str, method: str, path: str, time: str, nonce: str, body: bytes) -> str:
    """Value of ``X-Pause-Signature`` of a request."""
    return _signature(secret, "request", method, path, time, nonce, hashlib.sha256(body).hexdigest())


def sign_response(secret: str, nonce: str, status: int, body: bytes) -> str:
    """Value of ``X-Pause-Signature`` of the answer to the request with that nonce."""
    return _signature(secret, "response", nonce, str(status), hashlib.sha256(body).hexdigest())


def parse_identity(data: Any) -> Identity:
    """Strictly; raises ``Refused`` on anything else."""
    try:
        kernels = tuple(
            KernelProcess(_text(k["kernel_id"]), int(k["pid"]), float(k["started"]), _text(k.get("name", "")))
            for k in data["kernels"][:MOST_KERNELS]
        )
        return Identity(_text(data["boot_id"]), int(data["server_pid"]), kernels)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused(UNREACHABLE, f"the server extension's identity has another shape: {error!r}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 256:
        raise ValueError("not a short text")
    return value


class HubGuest:
    """Implements :class:`~..lifecycle.ports.Guest` over HTTP."""

    def __init__(self, url_of: Callable[[Key], str | None], secret_of: Callable[[Key], str], clock: Clock, log: logging.Logger) -> None:
        self._url_of = url_of
        self._secret_of = secret_of
        self._clock = clock
        self._log = log
        self._http = SimpleAsyncHTTPClient(
            force_instance=True, max_body_size=MAX_ANSWER, max_header_size=16 * 1024, max_buffer_size=4 * MAX_ANSWER
        )

    async def prepare(self, key: Key, pause_id: str, deadline: float, frozen_for: float | None = None) -> Prepared | Absent:
        message = {"pause_id": pause_id, "deadline": deadline, "freeze": frozen_for is not None, "frozen_for": frozen_for or 0}
        answer = await self._call(key, "prepare", message, REQUEST_SECONDS)
        if answer is None:
            return Absent()
        facts = answer.get("facts")
        blockers = answer.get("blockers")
        return Prepared(
            parse_identity(answer.get("identity")),
            facts if isinstance(facts, dict) else {},
            tuple(b for b in blockers if isinstance(b, str))[:20] if isinstance(blockers, list) else (),
            frozen=frozen_for is not None and isinstance(answer.get("frozen"), dict),
        )

    async def frozen(self, key: Key, pause_id: str, seconds: float) -> bool:
        answer = await self._call(key, "frozen", {"pause_id": pause_id, "seconds": seconds}, REQUEST_SECONDS)
        return answer is not None and answer.get("frozen") is True

    async def thaw(self, key: Key, pause_id: str) -> None:
        await self._call(key, "thaw", {"pause_id": pause_id}, REQUEST_SECONDS)

    async def restored(self, key: Key, pause_id: str, deadline: float) -> Restored | Absent:
        """Asks until the restored process answers or the deadline passes."""
        while True:
            left = deadline - self._clock.time()
            try:
                answer = await self._call(key, "restored", {"pause_id": pause_id}, min(REQUEST_SECONDS, max(0.1, left)))
                break
            except Refused:
                if left <= 0:
                    raise
                await self._clock.sleep(min(0.02, max(0.0, left)))
        if answer is None:
            return Absent()
        said = answer.get("checkpoint_said")
        repaired = answer.get("repaired")
        return Restored(
            parse_identity(answer.get("identity")),
            said if said in ("restore", "resume", "error") else None,
            repaired if isinstance(repaired, dict) else {},
        )

    async def _call(self, key: Key, verb: str, message: Mapping[str, Json], seconds: float) -> dict[str, Any] | None:
        """The signed answer; None when the server has no such route. Raises ``Refused('guest_unreachable')``."""
        base = self._url_of(key)
        if base is None:
            raise Refused(UNREACHABLE, "the server has no address")
        secret = self._secret_of(key)
        url = base.rstrip("/") + f"/jupyter-pause/v1/{verb}"
        path = "/" + url.split("/", 3)[3]
        body = json.dumps(message).encode()
        nonce = secrets.token_hex(16)
        time = str(int(self._clock.time()))
        headers = {
            "Content-Type": "application/json",
            "X-Pause-Time": time,
            "X-Pause-Nonce": nonce,
            "X-Pause-Signature": sign_request(secret, "POST", path, time, nonce, body),
            "Connection": "close",
        }
        request = HTTPRequest(
            url, "POST", headers, body, follow_redirects=False, connect_timeout=seconds, request_timeout=seconds, decompress_response=False
        )
        try:
            response: HTTPResponse = await self._http.fetch(request, raise_error=False)
        except (HTTPClientError, OSError, ValueError) as error:
            raise Refused(UNREACHABLE, f"{verb}: {error!r}") from error
        if response.code == 599:
            raise Refused(UNREACHABLE, f"{verb}: {response.error!r}")
        expected = sign_response(secret, nonce, response.code, response.body or b"")
        if not hmac.compare_digest(expected, response.headers.get("X-Pause-Signature", "")):
            if response.code in NO_SUCH_ROUTE and not _is_the_extension(response.body or b""):
                return None
            raise Refused(UNREACHABLE, f"{verb}: the answer ({response.code}) is not signed by this server")
        try:
            answer = json.loads(response.body)
        except ValueError as error:
            raise Refused(UNREACHABLE, f"{verb}: the answer is not JSON") from error
        if not isinstance(answer, dict):
            raise Refused(UNREACHABLE, f"{verb}: the answer is not an object")
        if response.code >= 400:
            code = answer.get("reason")
            raise Refused(code if code in FREEZE_CODES else "guest_refused", f"{verb}: {code}: {answer.get('message')}")
        return answer
