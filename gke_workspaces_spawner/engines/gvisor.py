"""Plain gVisor on one machine: the lifecycle's engine over :mod:`..sandbox`."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..lifecycle.model import Json, SnapshotManifest, Want, manifest_from_json, manifest_to_json
from ..lifecycle.pace import first_guess
from ..lifecycle.ports import Abilities, Estimate, Failed, Nothing, Observation, Saved, SaveRequest, Saving, Server, Signal
from ..lifecycle.reasons import Broken, LifecycleError, Refused, TryLater
from ..sandbox import Failed as SandboxFailed
from ..sandbox import SandboxError, Sandboxes, SandboxSpec
from ..sandbox import Saved as SandboxSaved
from ..sandbox import Saving as SandboxSaving

SAVE_BYTES_A_SECOND = 1.5e9
"""First guess, replaced by what this machine's own saves took (design: estimates come from measurements)."""
FIXED_SECONDS = 0.8
LOADING_SECONDS = 5.0
SLOWEST_LOADING = 200e6
"""Bytes a second: for how long the memory of a restore counts as promised and not yet seen as used."""

ALIVE = ("running", "frozen")
"""States of a sandbox in which its processes exist."""

MEASURED_FROM = 64 << 20
"""Bytes of a save from which on its speed says something."""

OF_THE_MOMENT = frozenset({"busy", "shim_unreachable", "remove_failed"})
"""Codes of the sandbox after which the same call may work later; all its codes are reason codes of the lifecycle."""


def sandbox_id(server: Server) -> str:
    """One sandbox per lineage; a hash of fixed length, so that no id is a prefix of another (``runsc`` resolves prefixes)."""
    return hashlib.sha256(f"{server.owner.user_id}/{server.owner.lineage}".encode()).hexdigest()[:24]


@contextlib.contextmanager
def _in_our_words() -> Iterator[None]:
    """Turn the sandbox's error into the lifecycle's."""
    try:
        yield
    except SandboxError as error:
        raise (TryLater if error.code in OF_THE_MOMENT else Refused)(error.code, error.detail) from error


class GVisorEngine:
    """Implements :class:`~..lifecycle.ports.Engine`."""

    abilities = Abilities(name="gvisor", freezes=True, cancel_while_saving=True, gpu=False, tpu=False)

    def __init__(self, sandboxes: Sandboxes, log: logging.Logger, memory_reserve: int) -> None:
        """``memory_reserve``: bytes of this machine's memory that stay free when a server is restored."""
        self._sandboxes = sandboxes
        self._log = log
        self._reserve = memory_reserve
        self._save_rate = SAVE_BYTES_A_SECOND
        self._promised: dict[str, tuple[int, float]] = {}

    # ------------------------------------------------------------ for the spawner

    async def start(self, server: Server, launch: Mapping[str, Json]) -> str:
        """Start or restore what ``launch`` says; returns the server's IP address."""
        spec = SandboxSpec.from_json(launch["spec"])
        secret_env: dict[str, str] = dict(launch.get("secret_env") or {})
        snapshot_id = launch.get("snapshot_id")
        with _in_our_words():
            if snapshot_id is None:
                return (await self._sandboxes.start(sandbox_id(server), spec, secret_env)).ip
            return (await self._sandboxes.restore(sandbox_id(server), spec, snapshot_id)).ip

    async def address(self, server: Server) -> str | None:
        """The IP address of a server that runs, also one that an earlier life of the Hub started."""
        status = await self._sandboxes.status(sandbox_id(server))
        return status.address

    async def why_ended(self, server: Server) -> str | None:
        """Reason code of an end by the machine (``memory_limit``, ``machine_restarted``); ``None`` for any other end, or none."""
        with _in_our_words():
            return (await self._sandboxes.status(sandbox_id(server))).reason

    # ------------------------------------------------------------ protocol

    async def estimate(self, server: Server, facts: Mapping[str, Json]) -> Estimate:
        with _in_our_words():
            size = await self._sandboxes.memory(sandbox_id(server))
            free = await self._sandboxes.room_on_disk()
        refusal, detail = (None, "") if free > size * 1.05 + (64 << 20) else ("disk_full", f"{size} bytes to save, {free} free")
        return Estimate(
            bytes=size,
            seconds_pause=round(FIXED_SECONDS + size / self._save_rate, 1),
            seconds_resume=round(first_guess(size), 1),
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
        with _in_our_words():
            await self._sandboxes.save(
                sandbox_id(server), request.pause_id, request.snapshot_id, manifest_to_json(manifest), request.deadline, request.frozen_for
            )

    async def observe(self, server: Server, pause_id: str) -> Observation:
        with _in_our_words():
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
        with _in_our_words():
            return await self._sandboxes.frozen_unbroken(sandbox_id(server), pause_id, seconds)

    async def thaw(self, server: Server, pause_id: str) -> None:
        with _in_our_words():
            await self._sandboxes.thaw(sandbox_id(server), pause_id)

    async def manifest(self, snapshot_id: str) -> SnapshotManifest | None:
        """With the spec of the sandbox that was saved, which is not today's."""
        with _in_our_words():
            data = await self._sandboxes.manifest(snapshot_id)
            spec = await self._sandboxes.spec(snapshot_id)
        if data is None or spec is None:
            return None
        return replace(manifest_from_json(data), launch={"spec": spec.to_json()})

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

    async def capacity(self, server: Server, manifest: SnapshotManifest, launch: Mapping[str, Json] | None) -> Want | None:
        """Whether it fits into free memory, beside the restores whose pages are still being loaded.

        Raises :class:`~..lifecycle.reasons.Refused` when it would not fit if nothing else ran: there is nothing to wait for.
        """
        now, memory = time.monotonic(), _memory()
        if memory["MemTotal"] < manifest.bytes + self._reserve:
            free = memory["MemTotal"] - self._reserve
            raise Refused("not_enough_memory", f"it needs {manifest.bytes:,} bytes, this machine has {max(0, free):,} for servers")
        self._promised = {other: promise for other, promise in self._promised.items() if promise[1] > now}
        loading = sum(size for other, (size, _until) in self._promised.items() if other != sandbox_id(server))
        free = memory["MemAvailable"] - loading - self._reserve
        if free < manifest.bytes:
            return Want("not_enough_memory", f"it needs {manifest.bytes:,} bytes, {max(0, free):,} are free for servers")
        self._promised[sandbox_id(server)] = (manifest.bytes, now + LOADING_SECONDS + manifest.bytes / SLOWEST_LOADING)
        return None

    async def alive(self, server: Server) -> bool:
        with _in_our_words():
            return (await self._sandboxes.status(sandbox_id(server))).state in ALIVE

    async def signal(self, server: Server, manifest: SnapshotManifest) -> str:
        """Our own restore succeeded, its sandbox lives, and every byte of its image is the one that was written."""
        try:
            await self._sandboxes.verified(sandbox_id(server))
            status = await self._sandboxes.status(sandbox_id(server))
        except SandboxError as error:
            if error.code == "sandbox_gone":
                return Signal.GONE
            with _in_our_words():
                raise
        if status.state not in ALIVE:
            return Signal.GONE
        return Signal.RESTORED if status.restored_from == manifest.snapshot_id else Signal.FRESH

    async def aids(self, server: Server) -> Mapping[str, Json]:
        with _in_our_words():
            return await self._sandboxes.aids(sandbox_id(server))

    async def settled(self, server: Server) -> bool:
        """Our own restore has succeeded or failed before anybody is told of it."""
        return True

    async def remove(self, server: Server) -> None:
        with _in_our_words():
            await self._sandboxes.remove(sandbox_id(server))

    async def delete(self, snapshot_id: str) -> None:
        with _in_our_words():
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


def _memory() -> dict[str, int]:
    """``MemTotal``, ``MemAvailable`` and what else ``/proc/meminfo`` counts of the host's memory, bytes."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        rows = (line.split() for line in lines)
        return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if row[-1] == "kB"}
