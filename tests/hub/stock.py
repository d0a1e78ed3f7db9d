"""The configuration that the Hubs of all levels share: a stock JupyterHub behind the proxy that the test has started."""

from __future__ import annotations

import json
import os
from typing import Any

SCOPES = ("admin:users", "admin:servers", "list:users", "tokens", "admin:auth_state", "shutdown", "access:servers", "admin:groups")
"""What the test itself may do."""


def settings_of_this_hub() -> dict[str, Any]:
    """What :class:`~tests.hub.running.RunningHub` hands over."""
    settings: dict[str, Any] = json.loads(os.environ["HUB_TEST_SETTINGS"])
    return settings


def stock(c: Any, settings: dict[str, Any], spawner: type, hub_host: str = "127.0.0.1") -> None:
    """Fill ``c`` for servers of that class. ``hub`` and ``spawner`` of the settings come last, so that a test's own value counts."""
    hub_alone(c, settings, hub_host)
    c.JupyterHub.spawner_class = spawner
    own = c[spawner.__name__]
    own.state_dir = f"{settings['folder']}/state"
    for section, name in ((c.JupyterHub, "hub"), (own, "spawner")):
        for trait, value in settings.get(name, {}).items():
            setattr(section, trait, value)


def hub_alone(c: Any, settings: dict[str, Any], hub_host: str = "127.0.0.1") -> None:
    """Fill ``c`` with all that does not concern servers."""
    folder, hub = settings["folder"], c.JupyterHub
    hub.bind_url = f"http://127.0.0.1:{settings['port']}{settings.get('base_url', '/')}"
    hub.hub_bind_url = f"http://{hub_host}:{settings['hub_port']}"
    hub.db_url = f"sqlite:///{folder}/hub.sqlite"
    hub.cookie_secret_file = f"{folder}/cookie_secret"
    hub.authenticator_class = "dummy"
    c.DummyAuthenticator.password = settings["password"]
    c.Authenticator.allow_all = True
    c.Authenticator.admin_users = {"admin"}
    hub.allow_named_servers = True
    hub.cleanup_servers = False
    hub.cleanup_proxy = settings.get("cleanup_proxy", True)
    c.ConfigurableHTTPProxy.should_start = False
    c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{settings['proxy_api_port']}"
    c.ConfigurableHTTPProxy.auth_token = settings["proxy_token"]
    hub.services = [{"name": "test", "api_token": settings["admin_token"]}, *settings.get("services", [])]
    hub.load_roles = [{"name": "test", "scopes": [*SCOPES, "read:metrics"], "services": ["test"]}, *settings.get("roles", [])]
    c.Spawner.http_timeout = 60
