"""What only this process can know: a random boot id, its kernels, their process ids and start times.

The boot id is made in memory when the extension is loaded and written nowhere, so a server that answers with it is this
process or a restored copy of it. User code can read and replay it: the Hub uses it to lower a verdict, never to raise one.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

from . import procfs
from .kernels import kernels
from .messages import Json

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp


def new_boot_id() -> str:
    """128 random bits, hex."""
    return secrets.token_hex(16)


def identity(serverapp: ServerApp, boot_id: str) -> dict[str, Json]:
    """The wire's ``identity``; kernels that do not run on this machine, or ended meanwhile, are left out."""
    found = []
    for kernel in kernels(serverapp):
        started = procfs.started(kernel.pid) if kernel.pid is not None else None
        if started is not None:
            found.append({"kernel_id": kernel.kernel_id, "pid": kernel.pid, "started": started, "name": kernel.name})
    return {"boot_id": boot_id, "server_pid": os.getpid(), "kernels": found}
