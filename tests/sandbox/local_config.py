"""jupyterhub_config.py for servers in real sandboxes: a stock Hub, the local spawner, and our one line."""

from pathlib import Path

import gke_workspaces_spawner
from gke_workspaces_spawner.sandbox import Network
from tests.hub.stock import settings_of_this_hub, stock

c = get_config()  # type: ignore[name-defined]  # noqa: F821
settings = settings_of_this_hub()
c.Spawner.poll_interval = 2
c.Spawner.start_timeout = 120
c.LocalWorkspaceSpawner.runsc = settings["runsc"]
stock(c, settings, gke_workspaces_spawner.LocalWorkspaceSpawner, Network.open(Path(settings["folder"], "state")).hub_host)
gke_workspaces_spawner.configure(c)
