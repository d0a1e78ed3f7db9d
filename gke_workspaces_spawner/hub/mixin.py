"""Makes a spawner's servers pausable: short bodies that answer the Hub from the phase and call composed objects.

Why each hook is here (read in jupyterhub 5.5 and 6.1): ``poll`` must answer from the phase first, since the Hub at its start
adopts whatever polls alive and stops whatever raises; ``stop`` acts on the phase only and never drives; ``clear_state`` runs at
every start and stop, so ``get_state`` copies what the store holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, MutableMapping
from typing import Any

from jupyterhub.utils import maybe_future
from traitlets import Float, HasTraits, Integer

from ..lifecycle.drive import purge
from ..lifecycle.model import Json, Key, Workspace
from ..lifecycle.pace import progress
from ..lifecycle.phases import OPEN, PAUSE_UNDER_WAY, RESUME_UNDER_WAY, Call, Intent, Outcome, Phase
from ..lifecycle.ports import Limits
from ..lifecycle.reasons import Conflict, LifecycleError, Refused, TryLater, reason
from ..lifecycle.resuming import begin_cold, begin_fresh, fall_back, interrupted
from ..lifecycle.steps import check
from .form import page_address, paused_form, pressed
from .internals import refusal
from .services import ENDED, SETTING, Workspaces
from .supervisor import ROOM_SECONDS

RESUMES = frozenset({Phase.PAUSED, Phase.WAITING})
"""Phases in which a start is a resume."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
PROGRESS_SECONDS = 1.0
"""How often the Hub's own progress page is told how far a restore is."""
SPARE_SECONDS = 30
"""What the Hub waits for a resume beyond the resume's own limits, which end it with a reason."""


class PausableMixin(HasTraits):
    """Mixed in before a Spawner class. The class gives ``make_workspaces``, ``workspace_plain_launch``, ``workspace_launch``."""

    pause_timeout = Integer(
        300, min=1, help="Seconds that a pause may take until its snapshot is durable; after them the server goes on."
    ).tag(config=True)
    prepare_timeout = Integer(10, min=1, help="Seconds that the server extension may take to close connections before a pause.").tag(
        config=True
    )
    frozen_margin = Integer(
        60,
        min=5,
        help="""
        Seconds for which a saved server must still stay frozen when it is removed.

        Otherwise (the Hub was away for too long) it goes on and the snapshot is thrown away.
        """,
    ).tag(config=True)
    wait_timeout = Integer(
        600,
        min=1,
        help="""
        Seconds that a resume may wait for room before it goes back to paused; may be hours.

        It waits outside of the Hub's start, so it takes no place of `concurrent_spawn_limit`.
        """,
    ).tag(config=True)
    restore_timeout = Integer(120, min=1, help="Seconds that a restored server may take to prove that it is the paused process.").tag(
        config=True
    )
    snapshot_expires = Float(
        14 * 86400.0,
        allow_none=True,
        help="Seconds after which a snapshot is deleted, counted from its pause; None keeps it until it is discarded.",
    ).tag(config=True)
    keep_last = Integer(1, min=0, help="Snapshots of a running server to keep after a proved resume; older ones are deleted.").tag(
        config=True
    )

    # ------------------------------------------------------------ for the class that mixes this in

    @classmethod
    def make_workspaces(cls, settings: MutableMapping[str, Any], spawner: Any) -> Workspaces:
        raise NotImplementedError

    async def workspace_plain_launch(self) -> Mapping[str, Json]:
        """Today's cold start of this server, as data."""
        raise NotImplementedError

    async def workspace_launch(self, spec: Mapping[str, Json]) -> None:
        """Start that spec; afterwards ``workspace_url`` answers."""
        raise NotImplementedError

    def workspace_url(self) -> str | None:
        """Where the server listens now, with its base URL; None when it does not run."""
        raise NotImplementedError

    def workspace_refusal(self) -> str | None:
        """Why this running server cannot be paused at all, for people; None when nothing is known against it."""
        return None

    @classmethod
    def with_settings_only(cls, config: Any) -> Any:
        """A spawner of nobody, for what the config file says."""
        return cls(config=config)

    def workspace_limits(self) -> Limits:
        """The traitlets as the lifecycle's limits."""
        return Limits(
            prepare=float(self.prepare_timeout),
            pause=float(self.pause_timeout),
            confirm_frozen=float(self.frozen_margin),
            waiting=float(self.wait_timeout),
            restore=float(self.restore_timeout),
            routed=float(self.http_timeout) + 30.0,  # type: ignore[attr-defined]
            expires=self.snapshot_expires,
            keep_last=int(self.keep_last),
        )

    # ------------------------------------------------------------ ours

    @classmethod
    def workspaces_for(cls, settings: Mapping[str, Any]) -> Workspaces:
        """The workspaces of the Hub with these tornado settings; made when they are first asked for."""
        of_the_hub = settings["users"].settings  # tornado's application holds a copy
        found = of_the_hub.get(SETTING)
        if found is None:
            found = of_the_hub[SETTING] = cls.make_workspaces(of_the_hub, cls.with_settings_only(of_the_hub["config"]))
        return found  # type: ignore[no-any-return]

    @property
    def workspaces(self) -> Workspaces:
        """The Hub's workspaces."""
        return self.workspaces_for(self.user.settings)  # type: ignore[attr-defined]

    @property
    def workspace_key(self) -> Key:
        return Key(self.user.name, self.name)  # type: ignore[attr-defined]

    @property
    def workspace(self) -> Workspace:
        """The record as it is now."""
        return self.workspaces.store.read(self.workspace_key)

    # ------------------------------------------------------------ the Hub's hooks

    @property
    def _stop_pending(self) -> bool:
        """A server that is being paused is one that is being stopped, for every call of the Hub (``pending`` reads this too)."""
        if self._hub_stops:
            return True
        return self.user is not None and self.workspace.phase in PAUSE_UNDER_WAY  # type: ignore[attr-defined]

    @_stop_pending.setter
    def _stop_pending(self, value: bool) -> None:
        self._hub_stops = value

    _hub_stops = False

    @property
    def _stop_future(self) -> Any:
        """What the Hub waits for before it removes a server that is stopping."""
        if self._hub_stop_future is None and self.workspace.phase in PAUSE_UNDER_WAY:
            return self.workspaces.supervisor.stopped(self.workspace_key)
        return self._hub_stop_future

    @_stop_future.setter
    def _stop_future(self, value: Any) -> None:
        self._hub_stop_future = value

    _hub_stop_future: Any = None

    def get_state(self) -> dict[str, Json]:
        return {**super().get_state(), **self.workspaces.store.state(self.workspace_key)}  # type: ignore[misc]

    def load_state(self, state: dict[str, Json]) -> None:
        super().load_state(state)  # type: ignore[misc]
        self.api_token = self.workspaces.credentials.token(self.workspace_key)
        self.will_resume = self.workspace.phase in OPEN

    def start(self) -> Any:
        """Not a coroutine itself: the Hub calls it, and then reads how long the start may take."""
        self.workspace_time_to_start()
        return self._start_workspace()

    def workspace_time_to_start(self) -> None:
        """The limits of a resume end it with a reason; the Hub's own must not come before them."""
        if self.workspace.phase in RESUMES and self.workspace.intent is not Intent.FRESH:
            seconds = int(ROOM_SECONDS + self.workspaces.limits.restore) + SPARE_SECONDS
            self.start_timeout = max(self.start_timeout, seconds)  # type: ignore[has-type]

    async def _start_workspace(self) -> Any:
        workspace = self.workspace
        if workspace.phase is Phase.RUNNING or (workspace.phase is Phase.PAUSED and workspace.intent is Intent.FRESH):
            await self._start_fresh(workspace)
        else:
            await self._resume()
        url = self.workspace_url() or ""
        return "/".join(url.split("/", 3)[:3])  # the Hub knows the path

    async def _resume(self) -> None:
        workspaces, key = self.workspaces, self.workspace_key
        self.will_resume = True
        try:
            await self._put_options_back()
            self._check_who_starts(self.workspace)
            workspaces.credentials.reuse(self, key)
            with workspaces.port.inside_start(key):
                workspace = await workspaces.supervisor.resume(key)
            if workspace.phase is Phase.WAITING:
                raise TryLater("waiting_for_room")
            if workspace.phase is Phase.PAUSED:
                raise Refused((workspace.pause.reason if workspace.pause else None) or "restore_failed")
        except LifecycleError as error:
            workspaces.credentials.drop_minted(key)
            words = reason(error.code)
            status = words.status if words.status < 500 else 409
            sentence = f"{words.sentence} {words.advice}".strip()
            see = page_address(self) if words.code == "waiting_for_room" else None
            raise workspaces.internals.refusal_of_a_start(self, status, sentence, words.code, see) from error
        except BaseException:  # the Hub gave up waiting, or was asked to stop it
            workspaces.credentials.drop_minted(key)
            raise
        self.will_resume = False

    def _check_who_starts(self, workspace: Workspace) -> None:
        """Only what somebody asked for is resumed, and a resume that waits for room goes on in the start that we ask for and in no other.

        Such a start of ours may come after that resume was cancelled: it must not begin another one.
        """
        handler = getattr(self, "handler", None)
        ours = self.workspaces.internals.is_ours(handler)
        if workspace.phase is Phase.WAITING:
            if not ours:
                raise TryLater("waiting_for_room")
            return
        if handler is not None and handler.request.method in SAFE_METHODS:  # never takes an accelerator by navigation
            raise Refused("start_by_link")
        if check(workspace, Call.START).outcome is not Outcome.DO:
            raise Conflict("busy", workspace.phase.value)
        if ours and workspace.intent not in (Intent.RESUME, Intent.RETRY):
            raise Refused((workspace.pause.reason if workspace.pause else None) or "resume_stopped")

    async def _start_fresh(self, workspace: Workspace) -> None:
        workspaces, key = self.workspaces, self.workspace_key
        if workspace.phase is Phase.PAUSED:
            workspaces.store.commit(workspace, begin_fresh(workspace, workspaces.clock.time()))
        else:
            self._begin_cold(workspace)
        self.will_resume = False
        await workspaces.engine.remove(workspaces.server(key))
        workspaces.credentials.forget(key)  # of the paused server, or of one that ended by itself
        workspaces.store.renew_lineage(key, self.user.orm_user.id)  # type: ignore[attr-defined]
        workspaces.credentials.remember(self, key)
        workspaces.keep_options(self)
        await self.workspace_launch(await self.workspace_plain_launch())

    async def _put_options_back(self) -> None:
        """A resume brings back what was started with the options of that time; a link or a call must not replace them."""
        options = self.workspaces.options(self)
        if self.user_options == options:  # type: ignore[has-type]
            return
        self.user_options = self.orm_spawner.user_options = options  # type: ignore[attr-defined]
        self.workspaces.internals.db.commit()
        await self.workspaces.internals.apply_options(self, options)

    def start_polling(self) -> None:
        self.workspaces.credentials.settle(self, self.workspace_key)
        super().start_polling()  # type: ignore[misc]

    async def stop(self, now: bool = False) -> None:
        workspaces, key, workspace = self.workspaces, self.workspace_key, self.workspace
        if workspace.phase in PAUSE_UNDER_WAY and workspace.phase is not Phase.STOPPING:
            workspace = await workspaces.supervisor.join(key)  # the Hub shuts its servers down: what is being saved stays saved
        self.will_resume = workspace.phase in OPEN
        if workspace.phase is Phase.RUNNING:
            self._begin_cold(workspace)
            await workspaces.engine.remove(workspaces.server(key))
            workspaces.credentials.forget(key)
        elif workspace.phase is Phase.STOPPING:
            await workspaces.engine.remove(workspaces.server(key))
        elif workspace.phase in RESUME_UNDER_WAY:
            await workspaces.supervisor.interrupt(key)
        elif workspace.phase is Phase.UNPROVEN:
            await self._unproven_server_goes(workspace)

    async def _unproven_server_goes(self, workspace: Workspace) -> None:
        workspaces, key = self.workspaces, self.workspace_key
        await workspaces.engine.remove(workspaces.server(key))
        workspaces.credentials.suspend(key)
        workspaces.store.commit(workspace, interrupted(workspace))

    async def poll(self) -> int | None:
        workspaces, key = self.workspaces, self.workspace_key
        workspace = await workspaces.supervisor.settle(key)
        self.will_resume = workspace.phase in OPEN
        if workspace.phase in PAUSE_UNDER_WAY and workspace.phase is not Phase.STOPPING:
            return None
        if workspace.phase in (Phase.PAUSED, Phase.WAITING, Phase.DELETING):  # what waits in line for room is no server yet
            if not self._spawn_pending:  # type: ignore[attr-defined]
                workspaces.credentials.drop_unused(self, key)
            return 0
        if await workspaces.engine.alive(workspaces.server(key)):
            return None
        if workspace.phase is Phase.RUNNING:
            await workspaces.engine.remove(workspaces.server(key))
            await self._fall_back(workspace)
        elif workspace.phase is Phase.UNPROVEN:
            await self._unproven_server_goes(workspace)
        return 1

    def _begin_cold(self, workspace: Workspace) -> None:
        move = begin_cold(workspace)
        if move is not None:
            self.workspaces.store.commit(workspace, move)

    async def _fall_back(self, workspace: Workspace) -> None:
        """A server that ended by itself is paused again where a snapshot of it is kept; its tokens wait for the resume then."""
        workspaces, key = self.workspaces, self.workspace_key
        why = workspaces.store.extra(key).get(ENDED)
        move = fall_back(workspace, workspaces.clock.time(), reason(why).sentence if why else "")
        if move is None or move.pause is None or not workspaces.credentials.token(key):
            return  # stopped or discarded by its user: what is kept has no tokens to come back with
        try:
            manifest = await workspaces.engine.manifest(str(move.pause.snapshot_id))
        except LifecycleError as error:
            self.log.warning("What is kept of %s, which ended by itself, is not offered: %s", self._log_name, error)  # type: ignore[attr-defined]
            return
        ours = manifest is not None and manifest.owner == workspace.owner  # not of a server before this one
        asked = self._spawn_pending or self._stop_pending  # type: ignore[attr-defined]  # its end, or what comes next, is somebody's wish
        if ours and not asked and self.workspace == workspace:
            workspaces.credentials.suspend(key)
            workspaces.store.commit(workspace, move)
            self.will_resume = True

    async def delete_forever(self) -> None:
        """The server or its user is deleted: its snapshots and tokens go with it."""
        workspaces, key = self.workspaces, self.workspace_key
        if self.workspace.phase is Phase.WAITING:  # outside of any start that the Hub could have ended before
            await workspaces.supervisor.interrupt(key)
        await purge(workspaces.ports, key)
        await workspaces.engine.remove(workspaces.server(key))
        workspaces.credentials.forget(key)
        workspaces.credentials.forget_client(key)
        workspaces.store.forget(key)

    async def get_options_form(self) -> Any:
        admin_form = await super().get_options_form()  # type: ignore[misc]
        return paused_form(self, admin_form or "") if self.workspace.phase in OPEN else admin_form

    async def run_options_from_form(self, form_data: dict[str, Any]) -> Any:
        """Act on the button of the Paused form that was pressed (the Hub calls this for posted forms only)."""
        button = pressed(form_data)
        if self.workspace.phase is Phase.WAITING:
            return self.workspaces.options(self)
        if self.workspace.phase is Phase.PAUSED:
            if button != "fresh":
                return self.workspaces.options(self)
            self.workspaces.supervisor.ask_fresh(self.workspace_key)
        return await maybe_future(super().run_options_from_form(form_data))  # type: ignore[misc]

    async def rename(self, old_name: str, new_name: str) -> None:
        key = Key(self.user.name, old_name)  # type: ignore[attr-defined]
        workspace = self.workspaces.store.read(key)
        try:
            check(workspace, Call.RENAME)
        except Conflict as error:
            words = reason(error.code)
            raise refusal(words.status, f"{words.sentence} {words.advice}", words.code) from error
        await super().rename(old_name, new_name)  # type: ignore[misc]
        self.workspaces.store.forget(key)

    async def progress(self) -> AsyncIterator[dict[str, Json]]:
        """The phase in words for the Hub's own progress page."""
        if self.workspace.phase not in RESUME_UNDER_WAY:
            async for event in super().progress():  # type: ignore[misc]
                yield event
            return
        last: tuple[str, int] | None = None
        while True:
            changed = asyncio.ensure_future(self.workspaces.store.changed(self.workspace_key))
            try:
                workspace = self.workspace
                if workspace.phase not in RESUME_UNDER_WAY:
                    return
                done = progress(workspace, self.workspaces.pace, self.workspaces.clock.time()).fraction or 0.0
                now = (reason(f"phase_{workspace.phase.value}").sentence, round(100 * done))
                if now != last:
                    last = now
                    yield {"progress": now[1], "message": now[0]}
                await asyncio.wait({changed}, timeout=PROGRESS_SECONDS)
            finally:
                changed.cancel()
