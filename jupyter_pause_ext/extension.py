"""The extension inside one server: what it owns, and what each verb of the Hub does with it."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_server.utils import url_path_join
from tornado.iostream import IOStream
from tornado.routing import Rule

from . import activity as activities
from . import kernels as kernel_access
from .connections import Connections, Gate, GateHandler
from .freeze import Freezer, Frozen, Incomplete, NotPermitted, in_container
from .handlers import VERBS, GuestHandler
from .hub import HubClient, find_place
from .identity import identity, new_boot_id
from .journal import Journal
from .lease import Lease
from .messages import FrozenRequest, Json, PrepareRequest, Refusal
from .quiet import Quiet, Writes
from .repair import Repairer
from .signal import CHECKPOINT_FILE, Watcher
from .signing import Verifier, parse_secret
from .tab import TAB_ROUTES
from .websocket import install as install_websocket

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

SECRET_ENV = "GKE_WORKSPACES_GUEST_SECRET"  # noqa: S105 - the name of a variable
ROUTE = "jupyter-pause/v1"
FINISH_SECONDS = 3.0
"""How long requests under way may take to end before their connection is cut."""
WRITES_SECONDS = 2.0
"""How long a file may take to be written to its end before a freeze."""
SIGNAL_SECONDS = 1.0
"""How long ``restored`` waits for the sandbox's word, which normally came before the Hub's call."""


class PauseExtension:
    """Everything of the extension that lives as long as the server."""

    def __init__(
        self,
        serverapp: ServerApp,
        secret: bytes | None,
        clock: Callable[[], float] = time.time,
        checkpoint_file: str = CHECKPOINT_FILE,
        freezer: Freezer | None = None,
    ) -> None:
        """Raises nothing that depends on the environment: what is absent is an absent ability."""
        self.serverapp = serverapp
        self.log: logging.Logger | logging.LoggerAdapter[logging.Logger] = serverapp.log
        self.clock = clock
        self.boot_id = new_boot_id()
        self.place = find_place()
        self.hub = HubClient(serverapp, self.place) if self.place else None
        self.verifier = Verifier(secret, clock) if secret else None
        self.freezer = freezer
        self.lease = Lease(clock, self._lease_ended)
        self.writes = Writes(serverapp.contents_manager)
        self.connections = Connections(lambda: getattr(serverapp, "http_server", None))
        self.repairer = Repairer(serverapp)
        self.journal = Journal(lambda kernel_id: kernel_id in serverapp.kernel_manager)
        self.receipt: dict[str, Json] | None = None
        self.paused_count = 0
        self.last_restored: dict[str, Json] | None = None
        self._pause: str | None = None
        """The pause that was prepared last and not thawed."""
        self._said: str | None = None
        self._heard = asyncio.Event()
        self._repairing = asyncio.Lock()
        self._repaired: dict[str, Json] = {}
        self._stopped_cullers: list[object] = []
        self._quiet: Quiet | None = None
        self._tasks: set[asyncio.Task[dict[str, Json]]] = set()
        self._loop: asyncio.AbstractEventLoop = serverapp.io_loop.asyncio_loop  # type: ignore[attr-defined]  # tornado's only loop is asyncio's
        self._watcher = Watcher.start(self._told, checkpoint_file)

    @property
    def available(self) -> bool:
        """Whether the Hub of this server can pause it: only such a Hub gives a server the secret."""
        return self.hub is not None and self.verifier is not None

    # ------------------------------------------------------------ verbs of the Hub

    async def prepare(self, request: PrepareRequest, own: IOStream | None) -> dict[str, Json]:
        """Close and refuse clients until the lease ends, freeze where asked; identity, facts and blockers of this moment."""
        if request.freeze and self.freezer is None:
            raise Refusal(409, "freeze_unavailable", "This server cannot stop its own processes; the engine has to.")
        self._said = None
        self._heard.clear()
        self._pause = request.pause_id
        if self.freezer is not None and self.freezer.pause_id not in {None, request.pause_id}:
            self.lease.end("another pause")
        if self.lease.pause_id is None:
            self._stopped_cullers = kernel_access.stop_cullers(self.serverapp)
        self.lease.begin(request.pause_id, request.deadline)
        late = await self.connections.finish_requests(own, min(FINISH_SECONDS, self.lease.remaining / 2))
        closed = await self.connections.close(own)
        answer: dict[str, Json] = {"facts": await self.facts(), "blockers": activities.blockers(self.serverapp, late)}
        if request.freeze and self.freezer is not None:
            answer["frozen"] = None
            try:
                frozen = await self._freeze(self.freezer, request)
                answer["frozen"] = {"at": frozen.at, "until": frozen.until, "processes": frozen.processes}
            except NotPermitted as error:
                answer["blockers"].append("freeze_not_permitted")
                answer["not_permitted"] = error.names
        self.log.info("pause %s: prepared, %d connections closed", request.pause_id, closed)
        return {"identity": self._identity(), **answer}

    async def frozen(self, request: FrozenRequest) -> dict[str, Json]:
        """Whether everything stood still since that pause's freeze, and does for so long from now."""
        found = None
        if self.freezer is not None and self.freezer.pause_id == request.pause_id:
            found = await self._loop.run_in_executor(None, self.freezer.confirm, request.pause_id, request.seconds)
        if found is None or not self._keep(found):
            return {"frozen": False, "until": None, "since": None}
        return {"frozen": True, "until": found.until, "since": found.at}

    def thaw(self, pause_id: str) -> dict[str, Json]:
        """The pause is off; false when it was not (or not any more) prepared."""
        if self._pause == pause_id:
            self._pause = None
        return {"thawed": self.lease.end("thaw", pause_id)}

    async def restored(self, pause_id: str) -> dict[str, Json]:
        """Let the processes go on, repair, let clients in; proof of identity and what the sandbox said."""
        if self.freezer is not None:
            self.freezer.release("restored")
        if self._watcher is not None and self._said != "restore":
            self._heard.clear()
            try:
                await asyncio.wait_for(self._heard.wait(), SIGNAL_SECONDS)
            except asyncio.TimeoutError:
                self.log.warning("pause %s: the sandbox has not told of a checkpoint", pause_id)
        repaired = await self._back(pause_id)
        return {"identity": self._identity(), "checkpoint_said": self._said, "repaired": repaired}

    def identity(self) -> dict[str, Json]:
        """For servers that were never paused."""
        return {"identity": self._identity()}

    def activity(self) -> dict[str, Json]:
        """For the Hub's idle policy."""
        return activities.activity(self.serverapp)

    # ------------------------------------------------------------ for the tab

    async def facts(self) -> dict[str, Json]:
        """What a pause would save and lose."""
        return await activities.facts(self.serverapp, self.hub.api_url if self.hub else "")

    def status(self) -> dict[str, Json]:
        """What the labextension needs to show itself or stay away."""
        place = self.place
        return {
            "available": self.available,
            "api": 1,
            "user": place.user if place else None,
            "server_name": place.server if place else None,
            "hub_prefix": place.hub_host + place.hub_prefix if place else None,
            "follow_url": place.follow_url if place and self.available else None,
            "boot_id": self.boot_id,
            "paused_count": self.paused_count,
            "restored": self.last_restored,
            "receipt": self.receipt,
        }

    # ------------------------------------------------------------ inside

    def _identity(self) -> dict[str, Json]:
        return identity(self.serverapp, self.boot_id)

    async def _freeze(self, freezer: Freezer, request: PrepareRequest) -> Frozen:
        """Raises :class:`NotPermitted`, or :class:`Refusal` where it was tried in vain: then the pause is off and all goes on."""
        pause_id = request.pause_id

        def ended(why: str) -> None:
            self._loop.call_soon_threadsafe(self._went_on, pause_id, why)

        try:
            if self._quiet is None:
                if not await self.writes.finish(WRITES_SECONDS):
                    raise Incomplete(["a file that is being saved"])
                self._quiet = Quiet(self.serverapp, self.writes)
            frozen = await self._loop.run_in_executor(None, freezer.freeze, pause_id, request.frozen_for, ended)
        except NotPermitted:
            self._end_quiet()
            raise
        except Incomplete as error:
            self.lease.end("freeze_incomplete", pause_id)
            names = ", ".join(error.names)
            raise Refusal(409, "freeze_incomplete", f"Not everything could be stopped: {names}.", names=error.names) from None
        if not self._keep(frozen):
            raise Refusal(409, "freeze_incomplete", "The pause was given up while the processes were being stopped.")
        return frozen

    def _keep(self, frozen: Frozen) -> bool:
        """Stay prepared for as long as everything stands; false when the pause was given up meanwhile, and all goes on."""
        if self.lease.pause_id != frozen.pause_id:
            return False
        self.lease.extend(frozen.until)
        return True

    def _went_on(self, pause_id: str, why: str) -> None:
        """The processes went on by themselves (the limit, or the sandbox's word): the pause is off."""
        if self.freezer is not None and self.freezer.pause_id != pause_id:
            self.lease.end(why, pause_id)

    def _end_quiet(self) -> None:
        quiet, self._quiet = self._quiet, None
        if quiet is not None:
            quiet.end()

    async def _back(self, pause_id: str | None) -> dict[str, Json]:
        """Repair once per restore, whoever tells of it first (the sandbox may not know the pause), then let clients in."""
        async with self._repairing:
            last = self.last_restored
            if last is None or pause_id is None or last["pause_id"] not in {pause_id, None}:
                self.paused_count += 1
                self.last_restored = {"pause_id": pause_id, "at": self.clock()}
                self.receipt = None
                self._repaired = await self.repairer.repair()
            else:
                last["pause_id"] = pause_id
            self._pause = None
            self.lease.end("restored")
            return self._repaired

    def _told(self, word: str) -> None:
        """Called in the watcher's thread; what stands goes on though the event loop may hang."""
        if self.freezer is not None and word in {"restore", "error"}:
            self.freezer.release(word)
        self._loop.call_soon_threadsafe(self._hear, word)

    def _hear(self, word: str) -> None:
        self._said = word
        self._heard.set()
        self.log.info("pause %s: the sandbox says %s", self._pause, word)
        if word == "restore":
            task = asyncio.ensure_future(self._back(self._pause))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif word == "error":
            self.lease.end("error")

    def _lease_ended(self, pause_id: str, why: str) -> None:
        """Whatever ended it, all goes on and nobody was idle meanwhile; the cullers' next tick is an interval away."""
        if self.freezer is not None:
            self.freezer.release(why, pause_id)
        self._end_quiet()
        kernel_access.bump_activity(self.serverapp)
        kernel_access.start_cullers(self._stopped_cullers)
        self._stopped_cullers = []
        self.log.info("pause %s: no longer prepared (%s)", pause_id, why)

    def close(self) -> None:
        """End threads, timers and sockets of the extension."""
        self.lease.end("closed")  # with it all that stands goes on
        self.repairer.close()
        self.journal.close()
        for task in self._tasks:
            task.cancel()
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None


def load(serverapp: ServerApp) -> PauseExtension:
    """Put the extension into a server: routes, the gate in front of all others, kernels' start-up file, websocket class."""
    text = os.environ.pop(SECRET_ENV, "")  # kernels and terminals must not inherit it
    secret = parse_secret(text)
    if text and secret is None:
        serverapp.log.warning("pause: %s is not 16 to 64 bytes in hex; the hub cannot pause this server", SECRET_ENV)
    freezer = Freezer(log=logging.getLogger(serverapp.log.name)) if in_container() else None
    ext = PauseExtension(serverapp, secret, freezer=freezer)
    if os.access(CHECKPOINT_FILE, os.R_OK):
        reach_kernels()
    install(ext)
    return ext


def install(ext: PauseExtension) -> None:
    """Routes and gate."""
    web_app = ext.serverapp.web_app
    web_app.settings["jupyter_pause"] = ext
    base = url_path_join(ext.serverapp.base_url, ROUTE)
    guest_paths = frozenset(f"{base}/{verb}" for verb in VERBS)
    web_app.add_handlers(  # type: ignore[no-untyped-call]
        ".*$",
        [
            *((re.escape(f"{base}/{verb}"), GuestHandler, {"ext": ext, "verb": verb}) for verb in VERBS),
            *((re.escape(f"{base}/{name}"), handler, {"ext": ext}) for name, handler in TAB_ROUTES.items()),
        ],
    )
    gate = Gate(ext.connections, lambda: ext.lease.pause_id is not None, guest_paths.__contains__)
    web_app.default_router.rules.insert(0, Rule(gate, GateHandler))
    install_websocket(ext.serverapp, ext.journal)


def reach_kernels() -> None:
    """Let Python kernels started from now on run ``startup.py`` (see there why this way)."""
    here = Path(__file__).parent
    startup, before = str(here / "startup.py"), os.environ.get("PYTHONSTARTUP", "")
    if before != startup:
        os.environ["JUPYTER_PAUSE_STARTUP_NEXT"] = before
        os.environ["PYTHONSTARTUP"] = startup
    os.environ["JUPYTER_PAUSE_EXT_DIR"] = str(here)
