"""Runs a command in a mount namespace where parts of the host's tree look as they did (see :mod:`.kept`).

The namespace, and the overlays in it, live as long as the sandbox that is started here: nothing to unmount.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

PATCH_FAILED = 97
_CLONE_NEWNS = 0x20000
_MS_RDONLY, _MS_REC, _MS_PRIVATE = 1, 1 << 14, 1 << 18


def main() -> None:
    """``argv``: JSON list of ``[layers, target]``, then the command."""
    libc = ctypes.CDLL(None, use_errno=True)

    def must(result: int, what: str) -> None:
        if result != 0:
            sys.stderr.write(f"{what}: {os.strerror(ctypes.get_errno())}\n")
            sys.stderr.flush()
            os._exit(PATCH_FAILED)

    must(libc.unshare(_CLONE_NEWNS), "unshare")
    must(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "make / private")
    for layers, target in json.loads(sys.argv[1]):
        options = "lowerdir=" + ":".join(_escaped(layer) for layer in layers)
        must(libc.mount(b"overlay", os.fsencode(target), b"overlay", _MS_RDONLY, os.fsencode(options)), f"overlay on {layers[-1]}")
    os.execv(sys.argv[2], sys.argv[2:])


def _escaped(path: str) -> str:
    return "".join("\\" + char if char in "\\:," else char for char in path)
