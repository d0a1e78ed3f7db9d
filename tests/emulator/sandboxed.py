"""Real pods: each in a gVisor sandbox, through the project's own sandbox layer; a checkpoint is its save, with all bytes.

One home: the first volume that is mounted under ``/home``. The image's root file system is this machine's Python environment,
read-only, below a root that is in memory and part of a snapshot. Secrets and ConfigMaps reach the pod by its environment only.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import shutil
import signal
import site
import sys
import sysconfig
import time
import uuid
from collections.abc import Coroutine
from importlib.util import find_spec
from pathlib import Path

from gke_workspaces_spawner.sandbox import Failed, Network, SandboxError, Sandboxes, SandboxSpec, Saved, binary
from gke_workspaces_spawner.sandbox.room import Room

from .restores import MAKING
from .runtime import Ended, Launch, RestoreCrashed

LOOK_SECONDS = 0.1
SAVE_SECONDS = 600.0
STILL_SECONDS = 86400.0
"""For how long a saved sandbox stays frozen unless somebody lets it go."""
MACS = "macs.json"
HOME = "/home/jovyan"


class SandboxInstance:
    """One pod in a sandbox."""

    def __init__(self, runtime: SandboxRuntime, launch: Launch, sandbox_id: str, ip: str, snapshot: str | None) -> None:
        self.ip = ip
        self._runtime = runtime
        self._sandboxes = runtime.sandboxes
        self._launch = launch
        self._id = sandbox_id
        self._restored_from = snapshot
        self._pause: str | None = None
        self._saved: str | None = None
        self._still = False
        self._ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._watch = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        while True:
            status = await self._sandboxes.status(self._id)
            if status.state in ("exited", "absent"):
                oom = status.reason == "memory_limit"
                code = 137 if oom else status.exit_code if status.exit_code is not None else 137
                self._end(Ended(code, "OOMKilled" if oom else "Error" if code else "Completed"))
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _end(self, ended: Ended) -> None:
        if not self._ended.done():
            self._ended.set_result(ended)

    async def ended(self) -> Ended:
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        self._runtime.background(self._runsc("kill", self._id, str(int(signal.SIGTERM))))

    async def kill(self, reason: str = "Error") -> None:
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        self._end(Ended(0 if reason == "Completed" else 137, reason))
        await self._sandboxes.remove(self._id)
        for snapshot in {self._saved, self._restored_from} - {None}:
            assert snapshot is not None
            await self._runtime.forget(snapshot, self)

    async def freeze(self) -> None:
        await self._runsc("pause", self._id)
        self._still = True

    async def go_on(self, word: str) -> None:
        if self._still:
            self._still = False
            await self._runsc("resume", self._id)
        if self._pause is not None:
            pause, self._pause, self._saved = self._pause, None, None
            await self._sandboxes.thaw(self._id, pause)

    async def checkpoint(self, folder: Path) -> None:
        if self._still:
            await self.go_on("")
        self._pause, self._saved = uuid.uuid4().hex, uuid.uuid4().hex
        try:
            await self._sandboxes.save(self._id, self._pause, self._saved, {}, time.time() + SAVE_SECONDS, STILL_SECONDS)
            while True:
                found = await self._sandboxes.observe(self._id, self._pause)
                if isinstance(found, Saved):
                    break
                if isinstance(found, Failed):
                    raise OSError(f"{found.reason}: {found.detail}")
                await asyncio.sleep(LOOK_SECONDS)
        except SandboxError as error:
            raise OSError(str(error)) from error
        # Copied, not linked: to let the original go on empties what was saved.
        await asyncio.to_thread(shutil.copytree, self._sandboxes.snapshots_folder / self._saved, folder, dirs_exist_ok=True)

    def log(self) -> str:
        with contextlib.suppress(OSError):
            return Path(Room(self._sandboxes.state, self._id).log).read_text(errors="replace")
        return ""

    async def _runsc(self, verb: str, *arguments: str) -> None:
        meta = Room(self._sandboxes.state, self._id).meta()
        if meta is None:
            return
        command = binary.installed(meta["runsc"], self._sandboxes.state).command(verb, *arguments)
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*command, stdin=quiet, stdout=quiet, stderr=quiet)
        await process.wait()


class SandboxRuntime:
    """Sandboxes of one emulator, with a network of their own; ``hub_host`` is where they reach a hub on the ports given."""

    def __init__(self, folder: Path, runsc: Path, hub_ports: tuple[int, ...]) -> None:
        state = folder / "sandboxes"
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._homes = folder / "homes"
        self.network = Network.open(state, hub_ports=hub_ports)
        self.sandboxes = Sandboxes(state, runsc=runsc, network=self.network, mac_key=secrets.token_bytes(32))
        self._instances: set[SandboxInstance] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, launch: Launch) -> SandboxInstance:
        spec = self._spec(launch)
        address = await self.sandboxes.start(_sandbox_id(launch), spec, _environment(launch))
        return self._made(launch, address.ip, None)

    async def restore(self, launch: Launch, folder: Path) -> SandboxInstance:
        snapshot: str = json.loads((folder / MACS).read_text(encoding="utf-8"))["snapshot"]
        target = self.sandboxes.snapshots_folder / snapshot
        if not target.exists():
            (folder / MAKING).unlink(missing_ok=True)  # not the sandbox layer's: it takes an added file for an attack
            await asyncio.to_thread(shutil.move, folder, target)
        try:
            saved = await self.sandboxes.spec(snapshot)
            if saved is None:
                raise RestoreCrashed("OCI runtime restore failed: the image is not whole")
            today = self._spec(launch)
            spec = saved._replace(home=today.home, memory_limit=today.memory_limit)
            address = await self.sandboxes.restore(_sandbox_id(launch), spec, snapshot)
        except SandboxError as error:
            raise RestoreCrashed(f"failed to create containerd task: OCI runtime restore failed: {error.code}: {error.detail}") from error
        return self._made(launch, address.ip, snapshot)

    def _made(self, launch: Launch, ip: str, snapshot: str | None) -> SandboxInstance:
        instance = SandboxInstance(self, launch, _sandbox_id(launch), ip, snapshot)
        self._instances.add(instance)
        return instance

    def _spec(self, launch: Launch) -> SandboxSpec:
        homes = {inside: path for inside, path in launch.volumes.items() if inside.startswith("/home/")}
        inside = min(homes, default=HOME)
        home = homes.get(inside) or self._homes / launch.pod_uid
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chown(home, launch.uid, launch.gid)
        first = Path(sys.prefix, "bin", launch.argv[0])
        return SandboxSpec(
            argv=(str(first) if first.exists() else launch.argv[0], *launch.argv[1:]),
            env={},
            uid=launch.uid,
            gid=launch.gid,
            user="jovyan",
            home=str(home),
            home_inside=inside,
            readonly=interpreter_paths(),
            memory_limit=launch.memory,
            hostname=launch.pod[:63],
        )

    def background(self, work: Coroutine[None, None, None]) -> None:
        """Run it beside everything else."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def forget(self, snapshot: str, user: SandboxInstance) -> None:
        """Remove the local copy of a snapshot that nobody else runs from."""
        self._instances.discard(user)
        if not any(one._restored_from == snapshot for one in self._instances):
            await self.sandboxes.delete(snapshot)

    async def close(self) -> None:
        await asyncio.gather(*(one.kill() for one in list(self._instances)))
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for left in await self.sandboxes.ids():
            await self.sandboxes.remove(left)
        await asyncio.to_thread(self.network.close)


def _sandbox_id(launch: Launch) -> str:
    return hashlib.sha256(launch.pod_uid.encode()).hexdigest()[:24]


def _environment(launch: Launch) -> dict[str, str]:
    """What the image sets, and the pod's on top."""
    image = {
        "HOME": min((inside for inside in launch.volumes if inside.startswith("/home/")), default=HOME),
        "USER": "jovyan",
        "LOGNAME": "jovyan",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "PATH": f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin",
        "HOSTNAME": launch.pod,
    }
    return {**image, **launch.env}


def interpreter_paths() -> tuple[str, ...]:
    """What a Python process of this environment reads: the venv, its base, the sources of an editable install."""
    packages = (find_spec(name) for name in ("gke_workspaces_spawner", "jupyter_pause_ext"))
    sources = [os.path.dirname(os.path.realpath(spec.origin)) for spec in packages if spec is not None and spec.origin]
    prefixes = [sys.prefix, os.path.realpath(sys.prefix), sys.base_prefix, sysconfig.get_path("purelib"), *site.getsitepackages()]
    wanted = {path for path in (*prefixes, *sources) if os.path.isdir(path) and not f"{path}/".startswith("/usr/")}
    return tuple(
        sorted({path for path in wanted if not any(path != other and f"{path}/".startswith(f"{other}/") for other in wanted)} | {"/usr"})
    )
