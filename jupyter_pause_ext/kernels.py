"""The server's kernels and terminals as the rest of the extension sees them.

Everything here that Jupyter Server does not promise (the provisioner's ``pid``, the culler's callback) is read with
``getattr`` and may be absent, for instance with a kernel gateway: then the ability is absent, not an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

MAX_KERNELS = 64
"""Kernels named in a message at most."""
MAX_NAME = 100
"""Characters of a kernel's name in a message."""


@dataclass(frozen=True)
class Kernel:
    """One kernel; ``pid`` is ``None`` when it does not run on this machine."""

    kernel_id: str
    name: str
    state: str
    pid: int | None
    manager: Any


def kernels(serverapp: ServerApp) -> list[Kernel]:
    """The running kernels, oldest first."""
    multi = serverapp.kernel_manager
    found = []
    for kernel_id in list(multi.list_kernel_ids())[:MAX_KERNELS]:
        try:
            manager = multi.get_kernel(kernel_id)
        except KeyError:
            continue
        pid = getattr(getattr(manager, "provisioner", None), "pid", None)
        found.append(
            Kernel(
                kernel_id,
                str(getattr(manager, "kernel_name", ""))[:MAX_NAME],
                str(getattr(manager, "execution_state", None) or "unknown"),
                pid if isinstance(pid, int) else None,
                manager,
            )
        )
    return found


def terminal_manager(serverapp: ServerApp) -> Any:
    """The manager of terminals, or ``None``."""
    return serverapp.web_app.settings.get("terminal_manager")


def terminals(serverapp: ServerApp) -> dict[str, Any]:
    """Terminals by name."""
    return dict(getattr(terminal_manager(serverapp), "terminals", None) or {})


def _cullers(serverapp: ServerApp) -> Iterator[Any]:
    for manager in (serverapp.kernel_manager, terminal_manager(serverapp)):
        callback = getattr(manager, "_culler_callback", None)
        if callback is not None:
            yield callback


def stop_cullers(serverapp: ServerApp) -> list[Any]:
    """Stop the timers that end idle kernels and terminals; what was stopped, for :func:`start_cullers`."""
    stopped = [callback for callback in _cullers(serverapp) if callback.is_running()]
    for callback in stopped:
        callback.stop()
    return stopped


def start_cullers(stopped: list[Any]) -> None:
    """Start the timers again; their first tick comes one interval from now."""
    for callback in stopped:
        if not callback.is_running():
            callback.start()


def stop_restarters(serverapp: ServerApp) -> list[Any]:
    """Stop looking whether kernels have ended (and starting them anew); the managers, for :func:`start_restarters`."""
    stopped = []
    for kernel in kernels(serverapp):
        if getattr(getattr(kernel.manager, "_restarter", None), "_pcallback", None) is not None:
            kernel.manager.stop_restarter()
            stopped.append(kernel.manager)
    return stopped


def start_restarters(stopped: list[Any]) -> None:
    """Look again; a kernel that was removed meanwhile stays removed."""
    for manager in stopped:
        if manager.has_kernel:
            manager.start_restarter()


def bump_activity(serverapp: ServerApp) -> dict[str, int]:
    """Set the last activity of server, kernels and terminals to now: a jump of the wall clock is not idleness.

    The cullers and the idle shutdown of Jupyter Server compare wall time (kernelmanager.cull_kernel_if_idle,
    serverapp.shutdown_no_activity, terminalmanager._cull_inactive_terminal).
    """
    now = datetime.now(timezone.utc)
    serverapp.web_app.settings["api_last_activity"] = now
    running = kernels(serverapp)
    for kernel in running:
        kernel.manager.last_activity = now
    if running:
        serverapp.kernel_manager.last_kernel_activity = now
    open_terminals = terminals(serverapp)
    for terminal in open_terminals.values():
        terminal.last_activity = now
    return {"kernels": len(running), "terminals": len(open_terminals)}
