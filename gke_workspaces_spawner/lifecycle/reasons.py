"""Five errors, told apart by who handles them, and the words for each reason code (``reasons.toml``).

| error | who handles it | HTTP |
|---|---|---|
| :class:`Refused` | the user: something has to be different first | the code's own status, mostly 409 |
| :class:`Conflict` | the caller: the phase moved on, look again | 409 |
| :class:`TryLater` | the drive: the same call may work later | 503 |
| :class:`Lost` | nobody: a session is gone, the user is told so | 410 |
| :class:`Broken` | the admin: a promise of ours or of the engine does not hold | 500 in the log, 409 for the user |
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class LifecycleError(Exception):
    """An outcome with a reason code; ``detail`` is for the log and for people who asked for it."""

    def __init__(self, code: str, detail: str = "", **values: object) -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail
        self.values = values


class Refused(LifecycleError):
    """The user can do something about it; nothing was changed."""


class Conflict(LifecycleError):
    """The phase does not fit the call (any more)."""


class TryLater(LifecycleError):
    """Nothing is wrong but the moment."""


class Lost(LifecycleError):
    """The server's memory is gone."""


class Broken(LifecycleError):
    """A promise does not hold; an admin has to look."""


@dataclass(frozen=True, slots=True)
class Reason:
    """What people are told about a code."""

    code: str
    sentence: str
    advice: str
    status: int
    counts_as_hub_failure: bool


@cache
def table() -> dict[str, Reason]:
    """All reasons by code, from ``reasons.toml``."""
    data = tomllib.loads(files(__package__).joinpath("reasons.toml").read_text(encoding="utf-8"))
    return {
        code: Reason(code, row["sentence"], row.get("advice", ""), row.get("status", 409), row.get("counts_as_hub_failure", False))
        for code, row in data.items()
    }


def reason(code: str) -> Reason:
    """The words for a code; a code that nobody knows (an old record) says so instead of failing."""
    return table().get(code) or Reason(code, "Something went wrong that this version has no words for.", "Ask your admin.", 409, False)
