"""Sandboxes of one state folder, for the engine: every call is idempotent, bounded in time and never blocks the event loop.

State lives on disk and in processes, never here: another process may hold the same state folder, and a Hub that was killed
finds everything again. What takes time is done by the sandbox's shim (:mod:`.shim`); a killed one is replaced here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from .diskroom import free_bytes, memory_bytes
from .errors import SandboxError
from .files import make_private, read_json
from .kept import Store
from .launching import Gone, Launcher, together
from .processes import Process, boot_id, command_lines
from .removal import remove_container
from .room import Room, rooms
from .saving import SaveResult, result_of
from .snapshots import Shelf
from .spec import Json, Network, SandboxSpec, Status, check_id

CALL_SECONDS = 20.0
"""Bound of a call that a shim answers at once."""
LONG_SECONDS = 90.0
"""Bound of thaw and remove, which wait for processes."""
CHECK_SECONDS = 600.0
"""Bound of the check of a snapshot's pages: 60 GB on a slow disk."""


class Address(NamedTuple):
    """Where a sandbox answers."""

    ip: str
    """Empty without a network."""


class Sandboxes:
    """All sandboxes and snapshots under ``state`` (made 0700; refused where others could replace it).

    ``mac_key`` signs snapshots; ``python`` runs the shims. Raises SandboxError ``state_unsafe``.
    """

    def __init__(self, state: Path, *, runsc: Path, network: Network | None, mac_key: bytes, python: str = sys.executable) -> None:
        make_private(state)
        self.state = Path(os.path.realpath(state))
        for name in ("sandboxes", "snapshots", "runsc-bin", "runsc"):
            (self.state / name).mkdir(mode=0o700, exist_ok=True)
        if len(mac_key) < 16:
            raise ValueError("mac_key is shorter than 16 bytes")
        self._shims = Launcher(self.state, runsc=runsc, network=network, mac_key=mac_key, python=python)
        self._shelf = Shelf(self.state, mac_key)
        self.snapshots_folder = self._shelf.folder
        """Where snapshots lie, to look at the disk that they are on."""
        self._launching: dict[str, asyncio.Future[str]] = {}

    # ------------------------------------------------------------ life

    async def start(self, sandbox_id: str, spec: SandboxSpec, secret_env: Mapping[str, str]) -> Address:
        """Cold start; returns when ``runsc run -detach`` has. Running already: its address.

        ``secret_env`` reaches the first process's environment through memory only.
        Raises SandboxError ``start_failed`` and ``runsc_unusable``; ``ValueError`` for a spec that cannot be.
        """
        spec.check()
        return await self._begin(sandbox_id, {"action": "start", "spec": spec.to_json(), "secret": dict(secret_env)}, None)

    async def restore(
        self, sandbox_id: str, spec: SandboxSpec, snapshot_id: str, secret_env: Mapping[str, str] = MappingProxyType({})
    ) -> Address:
        """Load a snapshot with the runsc that made it; returns when ``runsc restore`` has, pages may still be loading.

        A restored process has the environment that it was started with: a ``secret_env`` is a ``ValueError``.
        The mounts of ``spec`` must be those of the snapshot's. Small files are verified before; the pages meanwhile, see
        :meth:`verified`. Running already from that snapshot: its address.
        Raises SandboxError ``restore_failed``, ``snapshot_changed``, ``snapshot_gone``, ``files_changed``,
        ``not_enough_memory``, ``runsc_unusable``; ``busy`` when something else runs under that id.
        """
        spec.check()
        if secret_env:
            raise ValueError("a restored process keeps its environment")
        made = await asyncio.to_thread(self._shelf.read, snapshot_id, "spec.json")
        if made is None:
            raise SandboxError("snapshot_gone", f"there is no snapshot {snapshot_id}")
        return await self._begin(sandbox_id, {"action": "restore", "spec": spec.to_json(), "snapshot_id": snapshot_id}, made["runsc"])

    async def _begin(self, sandbox_id: str, config: dict[str, Json], digest: str | None) -> Address:
        room = Room(self.state, sandbox_id)
        if room.exists():
            status = await self.status(sandbox_id)
            if status.state in ("running", "frozen"):
                if status.restored_from == config.get("snapshot_id"):
                    return Address(status.address or "")
                raise SandboxError("busy", f"sandbox {sandbox_id} runs already, from {status.restored_from or 'a cold start'}")
            await self.remove(sandbox_id)
        task = self._launching.get(sandbox_id)
        if task is None:
            task = self._launching[sandbox_id] = asyncio.ensure_future(self._launch_whole(room, config, digest))
            task.add_done_callback(lambda done: self._launched(sandbox_id, done))
        # A caller that gives up waiting does not stop a start halfway: what it made is removed by remove().
        return Address(await asyncio.shield(task))

    async def _launch_whole(self, room: Room, config: dict[str, Json], digest: str | None) -> str:
        try:
            return await self._shims.launch(room.id, config, digest)
        except Exception:
            if not room.exists():
                await asyncio.to_thread(self._shims.detach, room.id)
            raise

    def _launched(self, sandbox_id: str, done: asyncio.Future[str]) -> None:
        del self._launching[sandbox_id]
        if not done.cancelled():
            done.exception()

    async def status(self, sandbox_id: str) -> Status:
        """What the host knows; replaces a killed shim of a running sandbox."""
        room = Room(self.state, sandbox_id)
        meta = room.meta()
        if meta is None:
            if not room.held():
                return Status("absent")
            await self._shims.settled(room)
            meta = room.meta()
            if meta is None:
                return Status("absent")
        common = {"address": meta["ip"] or None, "restored_from": meta["restored_from"], "started": meta["started"]}
        sentry = Process(*meta["sentry"])
        if not sentry.alive():
            await self._shims.exit_written(room)
            reason = room.reason() or ("machine_restarted" if sentry.boot != boot_id() else None)
            return Status("exited", exit_code=(room.exit() or {}).get("code"), reason=reason, **common)
        if not room.held():
            await self._shims.ensure_shim(room)
        save = room.save() or {}
        frozen = save.get("phase") == "saved" or (save.get("phase") == "saving" and save.get("frozen_at"))
        return Status("frozen" if frozen else "running", **common)

    async def remove(self, sandbox_id: str) -> None:
        """End it and everything of it but its home and its snapshots; returns when all of it is gone.

        Raises SandboxError ``remove_failed``.
        """
        room = Room(self.state, sandbox_id)
        if sandbox_id in self._launching:
            await asyncio.wait([self._launching[sandbox_id]])
        if room.exists():
            await self._shims.settled(room)
            await together(self._removed(room), asyncio.to_thread(self._shims.unplug, sandbox_id))
        else:
            await asyncio.to_thread(remove_container, self._shims.any_runsc(), sandbox_id)
        await asyncio.to_thread(self._shims.detach, sandbox_id)

    async def _removed(self, room: Room) -> None:
        try:
            await self._shims.call(room, {"call": "remove"}, LONG_SECONDS)
        except SandboxError as error:
            if error.code not in ("sandbox_gone", "shim_unreachable") or room.exists():
                raise SandboxError("remove_failed", error.detail) from error

    async def ids(self) -> tuple[str, ...]:
        """Everything of ours: rooms, processes and network namespaces, also of a sandbox whose room has been lost."""
        return await asyncio.to_thread(lambda: tuple(sorted({*rooms(self.state), *self._leftovers()})))

    async def memory(self, sandbox_id: str) -> int:
        """Bytes that a save would write, seen from the host. Raises SandboxError ``sandbox_gone``."""
        sentry = Room(self.state, sandbox_id).sentry()
        if sentry is None or not sentry.alive():
            raise SandboxError("sandbox_gone", f"sandbox {sandbox_id} does not run")
        return await asyncio.to_thread(memory_bytes, sentry.pid)  # looks at each of hundreds of descriptors

    async def room_on_disk(self) -> int:
        """Bytes that saves may still write, less what running saves have reserved."""
        return await asyncio.to_thread(free_bytes, self.state)

    # ------------------------------------------------------------ pause

    async def save(
        self, sandbox_id: str, pause_id: str, snapshot_id: str, manifest: Mapping[str, Json], deadline: float, frozen_for: float
    ) -> None:
        """Start saving, or join the save of the same pause; returns at once. ``deadline`` is wall clock.

        ``created``, ``bytes`` and ``open_files`` are added to the manifest.
        Raises SandboxError ``sandbox_gone``; ``busy`` while another pause is under way.
        """
        check_id("snapshot", snapshot_id)
        request = {
            "pause_id": pause_id,
            "snapshot_id": snapshot_id,
            "manifest": dict(manifest),
            "deadline": deadline,
            "frozen_for": frozen_for,
        }
        room = Room(self.state, sandbox_id)
        sentry = room.sentry()
        if sentry is None or not sentry.alive():
            raise SandboxError("sandbox_gone", f"sandbox {sandbox_id} does not run")
        await self._shims.call(room, {"call": "save", "save": request}, CALL_SECONDS)

    async def observe(self, sandbox_id: str, pause_id: str) -> SaveResult:
        """Where the save of that pause stands; replaces a killed shim (its save is given up then)."""
        room = Room(self.state, sandbox_id)
        if room.exists() and not room.held():
            await self._shims.ensure_shim(room)
        return result_of(room.save(), pause_id, room.sentry(), self._shelf.folder)

    async def frozen_unbroken(self, sandbox_id: str, pause_id: str, seconds: float) -> bool:
        """True when nothing of the user's ran since that save and nothing will for ``seconds`` more (a promise)."""
        try:
            answer = await self._shims.call(
                Room(self.state, sandbox_id), {"call": "unbroken", "pause_id": pause_id, "seconds": seconds}, CALL_SECONDS
            )
        except SandboxError as error:
            if error.code == "sandbox_gone":
                return False
            raise
        return bool(answer)

    async def thaw(self, sandbox_id: str, pause_id: str) -> None:
        """Give that pause up: end its save, remove what it wrote (a finished snapshot, too), let the server go on."""
        with contextlib.suppress(Gone):
            await self._shims.call(Room(self.state, sandbox_id), {"call": "thaw", "pause_id": pause_id}, LONG_SECONDS)

    async def aids(self, sandbox_id: str) -> dict[str, list[str]]:
        """What the restore of that sandbox needed besides its snapshot; see :meth:`.room.Room.aids`."""
        return await asyncio.to_thread(Room(self.state, sandbox_id).aids)

    # ------------------------------------------------------------ snapshots

    async def manifest(self, snapshot_id: str) -> dict[str, Json] | None:
        """The manifest, verified with all small files; ``None`` when there is no such snapshot.

        Raises SandboxError ``snapshot_changed``.
        """
        return await asyncio.to_thread(self._shelf.read, snapshot_id, "manifest.json")

    async def spec(self, snapshot_id: str) -> SandboxSpec | None:
        """The spec of the sandbox that was saved, verified like :meth:`manifest`."""
        made = await asyncio.to_thread(self._shelf.read, snapshot_id, "spec.json")
        return SandboxSpec.from_json(made["spec"]) if made else None

    async def verified(self, sandbox_id: str) -> None:
        """Wait until every byte of what that sandbox was restored from has been compared with what was written, the pages too.

        Raises SandboxError ``snapshot_changed``, ``snapshot_gone``, ``restore_failed``; ``sandbox_gone`` without such a sandbox.
        """
        await self._shims.call(Room(self.state, sandbox_id), {"call": "verified"}, CHECK_SECONDS)

    async def snapshots(self) -> tuple[str, ...]:
        """Ids of the complete ones."""
        return await asyncio.to_thread(self._shelf.ids)

    async def delete(self, snapshot_id: str) -> None:
        """Remove a snapshot; returns when the bytes are gone."""
        await asyncio.to_thread(self._delete, snapshot_id)

    def _delete(self, snapshot_id: str) -> None:
        self._shelf.delete(snapshot_id)
        Store(self.state).collect(self._wanted_copies)

    def _wanted_copies(self) -> set[str]:
        """Of files of the machine: those that snapshots need, and those that were made for pauses to come."""
        wanted: set[str] = set()
        for running in rooms(self.state):
            wanted |= Room(self.state, running).early()
        for left in self._shelf.ids():
            held = read_json(self._shelf.path(left) / "kept.json")
            wanted |= {entry["sha256"] for entry in (held or {"files": []})["files"] if "sha256" in entry}
        return wanted

    def _leftovers(self) -> set[str]:
        """Sandboxes of ours that have processes or a network."""
        runsc = self._shims.any_runsc()
        found = {container for _, words in command_lines() if (container := runsc.owns(words))}
        return found | self._shims.attached()
