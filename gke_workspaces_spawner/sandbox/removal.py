"""Ending a container from the host's side."""

from __future__ import annotations

import contextlib
import os
import stat

from .errors import SandboxError
from .processes import Process, command_lines, reap
from .runsc import Runsc


def remove_container(runsc: Runsc, container: str) -> None:
    """Kill every process of a container and let runsc forget it; returns when that is done.

    Raises SandboxError ``remove_failed`` when something does not die.
    """
    mine = [pid for pid, words in command_lines() if runsc.owns(words) == container]
    processes = [process for process in map(Process.of, mine) if process is not None]
    for process in processes:
        if not process.kill(10):
            raise SandboxError("remove_failed", f"process {process.pid} of the sandbox does not end")
    for process in processes:
        reap(process.pid)
    for folder in (runsc.root, "/run", "/tmp"):
        # Where runsc puts its control socket when the path into the state folder is too long for one.
        _unlink_socket(f"{folder}/runsc-{container}.sock")
    for entry in list(os.scandir(runsc.root)):
        if entry.name.startswith(f"{container}_sandbox:"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry.path)


def _unlink_socket(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(path)
        if stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid():
            os.unlink(path)
