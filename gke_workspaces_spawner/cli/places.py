"""Where things are kept. The demo runs as root, so they are root's: what others can write is not executed by root."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


def home() -> Path:
    """The home of the account that runs this; not ``$HOME``, which ``sudo -E`` leaves at the caller's."""
    return Path(pwd.getpwuid(os.geteuid()).pw_dir)


def cache() -> Path:
    """What can be brought again at any time: ``$XDG_CACHE_HOME/gke-workspaces`` or ``~/.cache/gke-workspaces``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else home() / ".cache") / "gke-workspaces"


def default_state() -> Path:
    """The demo's state folder unless ``--state`` says otherwise."""
    return home() / ".local" / "share" / "gke-workspaces" / "demo"


def caller() -> tuple[int, int]:
    """uid and gid of the person: the one who called sudo, else our own."""
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdigit() and os.environ.get("SUDO_GID", "").isdigit():
        return int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    return os.geteuid(), os.getegid()
