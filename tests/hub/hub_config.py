"""jupyterhub_config.py of the hub level: a stock Hub with our two lines, and the process engine in place of gVisor."""

import json
import os
from pathlib import Path

import gke_workspaces_spawner
from tests.fakes import process_spawner
from tests.fakes.process_spawner import ProcessWorkspaceSpawner

c = get_config()  # type: ignore[name-defined]  # noqa: F821
settings = json.loads(os.environ["HUB_TEST_SETTINGS"])
folder = settings["folder"]

c.JupyterHub.spawner_class = ProcessWorkspaceSpawner
c.ProcessWorkspaceSpawner.state_dir = f"{folder}/state"
c.JupyterHub.bind_url = f"http://127.0.0.1:{settings['port']}{settings.get('base_url', '/')}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{settings['hub_port']}"
c.JupyterHub.db_url = f"sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = f"{folder}/cookie_secret"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = settings["password"]
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {"admin"}
c.JupyterHub.allow_named_servers = True
c.JupyterHub.cleanup_servers = False
c.JupyterHub.cleanup_proxy = settings.get("cleanup_proxy", True)
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{settings['proxy_api_port']}"
c.ConfigurableHTTPProxy.auth_token = settings["proxy_token"]
c.JupyterHub.services = [{"name": "test", "api_token": settings["admin_token"]}, *settings.get("services", [])]
c.JupyterHub.load_roles = [
    {
        "name": "test",
        "scopes": [
            *("admin:users", "admin:servers", "list:users", "tokens", "admin:auth_state", "shutdown", "access:servers", "admin:groups"),
            "read:metrics",
        ],
        "services": ["test"],
    },
    *settings.get("roles", []),
]
c.Spawner.poll_interval = 1
c.Spawner.start_timeout = 60
c.Spawner.http_timeout = 60
if settings.get("light", False):
    c.ProcessWorkspaceSpawner.cmd = ["python", str(Path(process_spawner.__file__).with_name("light_server.py"))]
for name, value in settings.get("hub", {}).items():
    setattr(c.JupyterHub, name, value)
for name, value in settings.get("spawner", {}).items():
    setattr(c.ProcessWorkspaceSpawner, name, value)
gke_workspaces_spawner.configure(c)
