"""Loads the Hub's part of Helm values into a real JupyterHub, without and with our lines; prints what the Hub made of each, as JSON.

Run as a program, with the files as arguments: JupyterHub is one application a process, and changes much of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from jupyterhub import orm
from jupyterhub.app import JupyterHub
from traitlets.config import Config

import gke_workspaces_spawner

TRAITS = {
    "activeServerLimit": "active_server_limit",
    "allowNamedServers": "allow_named_servers",
    "authenticatePrometheus": "authenticate_prometheus",
    "baseUrl": "base_url",
    "concurrentSpawnLimit": "concurrent_spawn_limit",
    "consecutiveFailureLimit": "consecutive_failure_limit",
    "templatePaths": "template_paths",
    "templateVars": "template_vars",
}
"""Values of the chart that it hands to JupyterHub as they are."""
CULLER = "jupyterhub-idle-culler"
CULLER_SCOPES = ["list:users", "read:users:activity", "read:servers", "delete:servers"]
"""The service that the chart adds to every Hub, and what its role may do."""
REMOVED = "REMOVED"
"""What the bank has in place of secrets."""
SECRETS = {"cookie_secret", "keys"}
DUMMY = "dummy"
"""Authenticators of the world are not installed here; who may log in is not what our lines touch."""


def hub_sections(node: Any) -> Iterator[Mapping[str, Any]]:
    """Every Hub of the values, wherever a chart around the Hub's own has put it."""
    for key, value in node.items() if isinstance(node, dict) else ():
        if key == "hub" and isinstance(value, dict) and value.keys() & {"config", "loadRoles", "services", *TRAITS}:
            yield value
        else:
            yield from hub_sections(value)


def config_of(hub: Mapping[str, Any]) -> Config:
    """What the chart's own ``jupyterhub_config.py`` makes of its values."""
    c = Config()
    for name, trait in TRAITS.items():
        if hub.get(name) is not None:
            c.JupyterHub[trait] = deepcopy(hub[name])
    services = {name: _without_secrets(each) for name, each in (hub.get("services") or {}).items()}
    services[CULLER] = {"command": [sys.executable, "-m", "jupyterhub_idle_culler", "--timeout=3600"]}
    c.JupyterHub.services = [{"name": name, **each} for name, each in services.items()]
    roles = {**(hub.get("loadRoles") or {}), CULLER: {"scopes": CULLER_SCOPES, "services": [CULLER]}}
    c.JupyterHub.load_roles = [{"name": name, **deepcopy(each)} for name, each in roles.items()]
    for section, settings in (hub.get("config") or {}).items():
        c[section].update(_without_secrets(settings or {}))
    c.JupyterHub.authenticator_class = DUMMY
    c.JupyterHub.spawner_class = gke_workspaces_spawner.LocalWorkspaceSpawner
    return c


def _without_secrets(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As it is, but for what the bank has removed or put placeholders for."""
    return {name: deepcopy(value) for name, value in settings.items() if value != REMOVED and name not in SECRETS}


async def made_of(c: Config, folder: Path) -> dict[str, Any]:
    """Let a Hub initialise itself, database and all, as far as it goes without listening; what it then has, or why it refuses."""
    given = {f"{section}.{name}": value for section, values in c.items() for name, value in values.items()}
    c.JupyterHub.db_url = f"sqlite:///{folder}/hub.sqlite"
    c.JupyterHub.cookie_secret_file = f"{folder}/cookie_secret"
    c.JupyterHub.log_level = "ERROR"
    JupyterHub.clear_instance()
    app = JupyterHub.instance(config=c)
    try:
        await app.initialize([])
    except ValueError as error:
        return {"refused": str(error)}
    try:
        return {
            "settings": {name: [repr(each) for each in value] if isinstance(value, list) else repr(value) for name, value in given.items()},
            "roles": {role.name: _role(role) for role in app.db.query(orm.Role)},
            "services": sorted(service.name for service in app.db.query(orm.Service)),
            "admins": sorted(user.name for user in app.db.query(orm.User) if user.admin),
        }
    finally:
        app.db.close()


def _role(role: orm.Role) -> dict[str, list[str]]:
    holders = {kind: sorted(each.name for each in getattr(role, kind)) for kind in ("users", "services", "groups")}
    return {"scopes": sorted(role.scopes), **holders}


async def main() -> None:
    os.environ["JUPYTERHUB_CRYPT_KEY"] = "00" * 32
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sys.argv[1:]:
        pairs = found[Path(path).name] = []
        for hub in hub_sections(yaml.safe_load(Path(path).read_text(encoding="utf-8"))):
            pair = {}
            for which in ("without", "with"):
                c = config_of(hub)
                if which == "with":
                    gke_workspaces_spawner.configure(c)
                with tempfile.TemporaryDirectory() as folder:
                    os.chdir(folder)
                    pair[which] = await made_of(c, Path(folder))
                    os.chdir("/")
            pairs.append(pair)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
