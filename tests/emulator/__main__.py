"""``python -m tests.emulator``: a GKE on this machine until Ctrl-C, with a hub unless told otherwise; a JSON file says where all is."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from gke_workspaces_spawner.cli import bring
from gke_workspaces_spawner.cli.places import cache
from gke_workspaces_spawner.cli.say import Stopped, say
from tests.ports import free_port

from .api import Api
from .binaries import Binaries, binaries
from .cluster import Cluster, write_ready_file
from .hub import EmulatedHub, hub_account, shipped_policies
from .nodes import DEFAULT_TABLE, Machine, machine_of
from .pretend import PretendRuntime
from .runtime import Images, Runtime, read_toml
from .sandboxed import SandboxRuntime


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.emulator", description=__doc__)
    parser.add_argument("--ready-file", type=Path, help="write kubeconfig, hub_url, tokens, ... there (JSON, 0600) once all is ready")
    parser.add_argument("--folder", type=Path, help="keep everything there (default: a temporary folder, removed at the end)")
    parser.add_argument("--real-pods", action="store_true", help="run pods in gVisor sandboxes (root); default: pretend pods")
    parser.add_argument("--users", type=int, default=2, metavar="N", help="users of the hub with a token each (default: 2)")
    parser.add_argument("--nodes", type=Path, metavar="TOML", help="node table: [[node]] with the columns of nodes.Machine")
    parser.add_argument("--spawner", default="gke-workspaces", help="the hub's spawner class; kubespawner.KubeSpawner is the plain one")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the hub: KubeSpawner.mem_limit=1G; JSON, or a text"
    )
    parser.add_argument("--no-hub", action="store_true", help="the cluster alone")
    return parser


def setting(text: str) -> tuple[str, Any]:
    """Name and value of a ``--set``."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


async def serve(options: argparse.Namespace, folder: Path, programs: Binaries) -> int:
    """Run until a signal, or until a part fails."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    table: tuple[Machine, ...] = DEFAULT_TABLE
    if options.nodes is not None:
        table = tuple(machine_of(row) for row in read_toml(options.nodes)["node"])
    hub_port = free_port()
    real: list[SandboxRuntime] = []

    def runtime(images: Images, place: Path) -> Runtime:
        if not options.real_pods:
            return PretendRuntime(images)
        real.append(SandboxRuntime(place, bring.build_runsc(cache()), (hub_port,)))
        return real[0]

    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(folder, programs, table=table, runtime=runtime))
        facts = cluster.facts()
        if not options.no_hub:
            api = await stack.enter_async_context(Api(cluster.plane.kubeconfig("admin")))
            await shipped_policies(api)
            hub = EmulatedHub(
                folder / "hub",
                await hub_account(api, folder / "hub.kubeconfig"),
                spawner=options.spawner,
                hub_host=real[0].network.hub_host if real else "127.0.0.1",
                hub_port=hub_port,
                set_=dict(setting(text) for text in options.set),
            )
            stack.push_async_callback(hub.close)
            await hub.start()
            facts |= {
                "hub_url": f"{hub.url}/hub",
                "hub_api_url": f"{hub.url}/hub/api",
                "hub_kubeconfig": str(folder / "hub.kubeconfig"),
                "admin_token": hub.admin_token,
                "users": await hub.make_users(options.users),
            }
        if options.ready_file is not None:
            write_ready_file(options.ready_file, facts)
        say(json.dumps(facts, indent=1))
        waiting = asyncio.ensure_future(stop.wait())
        failing = asyncio.ensure_future(cluster.failed())
        try:
            await asyncio.wait({waiting, failing}, return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                failing.result()
        finally:
            for task in (waiting, failing):
                task.cancel()
            await asyncio.gather(waiting, failing, return_exceptions=True)
            if options.ready_file is not None:
                options.ready_file.unlink(missing_ok=True)
    return 0


def main() -> int:
    """Parse, run, end everything."""
    options = arguments().parse_args()
    with contextlib.ExitStack() as stack:
        if options.folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gke-emulator-", ignore_cleanup_errors=True)))
        else:
            folder = options.folder.absolute()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return asyncio.run(serve(options, folder, binaries()))
        except Stopped as error:
            say(str(error))
            return 1


if __name__ == "__main__":
    sys.exit(main())
