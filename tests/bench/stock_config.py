"""jupyterhub_config.py of a Hub that has nothing of ours: JupyterHub's own spawner for tests and a watched event loop."""

from pathlib import Path

from gke_workspaces_spawner.cli.hub_config import database
from tests.bench.loopwatch import LoopWatch
from tests.bench.spans import Spans
from tests.hub.stock import hub_alone, settings_of_this_hub

c = get_config()  # type: ignore[name-defined]  # noqa: F821
settings = settings_of_this_hub()
folder = Path(settings["folder"])

hub_alone(c, settings)
c.JupyterHub.db_url = database(folder / "hub.sqlite")
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = f"{folder}/{{username}}"
c.Spawner.args = ["--allow-root"]
c.Spawner.start_timeout = 120
c.Spawner.poll_interval = 2
WATCH = LoopWatch(Spans(folder / "spans.jsonl"), folder / "ticks")
