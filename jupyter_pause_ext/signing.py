"""Signed messages between the Hub and this server (version 1).

The Hub never sends the server's API token to an address, since addresses are reused and user code can answer on a
server's port. Instead both directions carry an HMAC-SHA256 with a secret that only that server and the Hub know:

* request: ``X-Pause-Signature: v1=`` + hex HMAC of ``request, METHOD, path, time, nonce, sha256hex(body)``
* response: ``X-Pause-Signature: v1=`` + hex HMAC of ``response, nonce, status, sha256hex(body)``

each joined by line feeds. ``path`` is the request's path as sent (percent-encoded, without query); ``time`` is the text of
``X-Pause-Time`` (seconds since the epoch), ``nonce`` that of ``X-Pause-Nonce`` (32 hex digits). The golden vectors are
in ``tests/wire/v1/signatures.json``: the Hub's side is written from them, no code is shared.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping

TIME_HEADER = "X-Pause-Time"
NONCE_HEADER = "X-Pause-Nonce"
SIGNATURE_HEADER = "X-Pause-Signature"
MAX_SKEW = 300.0
"""Seconds by which the two clocks may differ."""
MAX_NONCES = 4096
"""Nonces remembered; a Hub that sends more within twice the skew is refused rather than believed."""

_TIME = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?", re.ASCII)
_NONCE = re.compile(r"[0-9a-f]{32}", re.ASCII)
_SECRET = re.compile(r"([0-9a-fA-F]{2}){16,64}", re.ASCII)


class BadSignature(Exception):
    """A message that is not from the Hub, too old, or seen before. ``reason`` is for the log only."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def parse_secret(text: str) -> bytes | None:
    """The secret's bytes from its hex form (16 to 64 bytes); ``None`` when it is anything else."""
    return bytes.fromhex(text) if _SECRET.fullmatch(text) else None


def _sign(secret: bytes, *parts: str) -> str:
    return "v1=" + hmac.new(secret, "\n".join(parts).encode(), hashlib.sha256).hexdigest()


def request_signature(secret: bytes, method: str, path: str, time: str, nonce: str, body: bytes) -> str:
    """Value of the request's signature header."""
    return _sign(secret, "request", method, path, time, nonce, hashlib.sha256(body).hexdigest())


def response_signature(secret: bytes, nonce: str, status: int, body: bytes) -> str:
    """Value of the response's signature header; the nonce ties it to one request."""
    return _sign(secret, "response", nonce, str(status), hashlib.sha256(body).hexdigest())


class Verifier:
    """Checks requests of the Hub; remembers nonces so that no message counts twice."""

    def __init__(self, secret: bytes, clock: Callable[[], float], max_nonces: int = MAX_NONCES) -> None:
        self._secret = secret
        self._clock = clock
        self._max_nonces = max_nonces
        self._nonces: OrderedDict[str, float] = OrderedDict()

    def check(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> str:
        """The request's nonce. Raises :class:`BadSignature`."""
        time, nonce = headers.get(TIME_HEADER, ""), headers.get(NONCE_HEADER, "")
        signature = headers.get(SIGNATURE_HEADER, "")
        if not _TIME.fullmatch(time) or not _NONCE.fullmatch(nonce):
            raise BadSignature("time or nonce missing or malformed")
        expected = request_signature(self._secret, method, path, time, nonce, body)
        if not hmac.compare_digest(signature.encode("utf-8", "surrogateescape"), expected.encode()):
            raise BadSignature("signature does not match")
        now = self._clock()
        skew = abs(now - float(time))
        if not math.isfinite(skew) or skew > MAX_SKEW:
            raise BadSignature(f"clocks differ by {skew:.0f} s")
        self._forget(now)
        if nonce in self._nonces:
            raise BadSignature("nonce used before")
        if len(self._nonces) >= self._max_nonces:
            raise BadSignature("too many messages")
        self._nonces[nonce] = now
        return nonce

    def sign_response(self, nonce: str, status: int, body: bytes) -> str:
        """Value of the signature header of the answer to the request of that nonce."""
        return response_signature(self._secret, nonce, status, body)

    def _forget(self, now: float) -> None:
        """Drop nonces of messages that the time check refuses anyway."""
        while self._nonces:
            nonce, seen = next(iter(self._nonces.items()))
            if abs(now - seen) <= 2 * MAX_SKEW:
                return
            del self._nonces[nonce]
