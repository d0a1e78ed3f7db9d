"""The save protocol by hand: ``runsc`` and nothing else, in a process of its own that reaps what ends (a child subreaper).

Reads one JSON object a line, ``{"do": "restore"|"pause", ...}``, and answers with ``{"seconds": ..., "steps": {...}}``. The snapshot
that it restores is one of the product's, so both start from the same bytes, with the same binary, mounts and kind of network.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gke_workspaces_spawner.sandbox import Network, SandboxSpec
from gke_workspaces_spawner.sandbox.bundle import write_bundle
from gke_workspaces_spawner.sandbox.files import sync_folder
from gke_workspaces_spawner.sandbox.processes import become_subreaper, command_lines
from gke_workspaces_spawner.sandbox.runsc import Runsc

CONTAINER = "by-hand"
PORT = 8888


class ByHand:
    """One sandbox of our own beside the Hub's."""

    def __init__(self, state: Path, folder: Path) -> None:
        self._state = state
        self._folder = folder
        self._network = Network.load(state)
        self._bundle = folder / "bundle"
        self._bundle.mkdir(parents=True)
        (folder / "root").mkdir()
        (binary,) = (state / "runsc-bin").glob("*/runsc")
        self._runsc = Runsc(str(binary), binary.parent.name, str(folder / "root"))

    def restore(self, snapshot: str) -> dict[str, Any]:
        """``runsc restore --background --direct`` to the first answer of the server, whatever it says; the network is made before."""
        image = self._state / "snapshots" / snapshot
        made = json.loads((image / "spec.json").read_text())
        found = self._network.attach(CONTAINER)
        write_bundle(
            self._bundle,
            SandboxSpec.from_json(made["spec"]),
            netns=found.path,
            ip=found.ip,
            resolv_conf=self._network.resolv_conf(),
            etc=made["etc"],
        )
        begin = time.monotonic()
        self._do("restore", "--background", "--direct", "-image-path", str(image), "-detach", "-bundle", str(self._bundle), CONTAINER)
        returned = time.monotonic()
        while not _answers(found.ip):
            time.sleep(0.005)
        end = time.monotonic()
        return {"seconds": end - begin, "steps": {"restore": returned - begin, "first answer": end - returned}}

    def pause(self) -> dict[str, Any]:
        """Pause, checkpoint, fsync and rename, delete."""
        partial, image = self._folder / "partial", self._folder / "image"
        shutil.rmtree(image, ignore_errors=True)
        partial.mkdir()
        moments = [time.monotonic()]
        self._do("pause", CONTAINER)
        moments.append(time.monotonic())
        self._do("checkpoint", "--direct", "--leave-running", "-image-path", str(partial), CONTAINER)
        moments.append(time.monotonic())
        for entry in partial.iterdir():
            with entry.open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(partial)
        partial.rename(image)
        sync_folder(self._folder)
        moments.append(time.monotonic())
        self._delete()
        moments.append(time.monotonic())
        names = ("freeze", "save", "durable", "remove")
        steps = {name: after - before for name, before, after in zip(names, moments[:-1], moments[1:], strict=True)}
        self._network.release(CONTAINER)
        return {"seconds": moments[-1] - moments[0], "steps": steps}

    def _do(self, verb: str, *arguments: str) -> None:
        flags = ("--restore-spec-validation=ignore",) if verb == "restore" else ()
        command = self._runsc.command(verb, *arguments, flags=flags)
        with (self._folder / "log").open("ab") as log:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True, timeout=120)

    def _delete(self) -> None:
        """``runsc delete`` waits until sandbox and gofer have been reaped."""
        ours = [pid for pid, words in command_lines() if self._runsc.owns(words) == CONTAINER]
        with (self._folder / "log").open("ab") as log:
            command = subprocess.Popen(self._runsc.command("delete", "--force", CONTAINER), stdout=log, stderr=log)
            while command.poll() is None:
                for pid in ours:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)
                time.sleep(0.002)
        if command.returncode != 0:
            raise RuntimeError((self._folder / "log").read_text()[-500:])


def _answers(ip: str) -> bool:
    try:
        with socket.create_connection((ip, PORT), timeout=1) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return bool(connection.recv(1))
    except OSError:
        return False


def main() -> None:
    become_subreaper()
    by_hand = ByHand(Path(sys.argv[1]), Path(sys.argv[2]))
    for line in sys.stdin:
        asked = json.loads(line)
        answer = by_hand.restore(asked["snapshot"]) if asked["do"] == "restore" else by_hand.pause()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
