"""A pausable spawner without gVisor: a paused server is an ordinary process that stands still (SIGSTOP), a restore lets it go on.

For the hub level: real Hub, real proxy, real single-user server with its memory; only the engine is a fake. What the engine knows
lies in files, so it survives the death of the Hub that started it. Faults are read from ``faults.json`` in the state folder:

* ``save``: ``fail`` | ``hang`` | ``lost``; ``restore``: ``fail`` | ``fresh``; ``capacity`` and ``estimate``: a reason code;
* ``refuse_start``: a hook of the deployment refuses every start;
* ``hold``: a phase whose work does not end as long as the fault is there (``preparing``, ``checkpointing``, ``saved``, ``stopping``,
  ``restoring``, ``deleting``), or ``starting`` for a cold start, ``hook`` for a hook of the deployment before any start.

With ``kill.json`` the Hub kills itself right after a phase was persisted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyterhub.spawner import Spawner
from jupyterhub.utils import maybe_future
from tornado import web
from traitlets import Unicode

from gke_workspaces_spawner.hub.mixin import PausableMixin
from gke_workspaces_spawner.hub.services import Workspaces
from gke_workspaces_spawner.hub.vault import TokenFiles
from gke_workspaces_spawner.lifecycle.model import SnapshotManifest, Want, manifest_from_json, manifest_to_json
from gke_workspaces_spawner.lifecycle.ports import (
    Abilities,
    Estimate,
    Failed,
    Nothing,
    Observation,
    Saved,
    SaveRequest,
    Saving,
    Server,
    Signal,
)
from gke_workspaces_spawner.lifecycle.reasons import Refused
from tests.fakes.kill_switch import KillSwitch
from tests.ports import free_port


def _start_time(pid: int) -> str | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def _tree(pid: int) -> list[int]:
    """The process and its descendants, parents first."""
    found = [pid]
    for each in found:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


class ProcessEngine:
    """Implements the lifecycle's engine with processes that stand still."""

    abilities = Abilities(name="process", freezes=True, gpu=False, tpu=False)

    def __init__(self, state: Path) -> None:
        self._state = state
        for folder in ("servers", "snapshots", "saves"):
            (state / folder).mkdir(parents=True, exist_ok=True)

    # ------------------------------------------------------------ files

    def _fault(self, what: str) -> str | None:
        path = self._state / "faults.json"
        return json.loads(path.read_text()).get(what) if path.exists() else None

    async def _held(self, phase: str) -> None:
        while self._fault("hold") == phase:
            await asyncio.sleep(0.02)

    def _path(self, server: Server) -> Path:
        return self._state / "servers" / server.owner.lineage

    def _read(self, server: Server) -> dict[str, Any] | None:
        path = self._path(server)
        return json.loads(path.read_text()) if path.exists() else None

    @staticmethod
    def _write(path: Path, data: Mapping[str, Any]) -> None:
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(data))
        os.replace(temporary, path)

    def _stands_for(self, record: Mapping[str, Any]) -> bool:
        return bool(_start_time(record["pid"]) == record["started"])

    def _signal(self, record: Mapping[str, Any], number: int) -> None:
        if self._stands_for(record):
            tree = _tree(record["pid"])
            for pid in tree if number == signal.SIGSTOP else reversed(tree):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _kill(self, record: Mapping[str, Any]) -> None:
        self._signal(record, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(record["pid"], 0)

    # ------------------------------------------------------------ for the spawner

    async def start(self, server: Server, launch: Mapping[str, Any]) -> int:
        """Start, or let go on; returns the port."""
        snapshot_id = launch.get("snapshot_id")
        await self._held("restoring" if snapshot_id else "starting")
        if snapshot_id and self._fault("restore") == "fail":
            raise Refused("restore_failed", "as the test asked for")
        if snapshot_id and self._fault("restore") != "fresh":
            saved = json.loads((self._state / "snapshots" / snapshot_id / "process").read_text())
            self._write(self._path(server), {**saved, "restored_from": snapshot_id})
            self._signal(saved, signal.SIGCONT)
            return int(saved["port"])
        port = free_port()
        env = {**launch["secret_env"], "JUPYTERHUB_SERVICE_URL": launch["secret_env"]["JUPYTERHUB_SERVICE_URL"].replace(":0/", f":{port}/")}
        home = self._state / "homes" / server.owner.lineage
        home.mkdir(parents=True, exist_ok=True)
        env.update(HOME=str(home), JUPYTER_RUNTIME_DIR=str(home / "runtime"))
        with open(self._state / "servers.log", "ab") as log:
            process = subprocess.Popen(
                launch["spec"]["argv"], env=env, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._write(
            self._path(server),
            {"pid": process.pid, "started": _start_time(process.pid), "port": port, "restored_from": snapshot_id and f"not {snapshot_id}"},
        )
        return port

    # ------------------------------------------------------------ protocol

    async def estimate(self, server: Server, facts: Mapping[str, Any]) -> Estimate:
        await self._held("preparing")
        return Estimate(1 << 20, 0.1, 0.1, self._fault("estimate"))

    async def save(self, server: Server, request: SaveRequest) -> None:
        path = self._state / "saves" / request.pause_id
        record = self._read(server)
        if path.exists() or record is None:
            return
        now = time.time()
        fault = self._fault("save")
        if fault == "lost":
            self._kill(record)
        if fault in ("fail", "lost"):
            self._write(path, {"state": "failed", "alive": fault == "fail"})
            return
        self._signal(record, signal.SIGSTOP)
        if fault == "hang":
            self._write(path, {"state": "saving", "at": now})
            return
        manifest = SnapshotManifest(
            request.snapshot_id,
            request.pause_id,
            server.key,
            server.owner,
            "process",
            now,
            1 << 20,
            {"spec": request.launch["spec"]},
            identity=request.identity,
        )
        folder = self._state / "snapshots" / request.snapshot_id
        folder.mkdir(exist_ok=True)
        (folder / "process").write_text(json.dumps(record))
        self._write(folder / "manifest.json", manifest_to_json(manifest))
        self._write(path, {"state": "saved", "at": now, "until": now + 300})

    async def observe(self, server: Server, pause_id: str) -> Observation:
        path = self._state / "saves" / pause_id
        if not path.exists():
            return Nothing()
        save = json.loads(path.read_text())
        if save["state"] == "failed":
            return Failed("save_failed", "as the test asked for", save["alive"])
        if save["state"] == "saving" or self._fault("hold") == "checkpointing":
            return Saving(save["at"], 0.5)
        return Saved(1 << 20, save["at"], save["at"], save["until"], "")

    async def confirm_frozen(self, server: Server, pause_id: str, seconds: float) -> bool:
        await self._held("saved")
        return isinstance(await self.observe(server, pause_id), Saved)

    async def thaw(self, server: Server, pause_id: str) -> None:
        record = self._read(server)
        (self._state / "saves" / pause_id).unlink(missing_ok=True)
        if record is not None:
            self._signal(record, signal.SIGCONT)

    async def manifest(self, snapshot_id: str) -> SnapshotManifest | None:
        path = self._state / "snapshots" / snapshot_id / "manifest.json"
        return manifest_from_json(json.loads(path.read_text())) if path.exists() else None

    def launch(self, manifest: SnapshotManifest, plain: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**plain, "snapshot_id": manifest.snapshot_id}

    async def capacity(self, server: Server, manifest: SnapshotManifest, launch: Mapping[str, Any] | None) -> Want | None:
        code = self._fault("capacity")
        return Want(code, "1 byte is free") if code else None

    async def alive(self, server: Server) -> bool:
        record = self._read(server)
        return record is not None and self._stands_for(record)

    async def signal(self, server: Server, manifest: SnapshotManifest) -> str:
        record = self._read(server)
        if record is None or not self._stands_for(record):
            return Signal.GONE
        return Signal.RESTORED if record["restored_from"] == manifest.snapshot_id else Signal.FRESH

    async def aids(self, server: Server) -> Mapping[str, Any]:
        return {}

    async def settled(self, server: Server) -> bool:
        return True

    async def remove(self, server: Server) -> None:
        """The process of a finished save only leaves our books: it is what the snapshot holds."""
        await self._held("stopping")
        record = self._read(server)
        if record is None:
            return
        kept = [json.loads(path.read_text())["pid"] for path in self._state.glob("snapshots/*/process")]
        self._path(server).unlink()
        if record["pid"] in kept:
            self._signal(record, signal.SIGSTOP)
        else:
            self._kill(record)

    async def delete(self, snapshot_id: str) -> None:
        await self._held("deleting")
        folder = self._state / "snapshots" / snapshot_id
        if not folder.exists():
            return
        record = json.loads((folder / "process").read_text())
        if not any(json.loads(path.read_text())["pid"] == record["pid"] for path in self._state.glob("servers/*")):
            self._kill(record)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()

    async def list(self) -> tuple[SnapshotManifest, ...]:
        found = [await self.manifest(path.name) for path in (self._state / "snapshots").iterdir()]
        return tuple(m for m in found if m is not None)


class ProcessWorkspaceSpawner(PausableMixin, Spawner):  # type: ignore[misc]
    """Servers as processes of this machine, all as the Hub's own user: for tests only."""

    state_dir = Unicode(help="Folder for records of processes, saves and homes.").tag(config=True)

    @classmethod
    def make_workspaces(cls, settings: MutableMapping[str, Any], spawner: Any) -> Workspaces:
        state = Path(spawner.state_dir)
        limits = replace(spawner.workspace_limits(), poll=0.05)
        workspaces = Workspaces(settings, ProcessEngine(state), TokenFiles(state / "tokens"), limits)
        workspaces.store.observe(KillSwitch(state))
        return workspaces

    async def run_pre_spawn_hook(self) -> None:
        """A deployment's hook that refuses, or takes its time."""
        engine = self.workspaces.engine
        assert isinstance(engine, ProcessEngine)
        if engine._fault("refuse_start"):
            raise web.HTTPError(403, "Not today.")
        await engine._held("hook")
        await maybe_future(super().run_pre_spawn_hook())

    async def workspace_plain_launch(self) -> Mapping[str, Any]:
        self.ip, self.port = "127.0.0.1", 0
        env = {
            **self.get_env(),
            "PATH": os.environ["PATH"],
            "GKE_WORKSPACES_GUEST_SECRET": self.workspaces.guest_secret(self.workspace_key),
        }
        argv = [str(Path(sys.prefix, "bin", self.cmd[0])), *self.cmd[1:], *self.get_args(), "--allow-root"]
        return {"spec": {"argv": argv}, "secret_env": env, "snapshot_id": None}

    async def workspace_launch(self, spec: Mapping[str, Any]) -> None:
        engine = self.workspaces.engine
        assert isinstance(engine, ProcessEngine)
        self._port = await engine.start(self.workspaces.server(self.workspace_key), spec)

    def workspace_url(self) -> str | None:
        port = getattr(self, "_port", None) or (self.server.port if self.server is not None else None)
        return None if not port or self.server is None else f"http://127.0.0.1:{port}{self.server.base_url}"
