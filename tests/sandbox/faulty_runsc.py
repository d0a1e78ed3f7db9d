"""A ``runsc`` that does what it is told to get wrong; a file beside it says what, so that a test can change its mind at any time.

Verbs in the file, one a line: ``checkpoint-fails``, ``checkpoint-hangs``, ``checkpoint-slow`` (5 s before it begins), ``restore-fails``,
``restore-is-cold`` (starts the first process anew instead of restoring it, and says nothing of it), ``resume-lies``.
"""

from __future__ import annotations

import shlex
from pathlib import Path

SCRIPT = """#!/bin/bash
here={here}
has() {{ grep -qx -- "$1" "$here/faults" 2>/dev/null; }}
args=("$@")
for word in "$@"; do
  case "$word" in
    run)
      if [ ! -t 0 ]; then cat > "$here/stdin"; exec {runsc} "$@" < "$here/stdin"; fi;;
    checkpoint)
      if has checkpoint-fails; then echo "checkpoint failed: no space left on device" >&2; exit 128; fi
      if has checkpoint-hangs; then echo $$ > "$here/hanging"; exec sleep 600; fi
      if has checkpoint-slow; then echo $$ > "$here/slow"; sleep 5; fi;;
    restore)
      if has restore-fails; then echo "OCI runtime restore failed: as the test asked for" >&2; exit 128; fi
      if has restore-is-cold; then
        kept=(); skip=
        for each in "$@"; do
          if [ -n "$skip" ]; then skip=; continue; fi
          case "$each" in
            restore) kept+=(run);;
            --background|--direct) ;;
            -image-path) skip=1;;
            *) kept+=("$each");;
          esac
        done
        exec {runsc} "${{kept[@]}}" < "$here/stdin"
      fi;;
  esac
done
exec {runsc} "$@"
"""


class FaultyRunsc:
    """The script and its faults."""

    def __init__(self, folder: Path, runsc: Path) -> None:
        folder.mkdir(mode=0o700)
        self.folder = folder
        self.path = folder / "runsc"
        self.path.write_text(SCRIPT.format(here=shlex.quote(str(folder)), runsc=shlex.quote(str(runsc))))
        self.path.chmod(0o700)

    def faults(self, *faults: str) -> None:
        """From now on; none without arguments."""
        temporary = self.folder / "faults.new"
        temporary.write_text("".join(f"{fault}\n" for fault in faults))
        temporary.replace(self.folder / "faults")
