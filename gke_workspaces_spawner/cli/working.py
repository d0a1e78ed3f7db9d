"""``python -m gke_workspaces_spawner.cli.working TEXT COMMAND...``: run a long quiet command and show that it goes on.

For the Makefile, also before anything is installed: standard library only. What the command says is shown when it fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .say import say, step

DISK_FULL = "No space left on device"
"""What a command says, among other things, when its failure is that."""


def quietly(
    command: Sequence[str], environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command that asks nothing and shows nothing; what it said, errors too, is in ``stdout``. ``environment`` is added to ours."""
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


def main(words: Sequence[str]) -> int:
    """The command's exit code."""
    text, *command = words
    try:
        with step(text):
            done = quietly(command)
    except KeyboardInterrupt:
        return 130
    if done.returncode != 0:
        say("\n".join(done.stdout.strip().splitlines()[-40:]))
        if DISK_FULL in done.stdout:
            say("The disk is full: free some and start again.")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
