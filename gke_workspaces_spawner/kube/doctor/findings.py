"""What a check says: a state, a sentence, why it matters, and what mends it. The last two are data (``checks.toml``)."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


SAID = 300
"""Characters of somebody else's message that are shown."""


class State(str, enum.Enum):
    """How a check came out; the worst first."""

    FAULT = "fault"
    """Pausing does not work, or is not safe."""
    WARNING = "warning"
    """It works, and may surprise."""
    UNKNOWN = "unknown"
    """It could not be asked, or nobody says."""
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table."""

    check: str
    state: State
    what: str
    why: str = ""
    """Why it matters; empty where all is well."""
    mend: str = ""
    """The command or the value that mends it, or that tells more; empty where all is well."""

    def as_json(self) -> dict[str, str]:
        return {"check": self.check, "state": self.state.value, "what": self.what, "why": self.why, "mend": self.mend}


@dataclass(frozen=True, slots=True)
class Unread:
    """Something could not be read; the sentence says why."""

    sentence: str
    absent: bool = False
    """The API server has no such thing (404), which is an answer too."""


@cache
def data(name: str) -> dict[str, Any]:
    """A file of data beside this one, parsed; in the order of the file."""
    return tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def found(check: str, state: State, what: str, *, mend: str = "", **words: str) -> Finding:
    """A finding; why it matters and what mends it come from the data, with ``words`` put into their braces."""
    row = data("checks")[check]
    if state is State.OK:
        return Finding(check, state, what)
    return Finding(check, state, what, row["why"], mend or row["mend"].format_map(_Words(words)))


class _Words(dict[str, str]):
    """Braces that nobody has a word for stay as a name in capital letters, to be filled in by the reader."""

    def __missing__(self, key: str) -> str:
        return key.upper()


def unread(check: str, answer: Unread, **words: str) -> Finding:
    """The finding for what could not be read."""
    return found(check, State.UNKNOWN, answer.sentence, **words)


def one_line(error: BaseException | str) -> str:
    """What an error says, as a part of a sentence."""
    return " ".join(str(error).split())[:SAID].rstrip(".")


def exit_code(findings: Iterable[Finding]) -> int:
    """0: no fault; 1: at least one. Warnings and what is unknown fail nobody's script."""
    return int(any(one.state is State.FAULT for one in findings))
