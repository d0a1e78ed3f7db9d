"""Plain gVisor on one machine: the lifecycle's engine over :mod:`..sandbox`."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Mapping
from typing import Any

from ..lifecycle.model import Json, SnapshotManifest, manifest_from_json, manifest_to_json
from ..lifecycle.ports import Abilities, Estimate, Failed, Nothing, Observation, Saved, SaveRequest, Saving, Server, Signal
from ..lifecycle.reasons import Broken, LifecycleError, Refused, TryLater
from ..sandbox import Failed as SandboxFailed
from ..sandbox import SandboxError, Sandboxes, SandboxSpec
from ..sandbox import Saved as SandboxSaved
from ..sandbox import Saving as SandboxSaving

SAVE_BYTES_A_SECOND = 1.5e9
RESTORE_BYTES_A_SECOND = 2.5e9
"""First guesses, replaced by what this machine's own saves took (design: estimates come from measurements)."""
FIXED_SECONDS = 0.8
MEMORY_MARGIN = 256 << 20
"""Bytes of memory that stay free after a restore, for the host."""

MEASURED_FROM = 64 << 20
"""Bytes of a save from which on its speed says something."""

OF_THE_MOMENT = frozenset({"busy", "shim_unreachable", "remove_failed"})
"""Codes of the sandbox after which the same call may work later; all its codes are reason codes of the lifecycle."""


def sandbox_id(server: Server) -> str:
    """One sandbox per lineage; a hash of fixed length, so that no id is a prefix of another (``runsc`` resolves prefixes)."""
    return hashlib.sha256(f"{server.owner.user_id}/{server.owner.lineage}".encode()).hexdigest()[:24]


def _translate(error: SandboxError) -> LifecycleError:
    return (TryLater if error.code in OF_THE_MOMENT else Refused)(error.code, error.detail)


class GVisorEngine:
    """Implements :class:`~..lifecycle.ports.Engine`."""

    abilities = Abilities(name="gvisor", freezes=True, cancel_while_saving=True, gpu=False, tpu=False)

    def __init__(self, sandboxes: Sandboxes, log: logging.Logger) -> None:
        self._sandboxes = sandboxes
        self._log = log
        self._save_rate = SAVE_BYTES_A_SECOND

    # ------------------------------------------------------------ for the spawner

    async def start(self, server: Server, launch: Mapping[str, Json]) -> str:
        """Start or restore what ``launch`` says; returns the server's IP address."""
        spec = SandboxSpec.from_json(launch["spec"])
        secret_env: dict[str, str] = dict(launch.get("secret_env") or {})
        try:
            if launch.get("snapshot_id"):
                address = await self._sandboxes.restore(sandbox_id(server), spec, str(launch["snapshot_id"]))
            else:
                address = await self._sandboxes.start(sandbox_id(server), spec, secret_env)
        except SandboxError as error:
            raise _translate(error) from error
        return address.ip

    async def address(self, server: Server) -> str | None:
        """The IP address of a server that runs, also one that an earlier life of the Hub started."""
        status = await self._sandboxes.status(sandbox_id(server))
        return status.address

    # ------------------------------------------------------------ protocol

    async def estimate(self, server: Server, facts: Mapping[str, Json]) -> Estimate:
        size = await self._sandboxes.memory(sandbox_id(server))
        free = shutil.disk_usage(self._sandboxes.snapshots_folder).free
        refusal, detail = (None, "") if free > size * 1.05 + (64 << 20) else ("disk_full", f"{size} bytes to save, {free} free")
        return Estimate(
            bytes=size,
            seconds_pause=round(FIXED_SECONDS + size / self._save_rate, 1),
            seconds_resume=round(FIXED_SECONDS + size / RESTORE_BYTES_A_SECOND, 1),
            refusal=refusal,
            detail=detail,
            will_not_return=("Open network connections to other machines end; programs that hold them have to connect again.",),
        )

    async def save(self, server: Server, request: SaveRequest) -> None:
        manifest = SnapshotManifest(
            snapshot_id=request.snapshot_id,
            pause_id=request.pause_id,
            key=server.key,
            owner=server.owner,
            engine=self.abilities.name,
            created=0.0,
            bytes=0,
            launch={"spec": request.launch["spec"]},  # never its environment, which holds the token
            identity=request.identity,
        )
        try:
            await self._sandboxes.save(
                sandbox_id(server), request.pause_id, request.snapshot_id, manifest_to_json(manifest), request.deadline, request.frozen_for
            )
        except SandboxError as error:
            raise _translate(error) from error

    async def observe(self, server: Server, pause_id: str) -> Observation:
        result = await self._sandboxes.observe(sandbox_id(server), pause_id)
        if isinstance(result, SandboxSaved):
            seconds = result.durable_at - result.frozen_at
            if seconds > 0 and result.bytes > MEASURED_FROM:
                self._save_rate = result.bytes / seconds
            return Saved(result.bytes, result.frozen_at, result.durable_at, result.frozen_until, result.digest)
        if isinstance(result, SandboxSaving):
            return Saving(result.frozen_at, result.fraction)
        if isinstance(result, SandboxFailed):
            return Failed(result.reason, result.detail, result.alive)
        return Nothing()

    async def confirm_frozen(self, server: Server, pause_id: str, seconds: float) -> bool:
        return await self._sandboxes.frozen_unbroken(sandbox_id(server), pause_id, seconds)

    async def thaw(self, server: Server, pause_id: str) -> None:
        await self._sandboxes.thaw(sandbox_id(server), pause_id)

    async def manifest(self, snapshot_id: str) -> SnapshotManifest | None:
        try:
            data = await self._sandboxes.manifest(snapshot_id)
        except SandboxError as error:
            raise _translate(error) from error
        return None if data is None else manifest_from_json(data)

    def launch(self, manifest: SnapshotManifest, plain: Mapping[str, Json]) -> Mapping[str, Json]:
        """The saved sandbox again, if today's cold start would grant the same: home, user, limits and read-only trees."""
        saved: Any = manifest.launch.get("spec")
        today: Any = plain.get("spec")
        if not isinstance(saved, dict) or not isinstance(today, dict):
            raise Broken("record_unreadable", "the snapshot's launch spec is missing")
        for field in ("home", "uid", "gid", "home_inside"):
            if saved.get(field) != today.get(field):
                raise Refused("policy_changed", f"{field} is {today.get(field)} today, was {saved.get(field)}")
        if not set(saved.get("readonly") or ()) <= set(today.get("readonly") or ()):
            raise Refused("policy_changed", "a folder that the server could read is not given to it any more")
        if today.get("memory_limit") is not None and manifest.bytes > today["memory_limit"]:
            raise Refused("policy_changed", f"the memory limit is {today['memory_limit']} bytes today")
        return {"spec": {**saved, "memory_limit": today.get("memory_limit")}, "secret_env": {}, "snapshot_id": manifest.snapshot_id}

    async def capacity(self, server: Server, manifest: SnapshotManifest) -> str | None:
        return None if _available_memory() > manifest.bytes + MEMORY_MARGIN else "not_enough_memory"

    async def alive(self, server: Server) -> bool:
        return (await self._sandboxes.status(sandbox_id(server))).state in ("running", "frozen")

    async def signal(self, server: Server, manifest: SnapshotManifest) -> str:
        status = await self._sandboxes.status(sandbox_id(server))
        if status.state not in ("running", "frozen"):
            return Signal.GONE
        return Signal.RESTORED if status.restored_from == manifest.snapshot_id else Signal.FRESH

    async def remove(self, server: Server) -> None:
        await self._sandboxes.remove(sandbox_id(server))

    async def delete(self, snapshot_id: str) -> None:
        await self._sandboxes.delete(snapshot_id)

    async def list(self) -> tuple[SnapshotManifest, ...]:
        found = []
        for snapshot_id in await self._sandboxes.snapshots():
            try:
                manifest = await self.manifest(snapshot_id)
            except LifecycleError as error:
                self._log.warning("Snapshot %s is not taken into account: %s", snapshot_id, error)
                continue
            if manifest is not None:
                found.append(manifest)
        return tuple(found)


def _available_memory() -> int:
    """MemAvailable of the host, bytes."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
