"""Processes of a demo that was killed: found by what only they have, ended before the next start. Sandboxes are left alone."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from ..sandbox.processes import Process
from .say import Stopped, say
from .settings import Settings

MARK = "GKE_WORKSPACES_DEMO_STATE"
"""Environment variable of the Hub and its children: the state folder."""
SECONDS = 10.0


def end_leftovers(settings: Settings, why: str = "") -> None:
    """End Hub, proxy and service of this state folder, with a line that says why. Raises Stopped when one stays."""
    found = [process for pid in _ours(settings) if (process := Process.of(pid))]
    if found and why:
        say(f"{why}: ending {len(found)} process{'es' if len(found) > 1 else ''} of it.")
    end(found)
    # Without it the Hub would end whatever has that pid today.
    (settings.hub / "proxy.pid").unlink(missing_ok=True)


def end(processes: list[Process]) -> None:
    """SIGTERM, and SIGKILL for those that are still there after :data:`SECONDS`."""
    _signal(processes, signal.SIGTERM)
    if _gone(processes, SECONDS):
        return
    _signal(processes, signal.SIGKILL)
    if not _gone(processes, SECONDS):
        stuck = ", ".join(str(process.pid) for process in processes if process.alive())
        raise Stopped(f"A process of an earlier start does not end (pid {stuck}): it hangs in the kernel, which a reboot ends.")


def _ours(settings: Settings) -> list[int]:
    """Those with the mark, and managed services, which the Hub gives its address but not its environment."""
    wanted = (f"{MARK}={settings.state}".encode(), f"JUPYTERHUB_API_URL=http://{settings.hub_host}:{settings.hub_port}/hub/api".encode())
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(variable in environment for variable in wanted):
            found.append(int(entry.name))
    return found


def _signal(processes: list[Process], number: signal.Signals) -> None:
    for process in processes:
        handle = process.open()
        if handle is not None:
            try:
                signal.pidfd_send_signal(handle, number)
            except ProcessLookupError:
                pass
            finally:
                os.close(handle)


def _gone(processes: list[Process], seconds: float) -> bool:
    end_at = time.monotonic() + seconds
    while any(process.alive() for process in processes):
        if time.monotonic() > end_at:
            return False
        time.sleep(0.05)
    return True
