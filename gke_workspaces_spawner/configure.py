"""``configure(c)``: the one line in ``jupyterhub_config.py`` for what a spawner class cannot register itself.

It only adds: handlers after the Hub's own, our templates after the deployment's, scopes, and a service that keeps time.
"""

from __future__ import annotations

import sys
from typing import Any

from traitlets import TraitError

from . import profiles
from .hubapi import pages
from .hubapi.scopes import KICK, PAUSE
from .hubapi.view import PageServices

SERVICE = "gke-workspaces"
SPAWNERS = ("Spawner", "KubeSpawner", "GKEWorkspaceSpawner")
"""Sections whose settings apply to a server; the last that sets one wins."""
PLAIN = (list, tuple, dict, str, int, float)
"""Values that can be judged before the Hub has read all of its configuration."""


def configure(c: Any) -> None:
    """Add pausing to a Hub's configuration ``c``; call it after the deployment's own settings.

    Raises TraitError, at which the Hub stops with its message, for a ``profile_list`` that is wrong (``strict_profiles``).

    Adds to ``JupyterHub.extra_handlers``, ``template_paths``, ``template_vars``, ``tornado_settings``, ``custom_scopes``,
    ``load_roles`` (roles ``user`` and ``server`` get the pause scope) and ``services``. Nothing that is there is replaced.
    """
    from .hubapi import handlers  # after the scopes are defined

    _check_profiles(c)

    hub = c.JupyterHub
    hub.extra_handlers = [*_list(hub, "extra_handlers"), *handlers.handlers(), *pages.handlers()]
    hub.template_paths = [*_list(hub, "template_paths"), pages.template_path()]
    hub.template_vars = {**pages.template_vars(), **_dict(hub, "template_vars")}
    hub.tornado_settings = {**_dict(hub, "tornado_settings"), pages.SETTING: PageServices()}
    roles = _list(hub, "load_roles")
    _grant(roles, "user", ["self"], f"{PAUSE}!user")
    _grant(roles, "server", ["users:activity!user", "access:servers!server"], f"{PAUSE}!server")
    roles.append({"name": SERVICE, "scopes": [KICK], "services": [SERVICE]})
    hub.load_roles = roles
    hub.services = [
        *_list(hub, "services"),
        {"name": SERVICE, "command": [sys.executable, "-m", "gke_workspaces_spawner.service"]},
    ]


def _check_profiles(c: Any) -> None:
    """Here for a clear end of the Hub's start; the spawner looks again, at what its class really has."""
    settings: dict[str, Any] = {}
    for section in SPAWNERS:
        settings |= {name: value for name, value in (c.get(section) or {}).items() if isinstance(value, PLAIN)}
    if not settings.get("strict_profiles", True):
        return
    catalogue, wrong = profiles.catalogue_with(settings.get("catalogue") or {})
    wrong += profiles.check(settings.get("profile_list"), catalogue, profiles.Context(settings)).refusals
    if wrong:
        said = "".join(f"\n  - {finding.sentence}" for finding in wrong)
        raise TraitError(f"profile_list has faults, {len(wrong)} in all (c.GKEWorkspaceSpawner.strict_profiles):{said}")


def _list(section: Any, name: str) -> list[Any]:
    return list(section[name]) if name in section else []


def _dict(section: Any, name: str) -> dict[str, Any]:
    return dict(section[name]) if name in section else {}


def _grant(roles: list[Any], name: str, default: list[str], scope: str) -> None:
    """Add a scope to a default role of the Hub, keeping what the deployment made of it."""
    for number, role in enumerate(roles):
        if role.get("name") == name:
            roles[number] = {**role, "scopes": [*role.get("scopes", default), scope]}
            return
    roles.append({"name": name, "scopes": [*default, scope]})
