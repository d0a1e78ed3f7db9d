"""Makes a spawner's servers pausable: short bodies that answer the Hub from the phase and call composed objects.

Why each hook is here (read in jupyterhub 5.5 and 6.1): ``poll`` must answer from the phase first, since the Hub at its start
adopts whatever polls alive and stops whatever raises; ``stop`` acts on the phase only and never drives; ``clear_state`` runs at
every start and stop, so ``get_state`` copies what the store holds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from jupyterhub.utils import maybe_future
from traitlets import Float, HasTraits, Integer

from ..lifecycle.drive import purge
from ..lifecycle.model import Json, Key, Workspace
from ..lifecycle.phases import OPEN, PAUSE_UNDER_WAY, RESUME_UNDER_WAY, Intent, Phase
from ..lifecycle.ports import Limits
from ..lifecycle.reasons import LifecycleError, Refused, reason
from ..lifecycle.resuming import begin_fresh, interrupted
from .form import paused_form, pressed
from .internals import hub_failure_free_error
from .services import SETTING, Workspaces

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class PausableMixin(HasTraits):
    """Mixed in before a Spawner class. The class gives ``make_workspaces``, ``workspace_plain_launch``, ``workspace_launch``."""

    pause_timeout = Integer(
        300, min=1, help="Seconds that a pause may take until its snapshot is durable; after them the server goes on."
    ).tag(config=True)
    prepare_timeout = Integer(
        10, min=1, help="Seconds that the server extension may take to close connections before a pause."
    ).tag(config=True)
    frozen_margin = Integer(
        60,
        min=5,
        help="""
        Seconds for which a saved server must still stay frozen when it is removed.

        Otherwise (the Hub was away for too long) it goes on and the snapshot is thrown away.
        """,
    ).tag(config=True)
    wait_timeout = Integer(600, min=1, help="Seconds that a resume may wait for room before it goes back to paused.").tag(config=True)
    restore_timeout = Integer(
        120, min=1, help="Seconds that a restored server may take to prove that it is the paused process."
    ).tag(config=True)
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
    def make_workspaces(cls, settings: Mapping[str, Any], spawner: Any) -> Workspaces:
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
            found = of_the_hub[SETTING] = cls.make_workspaces(of_the_hub, cls(config=of_the_hub["config"]))
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
    def pending(self) -> str | None:
        pending: str | None = super().pending  # type: ignore[misc]
        if pending:
            return pending
        if self.user is not None and self.workspace.phase in PAUSE_UNDER_WAY:  # type: ignore[attr-defined]
            return "stop"
        return None

    def get_state(self) -> dict[str, Json]:
        return {**super().get_state(), **self.workspaces.store.state(self.workspace_key)}  # type: ignore[misc]

    def load_state(self, state: dict[str, Json]) -> None:
        super().load_state(state)  # type: ignore[misc]
        self.api_token = self.workspaces.credentials.token(self.workspace_key)
        self.will_resume = self.workspace.phase in OPEN

    async def start(self) -> Any:
        workspaces, key, workspace = self.workspaces, self.workspace_key, self.workspace
        if workspace.phase is Phase.RUNNING or (workspace.phase is Phase.PAUSED and workspace.intent is Intent.FRESH):
            return await self._start_fresh(workspace)
        try:
            if workspace.phase is not Phase.PAUSED:
                raise Refused("pause_under_way" if workspace.phase in PAUSE_UNDER_WAY else "resume_under_way")
            self.user_options = self.orm_spawner.user_options = workspaces.options(self)  # type: ignore[attr-defined]
            self._refuse_a_link()
            workspaces.credentials.reuse(self, key)
            workspace = await workspaces.supervisor.resume(key)
            if workspace.phase is Phase.PAUSED:
                raise Refused((workspace.pause.reason if workspace.pause else None) or "restore_failed")
        except LifecycleError as error:
            self.will_resume = True
            if self.api_token != workspaces.credentials.token(key):
                workspaces.credentials.drop_minted(self)
            words = reason(error.code)
            raise hub_failure_free_error(words.status if words.status < 500 else 409, f"{words.sentence} {words.advice}".strip()) from error
        self.will_resume = False
        return self._url_without_path()

    async def _start_fresh(self, workspace: Workspace) -> Any:
        workspaces, key = self.workspaces, self.workspace_key
        if workspace.phase is Phase.PAUSED:
            workspaces.credentials.forget(key)
            workspaces.store.commit(workspace, begin_fresh(workspace, workspaces.clock.time()))
        self.will_resume = False
        await workspaces.engine.remove(workspaces.server(key))
        workspaces.store.renew_lineage(key, self.user.orm_user.id)  # type: ignore[attr-defined]
        workspaces.credentials.remember(self, key)
        await self.workspace_launch(await self.workspace_plain_launch())
        return self._url_without_path()

    def _refuse_a_link(self) -> None:
        """No start by navigation: a GET (a link, a form of another site) never takes an accelerator nor replaces options."""
        handler = getattr(self, "handler", None)
        if handler is not None and handler.request.method in SAFE_METHODS:
            raise Refused("start_by_link")

    def _url_without_path(self) -> str:
        url = self.workspace_url() or ""
        return "/".join(url.split("/", 3)[:3])

    def start_polling(self) -> None:
        self.workspaces.credentials.repair_client(self, self.workspace_key)
        super().start_polling()  # type: ignore[misc]

    async def stop(self, now: bool = False) -> None:
        workspaces, key, workspace = self.workspaces, self.workspace_key, self.workspace
        self.will_resume = workspace.phase in OPEN
        if workspace.phase is Phase.RUNNING:
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
        workspaces.store.commit(workspace, interrupted(workspace))
        workspaces.credentials.suspend(key)

    async def poll(self) -> int | None:
        workspaces, key = self.workspaces, self.workspace_key
        workspace = await workspaces.supervisor.settle(key)
        self.will_resume = workspace.phase in OPEN
        if workspace.phase in PAUSE_UNDER_WAY and workspace.phase is not Phase.STOPPING:
            return None
        if workspace.phase in (Phase.PAUSED, Phase.DELETING):
            return 0
        if await workspaces.engine.alive(workspaces.server(key)):
            return None
        if workspace.phase is Phase.RUNNING:
            await workspaces.engine.remove(workspaces.server(key))
        elif workspace.phase is Phase.UNPROVEN:
            await self._unproven_server_goes(workspace)
        return 1

    async def delete_forever(self) -> None:
        """The server or its user is deleted: its snapshots and tokens go with it."""
        workspaces, key = self.workspaces, self.workspace_key
        await workspaces.engine.remove(workspaces.server(key))
        await purge(workspaces.ports, key)
        workspaces.credentials.forget(key)
        workspaces.store.forget(key)

    async def get_options_form(self) -> Any:
        admin_form = await super().get_options_form()  # type: ignore[misc]
        if self.workspace.intent is Intent.FRESH:  # the form is shown again because that start was refused before it began
            self.workspaces.store.ask(self.workspace_key, Intent.NONE)
        return paused_form(self, admin_form or "") if self.workspace.phase in OPEN else admin_form

    async def run_options_from_form(self, form_data: dict[str, Any]) -> Any:
        button = pressed(form_data)
        if self.workspace.phase is Phase.PAUSED:
            if button != "fresh":
                return self.workspaces.options(self)
            self.workspaces.store.ask(self.workspace_key, Intent.FRESH)
        return await maybe_future(super().run_options_from_form(form_data))  # type: ignore[misc]

    async def rename(self, old_name: str, new_name: str) -> None:
        if self.workspaces.store.read(Key(self.user.name, old_name)).phase in OPEN:  # type: ignore[attr-defined]
            raise hub_failure_free_error(409, reason("rename_paused").sentence)
        await super().rename(old_name, new_name)  # type: ignore[misc]

    async def progress(self) -> AsyncIterator[dict[str, Json]]:
        """The phase in words for the Hub's own progress page."""
        if self.workspace.phase not in RESUME_UNDER_WAY:
            async for event in super().progress():  # type: ignore[misc]
                yield event
            return
        last = ""
        while (workspace := self.workspace).phase in RESUME_UNDER_WAY:
            message = reason(f"phase_{workspace.phase.value}").sentence
            if message != last:
                last = message
                yield {"progress": 20 if workspace.phase is Phase.WAITING else 60, "message": message}
            await self.workspaces.store.changed(self.workspace_key)

