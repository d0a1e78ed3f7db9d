"""Who drives a workspace, and when: on a call, from ``poll``, at a kick and at the Hub's start.

There is one driver per server at a time; a second caller joins it. Nothing here decides: the steps do.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Any

from ..lifecycle.drive import STEPS, drive, follow_up, retain
from ..lifecycle.model import Key, Workspace
from ..lifecycle.pausing import begin_pause
from ..lifecycle.phases import PAUSE_UNDER_WAY, RESUME_UNDER_WAY, Intent, Phase
from ..lifecycle.ports import Ports, Server
from ..lifecycle.reasons import Conflict, LifecycleError, Refused
from ..lifecycle.resuming import begin_discard, begin_resume, interrupted, retry
from .internals import Internals
from .store import HubStore


def new_pause_id() -> str:
    """Names one pause, and through it everything external that belongs to it."""
    return "p" + secrets.token_hex(8)


class Supervisor:
    """Starts, joins, interrupts and recovers drives."""

    def __init__(self, ports: Ports, store: HubStore, internals: Internals, log: logging.Logger) -> None:
        self._ports = ports
        self._store = store
        self._internals = internals
        self._log = log
        self._tasks: dict[Key, asyncio.Task[Any]] = {}
        self._scan: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ drives

    def drive(self, key: Key) -> asyncio.Task[Any]:
        """The drive of that server: the one under way, or a new one."""
        task = self._tasks.get(key)
        if task is None or task.done():
            task = asyncio.ensure_future(self._drive(key))
            self._tasks[key] = task
        return task

    async def _drive(self, key: Key) -> None:
        try:
            await drive(self._ports, key)
        except LifecycleError as error:
            self._log.error("The drive of %s ended in %s: %s", key, self._store.read(key).phase.value, error)
        except Exception:  # a bug must not leave the server pending without a word: the next kick tries again
            self._log.exception("The drive of %s failed in %s", key, self._store.read(key).phase.value)
        finally:
            if self._tasks.get(key) is asyncio.current_task():
                del self._tasks[key]
        try:
            await follow_up(self._ports, key)
            await retain(self._ports, key)
        except LifecycleError as error:
            self._log.warning("What follows the drive of %s did not work, the next kick tries again: %s", key, error)

    async def interrupt(self, key: Key) -> None:
        """End the drive of a resume that the Hub gave up, and leave the workspace paused with nothing of the server left."""
        task = self._tasks.get(key)
        if task is not None and task is not asyncio.current_task() and not task.done():
            task.cancel()
            await asyncio.wait([task])
        workspace = self._store.read(key)
        if workspace.phase in RESUME_UNDER_WAY:
            await self._ports.engine.remove(self._server(workspace))
            workspace = self._store.read(key)
            if workspace.phase in RESUME_UNDER_WAY:
                self._store.commit(workspace, interrupted(workspace))

    # ------------------------------------------------------------ calls

    def pause(self, key: Key) -> Workspace:
        """Begin a pause, or return the one under way. No await: deciding and marking are one step."""
        workspace = self._store.read(key)
        spawner = self._internals.spawner(key)
        if workspace.phase is Phase.RUNNING:
            if spawner is None or not spawner.ready:
                raise Refused("not_running")
            workspace = self._store.commit(
                workspace, begin_pause(workspace, self._ports.clock.time(), new_pause_id(), self._ports.hub_boot)
            )
            spawner._stop_future = self._stop_future(key, self.drive(key))
        elif workspace.phase not in PAUSE_UNDER_WAY | {Phase.PAUSED}:
            raise Conflict("phase_conflict", workspace.phase.value)
        return workspace

    def _stop_future(self, key: Key, task: asyncio.Task[Any]) -> asyncio.Future[None]:
        """What the Hub's "stop, then remove the server" waits for: done only when paused, an error when the pause failed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda f: f.cancelled() or f.exception())

        def settle(_task: asyncio.Task[Any]) -> None:
            spawner = self._internals.spawner(key)
            if getattr(spawner, "_stop_future", None) is future:
                spawner._stop_future = None
            if future.done():
                return
            if self._store.read(key).phase is Phase.PAUSED:
                future.set_result(None)
            else:
                future.set_exception(Conflict("pause_failed"))

        task.add_done_callback(settle)
        return future

    async def resume(self, key: Key) -> Workspace:
        """Begin a resume and wait until the process has proved itself, another one is up, or it is paused again.

        Runs inside the spawner's ``start``; when the Hub cancels that, nothing of the attempt is left.
        """
        workspace = self._store.read(key)
        self._store.commit(workspace, begin_resume(workspace, self._ports.clock.time(), self._ports.hub_boot))
        task = self.drive(key)
        try:
            while True:
                workspace = self._store.read(key)
                proved = workspace.pause is not None and workspace.pause.attempt is not None and workspace.pause.attempt.proof is not None
                if workspace.phase not in RESUME_UNDER_WAY or (workspace.phase is Phase.RESTORING and proved):
                    return workspace
                if task.done():
                    raise Conflict("restore_failed", f"the drive ended in {workspace.phase.value}")
                changed = asyncio.ensure_future(self._store.changed(key))
                await asyncio.wait({task, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self.interrupt(key)))
            raise

    async def discard(self, key: Key, code: str = "discarded") -> None:
        """Delete the paused process state and its tokens; returns when the bytes are gone."""
        workspace = self._store.read(key)
        if workspace.phase is not Phase.DELETING:
            self._store.commit(workspace, begin_discard(workspace, self._ports.clock.time(), code))
        await self.drive(key)

    def retry(self, key: Key) -> None:
        """End the unproven server and restore the snapshot again."""
        workspace = self._store.read(key)
        self._store.commit(workspace, retry(workspace))
        self.drive(key)

    # ------------------------------------------------------------ recovery

    async def settle(self, key: Key) -> Workspace:
        """Bring a workspace that another life of the Hub left half way to rest, by the same drive."""
        workspace = self._store.read(key)
        attempt = workspace.pause.attempt if workspace.pause else None
        if workspace.phase in STEPS and (attempt is None or attempt.hub_boot != self._ports.hub_boot):
            task = self.drive(key)
            proved = workspace.phase is Phase.RESTORING and attempt is not None and attempt.proof is not None
            if task is not asyncio.current_task() and not proved:  # the proved one waits for the Hub's own check, which waits for us
                await asyncio.shield(asyncio.wait([task]))
        return self._store.read(key)

    def kick(self) -> None:
        """Scan in the background; a scan under way is joined."""
        if self._scan is None or self._scan.done():
            self._scan = asyncio.ensure_future(self.scan())

    async def scan(self) -> None:
        """Drive every open workspace that nobody drives, and let go what retention no longer holds."""
        for workspace in list(self._store.all()):
            try:
                if workspace.phase in STEPS or workspace.intent is not Intent.NONE:
                    await asyncio.shield(asyncio.wait([self.drive(workspace.key)]))
                await retain(self._ports, workspace.key)
            except LifecycleError as error:
                self._log.error("Could not settle %s: %s", workspace.key, error)

    def _server(self, workspace: Workspace) -> Server:


        return Server(workspace.key, workspace.owner)

