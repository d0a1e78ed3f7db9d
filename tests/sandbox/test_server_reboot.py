"""The machine restarts: what was paused is resumed by the next Hub, what ran is told as lost."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path

from gke_workspaces_spawner.sandbox import Network
from gke_workspaces_spawner.sandbox.processes import Process
from tests.hub.running import RunningHub
from tests.sandbox.jupyter import Jupyter
from tests.sandbox.local_hub import local_hub


def power_off(hub: RunningHub) -> None:
    """What a restart leaves: the disk; no process, no network of ours, and another boot id than the one that the disk knows."""
    hub.kill(group=True)
    state = hub.folder / "state"
    for meta in (state / "sandboxes").glob("*/meta.json"):
        content = json.loads(meta.read_text())
        assert Process(*content["sentry"]).kill(10)
        content["sentry"][2] = str(uuid.uuid4())
        meta.write_text(json.dumps(content))
    network = Network.load(state)
    for sandbox in network.attached():
        network.detach(sandbox)
    network.close()


def test_after_a_restart_of_the_machine_paused_servers_resume_and_those_that_ran_are_told_as_lost(tmp_path: Path) -> None:
    with local_hub(tmp_path) as hub:
        hub.start_server("ann")
        hub.start_server("bo")
        ann = Jupyter(hub, "ann")
        kernel = ann.kernel()
        before = ann.run(kernel, "import os; mine = os.urandom(8).hex(); print(os.getpid(), mine)")
        hub.pause("ann")

        power_off(hub)
        hub.start()
        view = hub.workspace("bo")
        assert view["reason"]["code"] == "machine_restarted"
        assert view["sentence"].startswith("This server is stopped. The machine was restarted")
        assert view["actions"] == ["start"]
        assert hub.resume("ann")["receipt"]["resumed"] is True
        assert ann.run(kernel, "print(os.getpid(), mine)") == before
        hub.start_server("bo")
        assert hub.workspace("bo")["reason"] is None
    assert not subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False).stdout
