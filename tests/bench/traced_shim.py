"""A sandbox's shim that writes down what its time goes to; started in the shim's place by ``hub_config.py``.

Arguments: the spans' file, the folder that holds the packages.
"""

import sys
from pathlib import Path

sys.path.insert(0, sys.argv[2])

from gke_workspaces_spawner.sandbox import kept, saving, shim, snapshots

sys.path.insert(0, str(Path(__file__).parent))
from spans import Spans

spans = Spans(Path(sys.argv[1]))
command = saving.Saver._command


def named(self: saving.Saver, deadline: float, verb: str, *arguments: str) -> None:
    spans.traced(f"runsc {verb}", command)(self, deadline, verb, *arguments)


saving.Saver._command = named  # type: ignore[method-assign]
shim.Shim._launch = spans.traced("runsc launch", shim.Shim._launch)  # type: ignore[method-assign]
spans.trace(kept.Store, "keep", "keep_early")
spans.trace(kept, "held_files", "patches")
spans.trace(snapshots.Shelf, "publish", "check", "seal", "verify")
spans.trace(shim, "remove_container", "remove_tree", "write_bundle", "hold_places")
spans.trace(shim.Shim, "restore", "start", "remove")
shim.main()
