"""What the server is doing: for the Hub's idle policy, and for what a pause will lose."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from . import procfs
from .kernels import kernels, terminals
from .messages import Json

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

GPU_DEVICES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/accel0", "/dev/vfio/0")
GPU_LIBRARIES = ("libcuda.so", "libcudart", "libtorch_cuda", "libtpu.so")
TORCH = ("libtorch",)
MAX_PATH = 256


def activity(serverapp: ServerApp) -> dict[str, Json]:
    """Busy kernels, terminals and the last activity (seconds since the epoch)."""
    running = kernels(serverapp)
    return {
        "kernels": len(running),
        "busy": sum(kernel.state == "busy" for kernel in running),
        "terminals": len(terminals(serverapp)),
        "last_activity": serverapp.web_app.last_activity().timestamp(),  # type: ignore[no-untyped-call]
    }


async def facts(serverapp: ServerApp, hub_api_url: str) -> dict[str, Json]:
    """What a pause would save and what would not come back; bounded in size, best effort."""
    paths = await _notebooks(serverapp)
    running = kernels(serverapp)
    pids = [kernel.pid for kernel in running if kernel.pid is not None]
    port = urlsplit(hub_api_url).port
    look = _outside(pids, frozenset({serverapp.port}), frozenset() if port is None else frozenset({port}))
    gpu, torch, connections = await asyncio.get_running_loop().run_in_executor(None, look)
    return {
        "kernels": [
            {"kernel_id": kernel.kernel_id, "name": kernel.name, "state": kernel.state, "path": paths.get(kernel.kernel_id, "")[:MAX_PATH]}
            for kernel in running
        ],
        "terminals": len(terminals(serverapp)),
        "connections": connections,
        "gpu": gpu,
        "torch": torch,
        "runtime_in_home": runtime_in_home(serverapp),
    }


def runtime_in_home(serverapp: ServerApp) -> bool:
    """Whether kernels' connection files lie on the home volume, which is not in a snapshot: whoever tidies up there breaks a resume."""
    home = os.path.realpath(os.path.expanduser("~"))
    return os.path.realpath(serverapp.runtime_dir).startswith(home.rstrip("/") + "/")


def blockers(serverapp: ServerApp, unanswered: int) -> list[str]:
    """Codes of what speaks against a checkpoint at this moment."""
    found = []
    if unanswered:
        found.append("requests_cut")
    if any(kernel.state in {"starting", "restarting"} for kernel in kernels(serverapp)):
        found.append("kernel_starting")
    return found


async def _notebooks(serverapp: ServerApp) -> dict[str, str]:
    """Path of the notebook that each kernel serves; for a console its name, since its path is a made-up one."""
    sessions = await serverapp.session_manager.list_sessions()
    found = {}
    for session in sessions:
        first, second = ("path", "name") if session.get("type") == "notebook" else ("name", "path")
        if session.get("kernel"):
            found[session["kernel"]["id"]] = str(session.get(first) or session.get(second) or "")
    return found


def _outside(pids: list[int], local: frozenset[int], remote: frozenset[int]) -> Callable[[], tuple[bool, bool, int]]:
    """Reads of /proc and /dev, for a thread: (GPU in use, torch loaded, connections that will not come back)."""

    def look() -> tuple[bool, bool, int]:
        gpu = any(Path(device).exists() for device in GPU_DEVICES) and any(procfs.maps_any(pid, GPU_LIBRARIES) for pid in pids)
        torch = any(procfs.maps_any(pid, TORCH) for pid in pids)
        return gpu, torch, procfs.established(local, remote)

    return look
