"""What goes over the wire, checked: bodies of the Hub, answers of the Hub, errors.

Unknown fields are ignored in both directions: a paused server holds an old extension in its memory, so a difference of
versions is the normal case. ``openapi.yaml`` beside this file describes the same.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Any
"""A value that ``json.dumps`` takes."""

MAX_BODY = 64 * 1024
"""Bytes that a message may have, both ways."""
MAX_LEASE = 24 * 3600.0
"""Seconds that a pause may be prepared at most, whatever the Hub asks."""

MAX_NUMBER = 1e15

_TICKET = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PAUSE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class Refusal(Exception):
    """A request that is answered with a 4xx or a gateway status: a stable code and a sentence for a person.

    ``names`` are what stands in the way, where that helps.
    """

    def __init__(self, status: int, reason: str, message: str, headers: Mapping[str, str] | None = None, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.headers = dict(headers or {})
        self.names = list(names)

    def body(self) -> dict[str, Json]:
        """The answer's JSON."""
        return {"reason": self.reason, "message": self.message, **({"names": self.names} if self.names else {})}


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def parse_object(body: bytes) -> dict[str, Json]:
    """The JSON object in a body; an empty body is the empty object. Raises :class:`Refusal`."""
    if not body.strip():
        return {}
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refusal(400, "bad_json", "The body of the request is not JSON.") from None
    if not isinstance(value, dict):
        raise Refusal(400, "bad_json", "The body of the request is not a JSON object.")
    return value


def _pause_id(data: Mapping[str, Json]) -> str:
    value = data.get("pause_id")
    if not isinstance(value, str) or not _PAUSE_ID.fullmatch(value):
        raise Refusal(400, "bad_pause_id", "pause_id must be 1 to 64 letters, digits, underscores or hyphens.")
    return value


def _number(data: Mapping[str, Json], name: str, default: float | None = None) -> float:
    value = data.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < MAX_NUMBER:
        raise Refusal(400, f"bad_{name}", f"{name} must be a number.")
    return float(value)


@dataclass(frozen=True)
class PrepareRequest:
    """Get ready for a checkpoint; holds until ``deadline`` (wall clock) unless it is ended earlier."""

    pause_id: str
    deadline: float
    freeze: bool
    frozen_for: float
    """Seconds after which everything goes on by itself, counted from the moment when it stands."""

    @classmethod
    def parse(cls, body: bytes, now: float) -> PrepareRequest:
        """Raises :class:`Refusal` with a sentence that names the field."""
        data = parse_object(body)
        pause_id, deadline = _pause_id(data), _number(data, "deadline")
        freeze, frozen_for = data.get("freeze", False), _number(data, "frozen_for", 0.0)
        if not isinstance(freeze, bool):
            raise Refusal(400, "bad_freeze", "freeze must be true or false.")
        if frozen_for < 0 or (freeze and frozen_for == 0):
            raise Refusal(400, "bad_frozen_for", "frozen_for must not be negative, and with freeze not zero.")
        if deadline <= now:
            raise Refusal(400, "deadline_passed", "The deadline of this pause has passed already.")
        return cls(pause_id, min(deadline, now + MAX_LEASE), freeze, min(frozen_for, MAX_LEASE))


@dataclass(frozen=True)
class FrozenRequest:
    """Whether the processes stood still since that pause's freeze, and will for so many seconds more."""

    pause_id: str
    seconds: float

    @classmethod
    def parse(cls, body: bytes) -> FrozenRequest:
        """Raises :class:`Refusal` with a sentence that names the field."""
        data = parse_object(body)
        pause_id, seconds = _pause_id(data), _number(data, "seconds")
        if seconds < 0:
            raise Refusal(400, "bad_seconds", "seconds must not be negative.")
        return cls(pause_id, min(seconds, MAX_LEASE))


def parse_pause_id(body: bytes) -> str:
    """The pause that ``thaw`` and ``restored`` name. Raises :class:`Refusal`."""
    return _pause_id(parse_object(body))


# ---------------------------------------------------------------- answers of the Hub

PREFLIGHT_FIELDS = frozenset(
    {"allowed", "bytes", "seconds_pause", "seconds_resume", "refusal", "reason", "detail", "sentence", "message", "advice",
     "will_not_return", "holds", "free_bytes", "expires_in", "phase", "actions", "engine"}
)  # fmt: skip
WORKSPACE_FIELDS = frozenset(
    {"phase", "phase_since", "age", "progress", "receipt", "actions", "sentence", "reason", "detail", "advice", "intent", "bytes",
     "pause_id", "snapshot_id", "since", "expires", "follow_url", "user", "server", "clocks", "revision", "holds", "message",
     "pause", "snapshot", "snapshots", "cancel"}
)  # fmt: skip
_MAX_TEXT, _MAX_ITEMS, _MAX_DEPTH = 4000, 200, 5


def clean(value: Json, depth: int = 0) -> Json:
    """The value with its size bounded: long texts cut, long lists and deep nests dropped."""
    if isinstance(value, str):
        return value[:_MAX_TEXT]
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if depth >= _MAX_DEPTH:
        return None
    if isinstance(value, list):
        return [clean(item, depth + 1) for item in value[:_MAX_ITEMS]]
    if isinstance(value, dict):
        return {str(name)[:100]: clean(item, depth + 1) for name, item in list(value.items())[:_MAX_ITEMS]}
    return None


def whitelist(answer: Mapping[str, Json], fields: frozenset[str]) -> dict[str, Json]:
    """What of an answer of the Hub goes on to the tab."""
    return {name: clean(value) for name, value in answer.items() if name in fields}


def safe_cancel(value: Json, hub_host: str) -> dict[str, str] | None:
    """What a tab needs to cancel its pause at the Hub: an address there and a ticket."""
    if not isinstance(value, dict):
        return None
    url, ticket = safe_follow_url(value.get("url"), hub_host), value.get("ticket")
    if url is None or not isinstance(ticket, str) or not _TICKET.fullmatch(ticket):
        return None
    return {"url": url, "ticket": ticket}


def safe_follow_url(value: Json, hub_host: str) -> str | None:
    """The address where the tab follows a pause, if it lies on the Hub: a path there, or a URL below the Hub's own host.

    With subdomains (``hub_host``) a tab's own host is another one, so a path becomes a URL.
    """
    if not isinstance(value, str) or len(value) > 2000 or any(ord(c) <= 32 or c == "\\" for c in value):
        return None
    if value.startswith("/") and not value.startswith("//"):
        return hub_host.rstrip("/") + value
    return value if hub_host and value.startswith(hub_host.rstrip("/") + "/") else None
