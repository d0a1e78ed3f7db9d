"""Whether a cluster is fit for pausing: what was read of it (:mod:`.seen`, :mod:`.bucket`, :mod:`.values`), judged by pure functions.

Each check's reasons lie in ``checks.toml``; what nobody says of GKE, and how to find out, in ``guesses.toml``.
"""

from __future__ import annotations

from .examine import examine
from .findings import Finding, State, exit_code

__all__ = ["Finding", "State", "examine", "exit_code"]
