"""Who drives a workspace, and when: on a call, from ``poll``, at a kick and at the Hub's start.

There is one driver per server at a time; a second caller joins it. Nothing here decides: the steps do.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from ..lifecycle.drive import STEPS, drive, follow_up, retain
from ..lifecycle.model import Key, Workspace
from ..lifecycle.pausing import begin_pause
from ..lifecycle.phases import RESUME_UNDER_WAY, Call, Intent, Phase
from ..lifecycle.ports import Ports, Server
from ..lifecycle.reasons import Conflict, LifecycleError, Refused
from ..lifecycle.resuming import begin_discard, begin_resume, interrupted, retry
from ..lifecycle.steps import check
from .internals import Internals
from .store import HubStore

START_SECONDS = 5.0
"""How long the Hub may take from a call to the start that it asks for (it may have to refresh the user's login)."""
WATCH_SECONDS = 0.1


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
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._afters: set[asyncio.Task[None]] = set()
        self._scan: asyncio.Task[None] | None = None
        self.reconcile: Callable[[], Awaitable[None]] | None = None
        """What else has to agree with the records, looked at after every scan."""

    # ------------------------------------------------------------ drives

    def drive(self, key: Key) -> asyncio.Task[None]:
        """The drive of that server: the one under way, or a new one."""
        task = self._tasks.get(key)
        if task is None or task.done():
            task = asyncio.ensure_future(self._drive(key))
            self._tasks[key] = task
        return task

    async def join(self, key: Key) -> Workspace:
        """Wait until the drive of that server has ended; cancelling the wait does not cancel the drive."""
        task = self.drive(key)
        if task is not asyncio.current_task():
            await asyncio.wait([task])
        return self._store.read(key)

    async def _drive(self, key: Key) -> None:
        try:
            await drive(self._ports, key)
        except LifecycleError as error:
            self._log.error("The drive of %s ended in %s: %s", key, self._store.read(key).phase.value, error)
        except Exception:  # noqa: BLE001 - a bug must not leave the server pending without a word: the next kick tries again
            self._log.exception("The drive of %s failed in %s", key, self._store.read(key).phase.value)
        finally:
            if self._tasks.get(key) is asyncio.current_task():
                del self._tasks[key]
        after = asyncio.ensure_future(self._after(key))
        self._afters.add(after)
        after.add_done_callback(self._afters.discard)

    async def _after(self, key: Key) -> None:
        """What a drive that has ended makes possible; not part of it, since the Hub waits for drives in ``poll`` and ``stop``."""
        try:
            await follow_up(self._ports, key)
            await retain(self._ports, key)
        except LifecycleError as error:
            self._log.warning("What follows the drive of %s did not work, the next kick tries again: %s", key, error)
        except Exception:  # noqa: BLE001 - as for a drive
            self._log.exception("What follows the drive of %s failed", key)

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
                await self._ports.hub.suspend_tokens(key)
                self._store.commit(workspace, interrupted(workspace))

    # ------------------------------------------------------------ calls

    def pause(self, key: Key) -> Workspace:
        """Begin a pause, or return the one under way. No await: deciding and marking are one step."""
        workspace = self._store.read(key)
        spawner = self._internals.spawner(key)
        if workspace.phase is Phase.RUNNING:
            if spawner is None or not spawner.ready:
                raise Refused("not_running")
            against = spawner.workspace_refusal()
            if against is not None:
                raise Refused("not_pausable", against)
            now = self._ports.clock.time()
            move = begin_pause(workspace, now, new_pause_id(), self._ports.hub_boot, last_work=self._internals.last_activity(key))
            workspace = self._store.commit(workspace, move)
            self.drive(key)
        else:
            check(workspace, Call.PAUSE)
        return workspace

    def stopped(self, key: Key) -> asyncio.Future[None]:
        """What the Hub's "stop, then remove the server" waits for: done only when paused, an error when the pause failed."""
        task = asyncio.ensure_future(self._stopped(key))
        task.add_done_callback(lambda t: t.cancelled() or t.exception())
        return task

    async def _stopped(self, key: Key) -> None:
        if (await self.join(key)).phase is not Phase.PAUSED:
            raise Conflict("pause_failed")

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
                changed = asyncio.ensure_future(self._store.changed(key))  # no await since the read above
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

    def ask_fresh(self, key: Key) -> None:
        """Let the Hub's next start of a paused server be a fresh one; the caller starts it at once."""
        check(self._store.read(key), Call.FRESH)
        self._store.ask(key, Intent.FRESH)
        watch = asyncio.ensure_future(self._forget_fresh(key))
        self._afters.add(watch)
        watch.add_done_callback(self._afters.discard)

    async def _forget_fresh(self, key: Key) -> None:
        """A start that the Hub refused before it began (a limit, a hook) must not make a later one a fresh one."""
        begin, seen = self._ports.clock.time(), False
        while True:
            workspace, spawner = self._store.read(key), self._internals.spawner(key)
            if workspace.phase is not Phase.PAUSED or workspace.intent is not Intent.FRESH:
                return
            pending = spawner is not None and bool(spawner.pending)
            if not pending and (seen or self._ports.clock.time() - begin > START_SECONDS):
                self._store.ask(key, Intent.NONE)
                return
            seen = seen or pending
            await self._ports.clock.sleep(WATCH_SECONDS)

    # ------------------------------------------------------------ recovery

    async def settle(self, key: Key) -> Workspace:
        """Bring a workspace that another life of the Hub left half way to rest, by the same drive."""
        workspace = self._store.read(key)
        attempt = workspace.pause.attempt if workspace.pause else None
        if workspace.phase in STEPS and (attempt is None or attempt.hub_boot != self._ports.hub_boot):
            if workspace.phase is Phase.RESTORING and attempt is not None and attempt.proof is not None:
                self.drive(key)  # not waited for: it waits for the Hub's own check, which waits for us
            else:
                await self.join(key)
        return self._store.read(key)

    def kick(self) -> None:
        """Scan in the background; a scan under way is joined."""
        if self._scan is None or self._scan.done():
            self._scan = asyncio.ensure_future(self.scan())

    async def scan(self) -> None:
        """Drive every open workspace that nobody drives, and let go what retention no longer holds."""
        await asyncio.gather(*(self._look_after(workspace) for workspace in list(self._store.all())))
        if self.reconcile is not None:
            try:
                await self.reconcile()
            except LifecycleError as error:
                self._log.warning("What is in the cluster could not be compared with the records, the next kick tries again: %s", error)

    async def _look_after(self, workspace: Workspace) -> None:
        if workspace.phase in STEPS:
            await self.join(workspace.key)
        else:
            await self._after(workspace.key)

    def _server(self, workspace: Workspace) -> Server:
        return Server(workspace.key, workspace.owner)
