"""REST under ``/hub/api``: JupyterHub's own conventions (token or cookie, scopes, XSRF, JSON errors), one verb per intent.

Everything but the first POST names the pause, so that a late click or a retry can never hit another one.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from typing import Any

from jupyterhub import scopes
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from tornado import web

from ..hub.services import Workspaces
from ..lifecycle.drive import discard_kept
from ..lifecycle.model import Key, Workspace
from ..lifecycle.phases import PAUSE_UNDER_WAY, Call, Intent, Outcome, Phase
from ..lifecycle.reasons import Conflict, LifecycleError, Refused, reason
from ..lifecycle.resuming import accept
from ..lifecycle.steps import check, names_pause, remembered
from . import urls
from .scopes import KICK, PAUSE
from .view import PageServices, may_enter, workspace_view, workspaces_of

START = "start:servers" if "start:servers" in scopes.scope_definitions else "servers"
"""The scope that a start needs: new in JupyterHub 6."""
MOST_BODY = 64 * 1024
CODES = {403: "not_allowed", 404: "unknown_server", 429: "too_many"}
"""Reason codes of what the Hub itself refuses."""
ANSWER_SECONDS = 0.5
"""A start is answered after that long, whether it has ended or not."""


def _no_constant(text: str) -> float:
    """NaN and the infinities, which Python reads and JSON does not know."""
    raise ValueError(text)


class WorkspaceAPIHandler(APIHandler):  # type: ignore[misc]  # JupyterHub is untyped
    """Finds the server and its workspace, and writes errors with their reason code."""

    def key(self, user_name: str, server_name: str) -> Key:
        user = self.find_user(user_name)
        if user is None or (server_name and server_name not in user.orm_spawners):
            raise Refused("unknown_server")
        return Key(user.name, server_name)

    @property
    def workspaces(self) -> Workspaces:
        return workspaces_of(self)

    def body(self) -> dict[str, Any]:
        """The JSON object in the body; an empty body is an empty object. Raises ``Refused('bad_request')``."""
        if len(self.request.body) > MOST_BODY:
            raise Refused("bad_request", "the body is larger than 64 KiB")
        if not self.request.body.strip():
            return {}
        try:
            body = json.loads(self.request.body, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise Refused("bad_request", "the body is not JSON") from error
        if not isinstance(body, dict):
            raise Refused("bad_request", "the body has to be a JSON object")
        return body

    def view(self, key: Key) -> dict[str, Any]:
        view = workspace_view(self.workspaces, key, hub_base=self.hub.base_url, inside=may_enter(self, key))
        view["follow_url"] = view["urls"]["follow"]
        return view

    def answer(self, what: Key | dict[str, Any], status: int = 200) -> None:
        """Send the view of that server, or what is given."""
        self.set_status(status)
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(self.view(what) if isinstance(what, Key) else what))

    def named_pause(self, key: Key, pause_id: str, call: Call) -> Workspace:
        """The workspace, when it is that pause and the table of calls lets the call through. Raises ``Conflict`` otherwise."""
        workspace = self.workspaces.store.read(key)
        names_pause(workspace, pause_id)
        check(workspace, call)
        return workspace

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """JSON with a sentence and a reason code, whoever raised the error."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, web.HTTPError) and isinstance(error.__cause__, LifecycleError):
            error = error.__cause__  # what our own start refused, on its way through the Hub's
        if isinstance(error, LifecycleError):
            words = reason(error.code)
            status_code, code, detail = words.status, words.code, error.detail
            message = f"{words.sentence} {words.advice}".strip()
        else:
            code = CODES.get(status_code, "bad_request" if status_code < 500 else "internal")
            if status_code == 403 and self.current_user is None:
                code = "not_logged_in"
            message, detail = reason(code).sentence, ""
            if isinstance(error, web.HTTPError) and error.log_message:
                detail = error.log_message % error.args if error.args else error.log_message
        for name, value in (getattr(error, "headers", None) or {}).items():
            self.set_header(name, value)
        self.set_status(status_code)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps({"status": status_code, "message": message, "reason": code, "detail": detail}))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """A refusal is an answer, not a fault of the Hub."""
        if isinstance(value, LifecycleError):
            self.log.info("%s %s: %s", self.request.method, self.request.path, value)
        else:
            super().log_exception(typ, value, tb)


class PauseHandler(WorkspaceAPIHandler):
    """``.../pause``: the workspace (GET), and a pause of the running server (POST)."""

    @needs_scope("read:servers", "access:servers", PAUSE)
    async def get(self, user_name: str, server_name: str = "") -> None:
        self.answer(self.key(user_name, server_name))

    @needs_scope("delete:servers", PAUSE)
    async def post(self, user_name: str, server_name: str = "") -> None:
        key = self.key(user_name, server_name)
        self.body()
        workspace = self.workspaces.supervisor.pause(key)
        view = self.view(key)
        if workspace.pause is not None and workspace.phase in PAUSE_UNDER_WAY:
            pause_id = workspace.pause.id
            url = urls.cancel(self.hub.base_url, key.user, key.server, pause_id)
            view["cancel"] = {"url": url, "ticket": self.workspaces.cancel_ticket(key, pause_id)}
        self.answer(view, 202)


class PreflightHandler(WorkspaceAPIHandler):
    """``.../pause/preflight``: what a pause would take and what would come back; advisory."""

    @needs_scope("delete:servers", PAUSE)
    async def post(self, user_name: str, server_name: str = "") -> None:
        key = self.key(user_name, server_name)
        facts = self.body().get("facts") or {}
        if not isinstance(facts, dict):
            raise Refused("bad_request", "facts has to be an object")
        workspaces = self.workspaces
        spawner = workspaces.internals.spawner(key)
        if workspaces.store.read(key).phase is not Phase.RUNNING or spawner is None or not spawner.ready:
            raise Refused("not_running")
        estimate = await workspaces.engine.estimate(workspaces.server(key), facts)
        against = spawner.workspace_refusal()
        refusal = "not_pausable" if against is not None else estimate.refusal
        words = reason(refusal) if refusal else None
        kernels = facts.get("kernels")
        self.finish(
            json.dumps(
                {
                    "bytes": estimate.bytes,
                    "seconds_pause": estimate.seconds_pause,
                    "seconds_resume": round(workspaces.pace.seconds(estimate.bytes), 1),
                    "refusal": {
                        "reason": words.code,
                        "sentence": f"{words.sentence} {against or ''}".strip(),
                        "advice": words.advice,
                    }
                    if words
                    else None,
                    "will_not_return": list(estimate.will_not_return),
                    "holds": {"kernels": kernels if isinstance(kernels, list) else [], "terminals": facts.get("terminals", 0)},
                }
            )
        )


class VerbHandler(WorkspaceAPIHandler):
    """``.../pause/{id}/VERB``: what is asked next of exactly that pause."""

    @needs_scope("delete:servers", PAUSE)
    async def cancel(self, user_name: str, server_name: str, pause_id: str) -> None:
        key = self.key(user_name, server_name)
        self.named_pause(key, pause_id, Call.CANCEL)
        self.workspaces.store.ask(key, Intent.CANCEL)
        self.workspaces.supervisor.drive(key)
        self.answer(key, 202)

    @needs_scope(START)
    async def resume(self, user_name: str, server_name: str, pause_id: str) -> None:
        """Resume, also while the pause is still under way: the Hub itself refuses a start then."""
        key = self.key(user_name, server_name)
        workspace = self.named_pause(key, pause_id, Call.START)
        answer = check(workspace, Call.START)
        if answer.outcome is Outcome.REMEMBER:
            self.workspaces.store.ask(key, remembered(workspace, answer))
            self.workspaces.supervisor.drive(key)
        elif workspace.phase is Phase.PAUSED:
            await self.start(key)
        self.answer(key, 202)

    @needs_scope(START)
    async def fresh(self, user_name: str, server_name: str, pause_id: str) -> None:
        key = self.key(user_name, server_name)
        self.named_pause(key, pause_id, Call.FRESH)
        options = self.body().get("user_options")
        if options is not None and not isinstance(options, dict):
            raise Refused("bad_request", "user_options has to be an object")
        await self.start(key, options, fresh=True)
        self.answer(key, 202)

    @needs_scope(START)
    async def retry(self, user_name: str, server_name: str, pause_id: str) -> None:
        key = self.key(user_name, server_name)
        self.named_pause(key, pause_id, Call.RETRY)
        self.workspaces.supervisor.retry(key)
        self.answer(key, 202)

    @needs_scope(START)
    async def accept(self, user_name: str, server_name: str, pause_id: str) -> None:
        key = self.key(user_name, server_name)
        workspace = self.named_pause(key, pause_id, Call.ACCEPT)
        self.workspaces.store.commit(workspace, accept(workspace))
        self.answer(key)

    async def start(self, key: Key, options: dict[str, Any] | None = None, *, fresh: bool = False) -> None:
        """The Hub's own start, with its limits and bookkeeping; answers before a slow one has ended. A start under way is joined."""
        workspaces = self.workspaces
        if workspaces.internals.startable(key).pending:
            if fresh:
                raise Conflict("busy")
            return
        if fresh:
            workspaces.supervisor.ask_fresh(key)
        task = asyncio.ensure_future(self.spawn_single_user(workspaces.internals.user(key.user), key.server, options=options))
        task.add_done_callback(lambda t: t.cancelled() or t.exception())  # who was answered before its end looks at the workspace
        done, _ = await asyncio.wait([task], timeout=ANSWER_SECONDS)
        if done and task.exception() is not None:
            error = task.exception()
            if workspaces.store.read(key).phase is Phase.WAITING:  # it goes on by itself, which is what the caller is told
                return
            raise error if isinstance(error, web.HTTPError) else Refused("start_failed", repr(error))

    VERBS = ("cancel", "resume", "fresh", "retry", "accept")

    async def post(self, user_name: str, server_name: str = "", pause_id: str = "", verb: str = "") -> None:
        self.body()
        if verb not in self.VERBS:
            raise Refused("bad_request", f"there is {', '.join(self.VERBS)}")
        await getattr(self, verb)(user_name=user_name, server_name=server_name, pause_id=pause_id)


class CancelTicketHandler(WorkspaceAPIHandler):
    """``.../pause/{id}/cancel-ticket``: cancel that pause, by the ticket that its POST was answered with.

    The ticket is the whole authority: no cookie and no token is looked at, so there is nothing that a foreign page could misuse.
    """

    def check_xsrf_cookie(self) -> None:
        """See the class: a page that does not hold the ticket gains nothing by the browser's cookies."""

    async def post(self, user_name: str, server_name: str = "", pause_id: str = "") -> None:
        ticket = self.body().get("ticket")
        user = self.find_user(user_name)
        key = Key(user.name if user is not None else user_name, server_name)
        fits = hmac.compare_digest(self.workspaces.cancel_ticket(key, pause_id).encode(), str(ticket).encode("utf-8", "replace"))
        if not fits or user is None:  # the same answer for names that do not exist
            raise Refused("not_allowed")
        if self.named_pause(key, pause_id, Call.CANCEL).phase not in PAUSE_UNDER_WAY:  # its resume is not the tab's to stop
            raise Conflict("nothing_to_cancel")
        self.workspaces.store.ask(key, Intent.CANCEL)
        self.workspaces.supervisor.drive(key)
        self.answer({"status": 202}, 202)


class NamedPauseHandler(WorkspaceAPIHandler):
    """``.../pause/{id}``: discard the state of that pause, or what is still kept of one that is over."""

    @needs_scope("delete:servers")
    async def delete(self, user_name: str, server_name: str = "", pause_id: str = "") -> None:
        key = self.key(user_name, server_name)
        workspaces = self.workspaces
        if workspaces.store.read(key).phase is Phase.RUNNING:  # the kept snapshots of a pause that is over
            await discard_kept(workspaces.ports, key, pause_id)
        else:
            self.named_pause(key, pause_id, Call.DISCARD)
            await workspaces.supervisor.discard(key)
        self.answer(key)


class ListHandler(WorkspaceAPIHandler):
    """``/hub/api/workspaces``: every server, for who may see all."""

    @needs_scope("read:servers", "access:servers")
    async def get(self) -> None:
        self.finish(json.dumps({"workspaces": list(PageServices().views_for(self))}))


class KickHandler(WorkspaceAPIHandler):
    """``/hub/api/workspaces/kick``: look after workspaces that nobody drives; for our own service."""

    @needs_scope(KICK)
    async def post(self) -> None:
        self.set_status(202)
        self.workspaces.supervisor.kick()
        self.finish(json.dumps({"status": 202}))


_DEFAULT = r"/api/users/(?P<user_name>[^/]+)/server"
_NAMED = r"/api/users/(?P<user_name>[^/]+)/servers/(?P<server_name>[^/]+)"
_PAUSE = r"(?P<pause_id>[^/]+)"


def handlers() -> list[tuple[str, type[WorkspaceAPIHandler]]]:
    """For ``JupyterHub.extra_handlers``."""
    of_a_server: list[tuple[str, type[WorkspaceAPIHandler]]] = [
        (r"/pause", PauseHandler),
        (r"/pause/preflight", PreflightHandler),
        (rf"/pause/{_PAUSE}/cancel-ticket", CancelTicketHandler),
        (rf"/pause/{_PAUSE}/(?P<verb>[^/]+)", VerbHandler),
        (rf"/pause/{_PAUSE}", NamedPauseHandler),
    ]
    return [
        *((server + path, handler) for path, handler in of_a_server for server in (_DEFAULT, _NAMED)),
        (r"/api/workspaces", ListHandler),
        (r"/api/workspaces/kick", KickHandler),
    ]
