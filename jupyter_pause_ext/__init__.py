"""Jupyter Server extension that lets a running server be paused and resumed with its memory.

It prepares the server for a checkpoint (client connections closed, new ones refused), proves after a restore that the
process is the one that was paused, repairs what a jump in time and place breaks, and keeps the output that running
cells make while no browser is connected. Without a hub that can pause it loads, says so and does nothing else.

Importing this package costs nothing: kernels and tools may do it; the server's part is imported when it is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

__version__ = "0.1.0"
LABEXTENSION = "@gke-workspaces/jupyterlab-pause"


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Name the module that Jupyter Server loads."""
    return [{"module": "jupyter_pause_ext"}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Name the prebuilt JupyterLab extension inside this package."""
    return [{"src": "labextension", "dest": LABEXTENSION}]


def _load_jupyter_server_extension(serverapp: ServerApp) -> None:
    """Load the extension into a running Jupyter Server."""
    from .extension import load

    load(serverapp)
