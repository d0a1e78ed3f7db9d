"""The command lines of ``runsc``.

Flags and behaviour: gVisor at the commit that the project pins; measured on Linux 6.18 without cgroups (see docs).
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

_FLAGS = ("--platform=systrap", "--network=sandbox", "--ignore-cgroups", "--overlay2=root:memory", "--net-disconnect-ok")


class Runsc(NamedTuple):
    """One binary, kept by digest, and the state folder that it works on."""

    path: str
    digest: str
    root: str
    """Its ``--root``."""

    def command(self, verb: str, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
        """The words of a command; ``flags`` come before the verb."""
        return [self.path, "--root", self.root, *_FLAGS, *flags, verb, *arguments]

    def owns(self, words: list[str]) -> str | None:
        """The container that a process of that command line belongs to, if it is one of ours."""
        if not any(word.rsplit("/", 1)[-1].startswith("runsc") for word in words[:2]):
            return None
        ours = f"--root={self.root}" in words or ("--root", self.root) in itertools.pairwise(words)
        return words[-1] if ours else None
