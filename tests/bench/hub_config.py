"""jupyterhub_config.py of the measurements: the sandbox tests' Hub, which also writes down what its time went to.

Spans (see ``spans.py``) go into ``spans.jsonl``: each call of a port, what the shims do, and every moment in which the event loop
came back late (``loop``, with where its thread was when somebody looked). The product's own code is not changed by that.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from gke_workspaces_spawner.cli.hub_config import database
from gke_workspaces_spawner.engines.gvisor import GVisorEngine
from gke_workspaces_spawner.hub.guest import HubGuest
from gke_workspaces_spawner.hub.port import JupyterHubPort
from gke_workspaces_spawner.hub.store import HubStore
from gke_workspaces_spawner.sandbox import Sandboxes
from gke_workspaces_spawner.sandbox.launching import Launcher
from tests.bench.loopwatch import LoopWatch
from tests.bench.spans import Spans

HERE = Path(__file__).parent
exec(compile((HERE.parent / "sandbox" / "local_config.py").read_text(), "local_config.py", "exec"))

FOLDER = Path(json.loads(os.environ["HUB_TEST_SETTINGS"])["folder"])
c.JupyterHub.db_url = database(FOLDER / "hub.sqlite")  # noqa: F821 - as in the demo
SPANS = Spans(FOLDER / "spans.jsonl")

SPANS.trace(
    GVisorEngine, "estimate", "save", "confirm_frozen", "thaw", "manifest", "capacity", "alive", "signal", "aids", "remove", "start"
)
SPANS.trace(HubGuest, "prepare", "restored")
SPANS.trace(JupyterHubPort, "unroute", "stop", "suspend_tokens", "plain_launch", "launch", "routed")
SPANS.trace(HubStore, "commit")
SPANS.trace(Sandboxes, "restore", "verified")
SPANS.trace(Launcher, "runsc", "attach", "detach")

made = Sandboxes.__init__


def with_traced_shims(self: Sandboxes, *args: Any, **kwargs: Any) -> None:
    """The shims' interpreter is a script that runs the traced shim in their place."""
    python = FOLDER / "python"
    words = (sys.executable, "-I", "-S", HERE / "traced_shim.py", FOLDER / "spans.jsonl", HERE.parents[1])
    python.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in words) + "\n")
    python.chmod(0o700)
    made(self, *args, **kwargs, python=str(python))


Sandboxes.__init__ = with_traced_shims  # type: ignore[method-assign]

WATCH = LoopWatch(SPANS, FOLDER / "ticks")
