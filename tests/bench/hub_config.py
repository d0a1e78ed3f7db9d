"""jupyterhub_config.py of the measurements: the sandbox tests' Hub, which also writes down what its time went to.

Spans (see ``spans.py``) go into ``spans.jsonl``: each call of a port, what the shims do, and every moment in which the event loop
came back late (``loop``, with where its thread was when somebody looked). The product's own code is not changed by that.
"""

import asyncio
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from gke_workspaces_spawner.engines.gvisor import GVisorEngine
from gke_workspaces_spawner.hub.guest import HubGuest
from gke_workspaces_spawner.hub.port import JupyterHubPort
from gke_workspaces_spawner.hub.services import Workspaces
from gke_workspaces_spawner.hub.store import HubStore
from gke_workspaces_spawner.sandbox import Sandboxes
from tests.bench.spans import Spans, waited

HERE = Path(__file__).parent
exec(compile((HERE.parent / "sandbox" / "local_config.py").read_text(), "local_config.py", "exec"))

FOLDER = Path(json.loads(os.environ["HUB_TEST_SETTINGS"])["folder"])
SPANS = Spans(FOLDER / "spans.jsonl")
TICK = 0.005
"""Seconds between two looks at the event loop."""
LATE = 0.03
"""Seconds from which on it is worth to write down who holds it."""

SPANS.trace(
    GVisorEngine, "estimate", "save", "confirm_frozen", "thaw", "manifest", "capacity", "alive", "signal", "aids", "remove", "start"
)
SPANS.trace(HubGuest, "prepare", "restored")
SPANS.trace(JupyterHubPort, "unroute", "stop", "suspend_tokens", "plain_launch", "launch", "routed")
SPANS.trace(HubStore, "commit")
SPANS.trace(Sandboxes, "restore", "verify", "_runsc", "_attach", "_detach")

made = Sandboxes.__init__


def with_traced_shims(self: Sandboxes, *args: Any, **kwargs: Any) -> None:
    """The shims' interpreter is a script that runs the traced shim in their place."""
    python = FOLDER / "python"
    words = (sys.executable, "-I", "-S", HERE / "traced_shim.py", FOLDER / "spans.jsonl", HERE.parents[1])
    python.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in words) + "\n")
    python.chmod(0o700)
    made(self, *args, **kwargs, python=str(python))


Sandboxes.__init__ = with_traced_shims  # type: ignore[method-assign]


class LoopWatch:
    """Looks whether the event loop comes back in time, and from a thread who holds it when not."""

    def __init__(self) -> None:
        self._seen = time.monotonic()
        self._stack = ""
        self.task = asyncio.ensure_future(self._tick())
        threading.Thread(target=self._look, args=(threading.get_ident(),), daemon=True).start()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            start, queue, due = time.time(), waited(), loop.time() + TICK
            self._seen, self._stack = time.monotonic(), ""
            await asyncio.sleep(TICK)
            if loop.time() - due > TICK:
                SPANS.note(f"loop {self._stack}", start + TICK, waited() - queue)

    def _look(self, thread: int) -> None:
        while True:
            time.sleep(TICK)
            if not self._stack and time.monotonic() - self._seen > LATE:
                frames = traceback.extract_stack(sys._current_frames()[thread])
                whose = "ours" if any("gke_workspaces_spawner" in frame.filename for frame in frames) else "hub"
                database = ", in the database" if any("sqlalchemy" in frame.filename for frame in frames) else ""
                where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames[-14:]))
                self._stack = f"{whose}{database}: {where}"


first = Workspaces.__init__


def begin(self: Workspaces, *args: Any, **kwargs: Any) -> None:
    first(self, *args, **kwargs)
    self.loop_watch = LoopWatch()  # type: ignore[attr-defined]


Workspaces.__init__ = begin  # type: ignore[method-assign]
