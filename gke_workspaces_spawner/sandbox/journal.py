"""What a shim notes for people, on its standard error (``shim.log`` in the room).

Not :mod:`logging`: its import alone costs a tenth of a shim's start.
"""

from __future__ import annotations

import sys
import time


def note(text: str) -> None:
    """One line with the wall-clock time."""
    sys.stderr.write(f"{time.time():.3f} {text}\n")
    sys.stderr.flush()


def note_error(text: str) -> None:
    """One line and the traceback of the exception that is being handled."""
    import traceback

    note(f"{text}\n{traceback.format_exc()}")
