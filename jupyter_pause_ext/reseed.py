"""Fresh randomness after a restore.

One image may be restored more than once, and OpenSSL's generator lives in the process's memory: without this, two
restored processes draw the same keys (tried). The kernel's own randomness (``os.urandom``, ``secrets``, ``uuid``) is not
in the image. ``random`` and numpy are left alone: their seeds are the user's, for reproducible results.

Standard library only, loadable by path, see ``startup.py``.
"""

from __future__ import annotations

import os
import sys

_USERS = ("_ssl", "_hashlib", "ssl", "hashlib")


def reseed_openssl() -> bool:
    """Mix 64 fresh bytes into OpenSSL's generator; False when this process has not loaded OpenSSL through Python."""
    if not any(name in sys.modules for name in _USERS):
        return False
    try:
        import ssl
    except ImportError:
        return False
    ssl.RAND_add(os.urandom(64), 64.0)
    return True
