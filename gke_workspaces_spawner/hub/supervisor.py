"""Who drives a workspace, and when: on a call, from ``poll``, at a kick, at the Hub's start, and again after an outage.

There is one driver per server at a time; a second caller joins it. Nothing here decides: the steps do.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ..lifecycle.drive import STEPS, drive, follow_up, retain
from ..lifecycle.model import Key, Workspace
from ..lifecycle.pausing import begin_pause
from ..lifecycle.phases import PAUSE_UNDER_WAY, RESUME_UNDER_WAY, Call, Intent, Phase
from ..lifecycle.ports import Ports, Server
from ..lifecycle.reasons import Conflict, LifecycleError, Refused, TryLater
from ..lifecycle.resuming import begin_discard, begin_resume, interrupted, retry
from ..lifecycle.steps import check
from .internals import Internals
from .store import HubStore

ROOM_SECONDS = 5.0
"""For how long a start of the Hub looks whether there is room for a resume, well below its ``slow_spawn_timeout`` of 10 s."""
START_SECONDS = 5.0
"""How long the Hub may take from a call to the start that it asks for (it may have to refresh the user's login)."""
WATCH_SECONDS = 0.1
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
"""Seconds until a drive that only the moment was against is begun again, doubled at each try up to the longest."""


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
        self._again: dict[Key, asyncio.Task[None]] = {}
        """Drives that wait to be begun again."""
        self._tries: dict[Key, int] = {}
        """How often in a row the moment was against a drive."""
        self._afters: dict[asyncio.Task[None], Key] = {}
        self._leaving: set[Key] = set()
        """Servers that the Hub removes as soon as they are paused."""
        self._comparison: asyncio.Task[None] | None = None
        self.reconcile: Callable[[], Awaitable[None]] | None = None
        """What else has to agree with the records, looked at after every kick."""

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
        later: TryLater | None = None
        try:
            await drive(self._ports, key)
        except TryLater as error:
            later = error
        except LifecycleError as error:
            self._log.error("The drive of %s ended in %s: %s", key, self._store.read(key).phase.value, error)
        except Exception:  # noqa: BLE001 - a bug must not leave the server pending without a word: the next kick tries again
            self._log.exception("The drive of %s failed in %s", key, self._store.read(key).phase.value)
        finally:
            if self._tasks.get(key) is asyncio.current_task():
                del self._tasks[key]
            if later is None:
                self._tries.pop(key, None)
        if later is not None:
            self._try_again(key, later)
        self._follow(key, self._after(key))

    def _try_again(self, key: Key, why: TryLater) -> None:
        """Begin the drive again after a pause, beside whoever waited for this one: the Hub is not to wait for the end of an outage."""
        tries = self._tries.get(key, 0)
        self._tries[key] = tries + 1
        seconds = min(FIRST_PAUSE * 2.0**tries, LONGEST_PAUSE)
        self._log.warning("The drive of %s stays in %s and goes on in %g s: %s", key, self._store.read(key).phase.value, seconds, why)
        self._call_off(key)
        self._again[key] = asyncio.ensure_future(self._drive_in(key, seconds))

    async def _drive_in(self, key: Key, seconds: float) -> None:
        await self._ports.clock.sleep(seconds)
        self._again.pop(key, None)
        self.drive(key)  # harmless where somebody else has brought it to rest, and joins a drive under way

    def _call_off(self, key: Key) -> None:
        again = self._again.pop(key, None)
        if again is not None:
            again.cancel()

    def _follow(self, key: Key, work: Coroutine[Any, Any, None]) -> None:
        """Do it in the background."""
        task = asyncio.ensure_future(work)
        self._afters[task] = key
        task.add_done_callback(lambda done: self._afters.pop(done, None))

    async def _after(self, key: Key) -> None:
        """What a drive that has ended makes possible; not part of it, since the Hub waits for drives in ``poll`` and ``stop``."""
        try:
            if key not in self._leaving:
                await follow_up(self._ports, key)
            await retain(self._ports, key)
        except LifecycleError as error:
            self._log.warning("What follows the drive of %s did not work, the next kick tries again: %s", key, error)
        except Exception:  # noqa: BLE001 - as for a drive
            self._log.exception("What follows the drive of %s failed", key)

    async def interrupt(self, key: Key) -> None:
        """End the drive of a resume that the Hub gave up, and leave the workspace paused with nothing of the server left.

        A drive that somebody begins meanwhile waits, and finds it paused. Where the server cannot be removed now, the drive goes on
        trying to.
        """
        self._call_off(key)
        task = self._tasks.get(key)
        if task is asyncio.current_task():
            await self._leave_resume(key)
            return
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])
        async with self._store.exclusive(key):
            await self._leave_resume(key)

    async def _leave_resume(self, key: Key) -> None:
        workspace = self._store.read(key)
        if workspace.phase not in RESUME_UNDER_WAY:
            return
        try:
            await self._ports.engine.remove(self._server(workspace))
        except TryLater as error:
            self._store.ask(key, Intent.CANCEL)
            self._try_again(key, error)
            raise
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
        """What the Hub waits for that was asked to remove a server in the middle of its pause: done when nothing of it runs.

        Cancelled (the Hub gives the removal up without a word) where the server cannot be stopped; the log says why.
        """
        return asyncio.ensure_future(self._stopped(key))

    async def _stopped(self, key: Key) -> None:
        self._leaving.add(key)
        try:
            phase = (await self.join(key)).phase
            while phase in PAUSE_UNDER_WAY:  # an outage: the drive is begun again by itself
                await self._store.changed(key)
                phase = self._store.read(key).phase
            if phase is Phase.RUNNING:  # the pause came to nothing
                await self._ports.hub.stop(key)
        except Exception as error:
            self._log.exception("%s, whose removal was asked for while it was paused, is not removed", key)
            raise asyncio.CancelledError from error
        finally:
            self._leaving.discard(key)

    async def resume(self, key: Key) -> Workspace:
        """Begin a resume, or go on with one that waits for room; returns when the process has proved itself, another one is up, or it is
        paused again: and, still ``waiting``, when there is no room within :data:`ROOM_SECONDS`.

        Runs inside the spawner's ``start``; when the Hub cancels that, nothing of the attempt is left.
        """
        workspace = self._store.read(key)
        if workspace.phase is not Phase.WAITING:
            self._store.commit(workspace, begin_resume(workspace, self._ports.clock.time(), self._ports.hub_boot))
        task = self.drive(key)
        looked = asyncio.ensure_future(self._ports.clock.sleep(ROOM_SECONDS))
        try:
            while True:
                workspace = self._store.read(key)
                proved = workspace.pause is not None and workspace.pause.attempt is not None and workspace.pause.attempt.proof is not None
                if workspace.phase not in RESUME_UNDER_WAY or (workspace.phase is Phase.RESTORING and proved):
                    return workspace
                if workspace.phase is Phase.WAITING and looked.done():
                    if workspace.waits_for is not None:
                        return workspace
                    looked = asyncio.ensure_future(self._ports.clock.sleep(WATCH_SECONDS))  # its drive is in the middle of a look
                if task.done():
                    raise Conflict("restore_failed", f"the drive ended in {workspace.phase.value}")
                changed = asyncio.ensure_future(self._store.changed(key))  # no await since the read above
                ends = {task, changed, looked} if workspace.phase is Phase.WAITING else {task, changed}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self.interrupt(key)))
            raise
        finally:
            looked.cancel()

    def stop_waiting(self, key: Key) -> None:
        """The Hub was asked to stop a server: a resume of it that waits for room outside of any start is to come to nothing."""
        if self._store.read(key).phase is Phase.WAITING:
            self._store.ask(key, Intent.CANCEL)
            self.drive(key)

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
        self._follow(key, self._forget_fresh(key))

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
        """Drive every open workspace that nobody drives, let go what retention no longer holds, compare the rest with the records.

        Nothing is waited for: one server that waits for room, or one deletion that is stuck, must not keep the others from being looked
        after. A comparison under way is joined.
        """
        busy = set(self._afters.values())
        for workspace in list(self._store.all()):
            if workspace.phase in STEPS:
                self.drive(workspace.key)
            elif workspace.key not in busy:
                self._follow(workspace.key, self._after(workspace.key))
        if self.reconcile is not None and (self._comparison is None or self._comparison.done()):
            self._comparison = asyncio.ensure_future(self._compare(self.reconcile))

    async def _compare(self, reconcile: Callable[[], Awaitable[None]]) -> None:
        try:
            await reconcile()
        except LifecycleError as error:
            self._log.warning("What is in the cluster could not be compared with the records, the next kick tries again: %s", error)
        except Exception:  # noqa: BLE001 - as for a drive
            self._log.exception("What is in the cluster could not be compared with the records")

    def _server(self, workspace: Workspace) -> Server:
        return Server(workspace.key, workspace.owner)
