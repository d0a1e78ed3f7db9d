"""A real Hub with servers in real sandboxes, ended with everything of it whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gke_workspaces_spawner.cli import bring
from gke_workspaces_spawner.cli.places import cache
from gke_workspaces_spawner.sandbox import Network, Sandboxes
from tests.hub.running import RunningHub, running_hub

CONFIG = Path(__file__).with_name("local_config.py")


def runsc() -> Path:
    """The pinned runsc, built when it is not there."""
    return bring.build_runsc(cache())


@contextlib.contextmanager
def local_hub(folder: Path, settings: Mapping[str, Any] | None = None) -> Iterator[RunningHub]:
    """A Hub whose state lies in ``folder``; sandboxes, network and snapshots are gone afterwards."""
    folder.chmod(0o700)
    try:
        with running_hub(folder, CONFIG, {"runsc": str(runsc()), **(settings or {})}) as hub:
            yield hub
    finally:
        state = folder / "state"
        if (state / "network").exists():
            network = Network.load(state)
            with ThreadPoolExecutor(1) as thread:  # a browser test has an event loop in this one
                sandboxes = Sandboxes(state, runsc=runsc(), network=network, mac_key=bytes(32))
                thread.submit(lambda: asyncio.run(_remove_all(sandboxes))).result()
            network.close()
        shutil.rmtree(state / "snapshots", ignore_errors=True)


async def _remove_all(sandboxes: Sandboxes) -> None:
    for sandbox_id in await sandboxes.ids():
        await sandboxes.remove(sandbox_id)
