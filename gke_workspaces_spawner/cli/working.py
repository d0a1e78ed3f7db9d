"""``python -m gke_workspaces_spawner.cli.working TEXT COMMAND...``: run a long quiet command and show that it goes on.

For the Makefile, also before anything is installed: standard library only. What the command says is shown when it fails.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from .say import say, step


def main(words: Sequence[str]) -> int:
    """The command's exit code."""
    text, *command = words
    try:
        with step(text):
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
    except KeyboardInterrupt:
        return 130
    if done.returncode != 0:
        say("\n".join(done.stdout.strip().splitlines()[-40:]))
        if "No space left on device" in done.stdout:
            say("The disk is full: free some and start again.")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
