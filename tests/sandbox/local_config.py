"""jupyterhub_config.py for servers in real sandboxes: a stock Hub, the local spawner, and our one line."""

import json
import os
from pathlib import Path

import gke_workspaces_spawner
from gke_workspaces_spawner.sandbox import Network

c = get_config()  # type: ignore[name-defined]  # noqa: F821
settings = json.loads(os.environ["HUB_TEST_SETTINGS"])
folder = settings["folder"]
network = Network.open(Path(folder, "state"))

c.JupyterHub.spawner_class = gke_workspaces_spawner.LocalWorkspaceSpawner
c.LocalWorkspaceSpawner.state_dir = f"{folder}/state"
c.LocalWorkspaceSpawner.runsc = settings["runsc"]
c.JupyterHub.bind_url = f"http://127.0.0.1:{settings['port']}"
c.JupyterHub.hub_bind_url = f"http://{network.hub_host}:{settings['hub_port']}"
c.JupyterHub.db_url = f"sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = f"{folder}/cookie_secret"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = settings["password"]
c.Authenticator.allow_all = True
c.JupyterHub.allow_named_servers = True
c.JupyterHub.cleanup_servers = False
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{settings['proxy_api_port']}"
c.ConfigurableHTTPProxy.auth_token = settings["proxy_token"]
c.JupyterHub.services = [{"name": "test", "api_token": settings["admin_token"]}]
c.JupyterHub.load_roles = [
    {"name": "test", "scopes": ["admin:users", "admin:servers", "list:users", "tokens", "access:servers"], "services": ["test"]}
]
c.Spawner.poll_interval = 2
c.Spawner.start_timeout = 120
c.Spawner.http_timeout = 60
for name, value in settings.get("spawner", {}).items():
    setattr(c.LocalWorkspaceSpawner, name, value)
gke_workspaces_spawner.configure(c)
