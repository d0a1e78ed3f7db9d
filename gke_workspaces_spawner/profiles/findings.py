"""What is wrong with a profile, as data: the entry's name, the key, a sentence, and the nearest right value."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any


class State(str, Enum):
    """How bad it is."""

    REFUSED = "refused"
    """Structure or arithmetic forbids it: no such pod could run."""
    WARNING = "warning"
    """It may be wrong: availability, versions, regions, and what the file does not tell."""


CHECKS = ("schema", "type", "count", "topology", "hosts", "capacity", "family", "sandbox", "home", "pod", "reporting")
"""What a finding comes from: the form of the entry, and the ten validations in their order."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    entry: str
    """Which choice of the profile list, in words."""
    key: str
    """Where in it, such as ``gke.gpu.count``."""
    what: str
    """A sentence."""
    mend: str = ""
    """What to write instead; empty where that cannot be known."""
    check: str = "schema"
    state: State = State.REFUSED

    @property
    def sentence(self) -> str:
        """All of it, for a log."""
        mend = f" {self.mend}" if self.mend else ""
        return f"{self.entry}: {self.key}: {self.what}{mend}"

    def as_json(self) -> dict[str, str]:
        return {
            "entry": self.entry,
            "key": self.key,
            "state": self.state.value,
            "check": self.check,
            "what": self.what,
            "mend": self.mend,
        }

    def warning(self, before: str = "") -> Finding:
        """The same as something that does not stop anything."""
        return replace(self, state=State.WARNING, what=f"{before}{self.what}")


def shown(value: Any) -> str:
    """A value of somebody's file in a sentence: short, on one line."""
    text = repr(value) if isinstance(value, str) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def nearest(value: Any, known: Iterable[Any]) -> str:
    """The right value that is most like a wrong one, as a sentence; where none is, all of them if they are few."""
    names = [str(each) for each in known]
    by_folded = {name.casefold(): name for name in names}
    found = difflib.get_close_matches(str(value).casefold(), by_folded, n=1, cutoff=0.5)
    if found:
        return f"Did you mean {by_folded[found[0]]!r}?"
    return f"Known: {listed(names)}." if 0 < len(names) <= 12 else ""


def nearest_number(value: int, known: Iterable[int]) -> str:
    """The number that is nearest to a wrong one, and all of them, as a sentence."""
    numbers = sorted(known)
    if not numbers:
        return ""
    best = min(numbers, key=lambda each: (abs(each - value), each))
    return f"Write {best}." if len(numbers) == 1 else f"Write {best} (possible: {listed(numbers)})."


def listed(values: Iterable[Any]) -> str:
    return ", ".join(str(each) for each in values)
