"""What nobody says of GKE: each line unknown, with how to find out."""

from __future__ import annotations

from collections.abc import Iterator

from .findings import Finding, State, data


def check_guesses() -> Iterator[Finding]:
    """One finding for each guess; no cluster is asked."""
    why = data("checks")["guess"]["why"]
    for key, row in data("guesses").items():
        yield Finding(f"guess/{key}", State.UNKNOWN, f"Nobody says whether this is so: {row['does']}", why, row["ask"])
