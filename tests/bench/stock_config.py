"""jupyterhub_config.py of a Hub that has nothing of ours: JupyterHub's own spawner for tests and a watched event loop."""

import json
import os
from pathlib import Path

from gke_workspaces_spawner.cli.hub_config import database
from tests.bench.loopwatch import LoopWatch
from tests.bench.spans import Spans

c = get_config()  # type: ignore[name-defined]  # noqa: F821
settings = json.loads(os.environ["HUB_TEST_SETTINGS"])
folder = Path(settings["folder"])

c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = f"{folder}/{{username}}"
c.Spawner.args = ["--allow-root"]
c.Spawner.start_timeout = 120
c.Spawner.http_timeout = 60
c.Spawner.poll_interval = 2
c.JupyterHub.bind_url = f"http://127.0.0.1:{settings['port']}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{settings['hub_port']}"
c.JupyterHub.db_url = database(folder / "hub.sqlite")
c.JupyterHub.cookie_secret_file = f"{folder}/cookie_secret"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = settings["password"]
c.Authenticator.allow_all = True
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{settings['proxy_api_port']}"
c.ConfigurableHTTPProxy.auth_token = settings["proxy_token"]
c.JupyterHub.services = [{"name": "test", "api_token": settings["admin_token"]}]
c.JupyterHub.load_roles = [
    {"name": "test", "scopes": ["admin:users", "admin:servers", "list:users", "tokens", "access:servers"], "services": ["test"]}
]
WATCH = LoopWatch(Spans(folder / "spans.jsonl"), folder / "ticks")
