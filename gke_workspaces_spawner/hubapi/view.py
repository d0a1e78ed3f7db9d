"""A workspace as REST and pages give it: whitelisted JSON, and everything that a page would otherwise have to compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from jupyterhub import orm
from jupyterhub.handlers.base import BaseHandler

from ..hub.services import ENDED, Workspaces
from ..lifecycle import actions, sentence
from ..lifecycle.model import Key, SnapshotRef, Workspace
from ..lifecycle.pace import progress
from ..lifecycle.phases import Phase
from ..lifecycle.reasons import reason
from . import urls
from .pages import template_vars

HOLDS = ("kernels", "terminals", "connections", "gpu")
"""What of the extension's facts is shown, to those who may enter the server."""

LOST = ("server_lost", "sandbox_gone")
"""Reasons of a pause that tell how the server ended."""


def workspaces_of(handler: BaseHandler) -> Workspaces:
    """The Hub's workspaces; the spawner class makes them when no server has been touched yet."""
    spawner_class = handler.settings["spawner_class"]
    return spawner_class.workspaces_for(handler.settings)  # type: ignore[no-any-return]


def may_enter(handler: BaseHandler, key: Key) -> bool:
    """Whether the requester may see what is inside that server (its own token may)."""
    return bool(handler.has_scope(f"access:servers!server={key.user}/{key.server}"))


def may_look(handler: BaseHandler, key: Key) -> bool:
    """Whether the requester may see the phase of that server; a server's own token may see no other server of its user."""
    return any(handler.has_scope(f"{scope}!server={key.user}/{key.server}") for scope in ("read:servers", "access:servers"))


def _snapshot(snapshot: SnapshotRef) -> dict[str, Any]:
    return {
        "id": snapshot.id,
        "pause_id": snapshot.pause_id,
        "state": snapshot.state.value,
        "bytes": snapshot.bytes,
        "created": snapshot.created,
        "expires": snapshot.expires,
    }


def _reason(code: str | None) -> dict[str, str] | None:
    if code is None:
        return None
    words = reason(code)
    return {"code": words.code, "sentence": words.sentence, "advice": words.advice}


def _sentence(workspace: Workspace, now: float, ended: str | None, *, stopped: bool) -> str:
    """A server that is stopped has no more to say of its last pause than how it ended."""
    if not stopped:
        return sentence(workspace, now)
    return f"This server is stopped. {reason(ended).sentence}" if ended else "This server is stopped."


def _detail(workspace: Workspace) -> str | None:
    """What lies behind the reason, or behind what a resume waits for, as the machine or the cluster says it."""
    if workspace.phase is Phase.WAITING:
        return (workspace.waits_for.detail or None) if workspace.waits_for else None
    pause = workspace.pause
    return (pause.detail or None) if pause and pause.reason else None


def workspace_view(workspaces: Workspaces, key: Key, *, hub_base: str, inside: bool) -> dict[str, Any]:
    """The view of one server; ``inside`` says whether the reader may know what runs in it."""
    workspace = workspaces.store.read(key)
    now = workspaces.clock.time()
    far = progress(workspace, workspaces.pace, now)
    workspace = replace(workspace, progress=far.fraction)
    user = workspaces.internals.user(key.user)
    spawner = user.spawners[key.server] if user is not None and key.server in user.spawners else None
    ready = bool(spawner is not None and spawner.ready)
    pending = spawner.pending if spawner is not None else None
    pause = workspace.pause
    current = workspace.snapshot(pause.snapshot_id) if pause else None
    may = list(actions(workspace))
    if workspace.phase is Phase.RUNNING:
        may = [a for a in may if a not in ("pause", "start", "stop", "open")]
        may += ["open", "pause", "stop"] if ready else ["start"] if not pending else []
    elif workspace.phase is Phase.UNPROVEN and ready:
        may.append("open")
    code = pause.reason if pause else None
    stopped = workspace.phase is Phase.RUNNING and not ready and not pending
    ended = (workspaces.store.extra(key).get(ENDED) or (code if code in LOST else None)) if stopped else None
    facts: Mapping[str, Any] = (pause.facts if pause else None) or {}
    return {
        "user": key.user,
        "server": key.server,
        "phase": workspace.phase.value,
        "since": workspace.phase_since,
        "age": max(0.0, now - workspace.phase_since),
        "revision": workspace.revision,
        "intent": workspace.intent.value,
        "progress": far.fraction,
        "remaining": far.remaining,
        "sentence": _sentence(workspace, now, ended, stopped=stopped),
        "actions": may,
        "reason": _reason(ended or code),
        "detail": _detail(workspace) if inside else None,
        "pause": {"id": pause.id, "clocks": asdict(pause.clocks)} if pause else None,
        "snapshot": _snapshot(current) if current else None,
        "snapshots": [_snapshot(s) for s in workspace.shelf],
        "receipt": (dict(pause.receipt) if pause and pause.receipt else None) if inside else None,
        "holds": {name: facts[name] for name in HOLDS if name in facts} if inside and facts else None,
        "urls": {
            "page": urls.page(hub_base, key.user, key.server),
            "follow": urls.follow(hub_base, key.user, key.server),
            "server": user.server_url(key.server) if user is not None else None,
            "files": urls.files(hub_base, key.user, key.server),
        },
        "hub": {"ready": ready, "pending": pending},
    }


class PageServices:
    """What the pages ask (see :class:`.pages.Services`); finds the Hub through the handler that asks."""

    def view(self, user_name: str, server_name: str, handler: BaseHandler) -> dict[str, Any] | None:
        key = Key(user_name, server_name)
        workspaces = workspaces_of(handler)
        user = workspaces.internals.user(user_name)
        if user is None or (server_name and server_name not in user.orm_spawners):
            return None
        return workspace_view(workspaces, key, hub_base=handler.hub.base_url, inside=may_enter(handler, key))

    def views_for(self, handler: BaseHandler) -> Sequence[dict[str, Any]]:
        """The requester's own servers first, then those of others that its scopes let it see."""
        workspaces = workspaces_of(handler)
        may_see = handler.get_scope_filter("read:servers")
        mine = handler.current_user
        keys = []
        if isinstance(mine.orm_user if hasattr(mine, "orm_user") else None, orm.User):
            keys += [key for name in sorted({"", *mine.orm_user.orm_spawners}) if may_look(handler, key := Key(mine.name, name))]
        for row in workspaces.internals.orm_spawners():
            if row.user is None or not may_see(row, kind="server"):
                continue
            key = Key(row.user.name, row.name)
            if key not in keys:
                keys.append(key)
        return [workspace_view(workspaces, key, hub_base=handler.hub.base_url, inside=may_enter(handler, key)) for key in keys]

    def homes(self, user_name: str, server_name: str, handler: BaseHandler) -> Any | None:
        """The home of a paused server, read in the user's uid; None when the server runs or has no home here."""
        workspaces = workspaces_of(handler)
        user = workspaces.internals.user(user_name)
        if user is None or workspaces.homes is None or workspaces.store.read(Key(user_name, server_name)).phase is not Phase.PAUSED:
            return None
        return workspaces.homes.reader(user.orm_user)

    def page_address(self, spawner: Any) -> str:
        """The page of that spawner's server."""
        return urls.page(spawner.hub.base_url, spawner.user.name, spawner.name)

    def paused_form(self, spawner: Any, admin_form: str) -> str:
        """The Paused form as HTML, for the Hub's spawn page."""
        handler = spawner.handler  # None after a start that was refused: then it is not known who looks
        key, base_url = spawner.workspace_key, spawner.hub.base_url
        view = workspace_view(spawner.workspaces, key, hub_base=base_url, inside=handler is not None and may_enter(handler, key))
        template = spawner.user.settings["jinja2_env_sync"].get_template("paused_form.html")
        html: str = template.render(
            **template_vars(), view=view, admin_form=admin_form, base_url=base_url, follow_url=view["urls"]["follow"]
        )
        return html
