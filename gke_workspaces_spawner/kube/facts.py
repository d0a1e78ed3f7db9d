"""The facts of ``facts.toml``, and the names of our own that other people's objects may not carry."""

from __future__ import annotations

import sys
from functools import cache
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "gke-workspaces/"
LINEAGE = f"{PREFIX}lineage"
"""Label of pods, triggers and Secrets: 128 random bits; GKE restores only what has the same value (grouping)."""
POLICY = f"{PREFIX}policy"
"""Label of pods: which of the two policies governs it, ``resume`` or ``stop``."""
HUB = f"{PREFIX}hub"
"""Label: whose object it is, where several Hubs share a namespace."""
PART = f"{PREFIX}part"
"""Label of Secrets: ``server`` or ``snapshot``."""
RESUME, STOP = "resume", "stop"


@cache
def data(name: str) -> dict[str, Any]:
    """A file of data beside this one, parsed."""
    return tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def name(key: str) -> str:
    """A name of GKE's, from ``facts.toml``."""
    return str(data("facts")["names"][key])


PS_NAME: str = name("ps_name")
TRIGGERED_BY: str = name("triggered_by")
