"""The ``gke-workspaces`` command: parsing only, each subcommand is a module of its own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .say import Stopped, say


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(words)
    try:
        return int(options.run(options, words))
    except Stopped as error:
        say(f"gke-workspaces: {error}", to=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("gke-workspaces: stopped.", to=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    from .places import default_state

    parser = argparse.ArgumentParser(prog="gke-workspaces", description="Pause JupyterHub servers with their memory, and resume them.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    state = argparse.ArgumentParser(add_help=False)
    state.add_argument("--state", type=Path, default=default_state(), metavar="DIR", help="the demo's state folder (default: %(default)s)")

    demo = commands.add_parser("demo", parents=[state], help="a JupyterHub on this machine whose servers can be paused")
    demo.add_argument("--port", type=_port, metavar="N", help="port on 127.0.0.1 (default: the last one, at first 8000)")
    demo.add_argument(
        "--user", action="append", default=[], metavar="NAME", help="a user; may be repeated (default: the last ones, at first ann and bo)"
    )
    demo.add_argument("--runsc", type=Path, metavar="PATH", help="this runsc instead of the pinned one")
    demo.add_argument("--ready-file", type=Path, metavar="FILE", help="write URLs and tokens there, as JSON, when the hub answers")
    demo.add_argument("--no-outbound", dest="outbound", action="store_false", help="servers do not reach the internet")
    demo.set_defaults(run=_demo)

    login = commands.add_parser("login", parents=[state], help="a new link that logs in at the running demo, once")
    login.add_argument("name", metavar="NAME", nargs="?", help="the user (default: the demo's first one)")
    login.set_defaults(run=_login)

    cluster = argparse.ArgumentParser(add_help=False)
    cluster.add_argument("--kubeconfig", type=Path, metavar="FILE", help="how to reach the cluster (default: as kubectl does)")
    cluster.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    cluster.add_argument("--namespace", metavar="NAME", help="namespace of the hub (default: the context's)")
    cluster.add_argument("--json", action="store_true", help="print JSON instead of a table")

    doctor = commands.add_parser("doctor", parents=[cluster], help="whether a Kubernetes cluster is fit for pausing servers")
    doctor.add_argument("--values", type=Path, metavar="FILE", help="the hub's values (YAML) or jupyterhub_config.py; it is not run")
    doctor.set_defaults(run=_doctor)

    profiles = commands.add_parser("profiles", help="what each choice of a hub's profile list becomes, and what is wrong with it")
    profiles.add_argument("file", type=Path, metavar="FILE", help="the hub's values (YAML) or jupyterhub_config.py; it is not run")
    profiles.add_argument("--json", action="store_true", help="print JSON instead of a table")
    profiles.set_defaults(run=_profiles)

    uninstall = commands.add_parser("uninstall", parents=[cluster], help="what pausing has left in a cluster and a Hub, and its removal")
    uninstall.add_argument("--hub-url", metavar="URL", help="the Hub's REST, to ask for its records and to discard what is saved")
    how = uninstall.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="only list (the default)")
    how.add_argument("--yes", action="store_true", help="remove it; saved sessions are lost for good")
    uninstall.set_defaults(run=_uninstall)
    return parser


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError("a port is a number from 1 to 65535")
    return int(text)


def _demo(options: argparse.Namespace, words: Sequence[str]) -> int:
    from . import checks

    checks.machine()
    checks.root(words)
    from .demo import Options, demo

    return demo(Options(options.state.absolute(), options.port, tuple(options.user), options.runsc, options.ready_file, options.outbound))


def _login(options: argparse.Namespace, words: Sequence[str]) -> int:
    from . import checks

    checks.root(words)
    from .link import new_link

    print(new_link(options.state.absolute(), options.name))
    return 0


def _doctor(options: argparse.Namespace, words: Sequence[str]) -> int:
    from .doctor import Options, doctor

    return doctor(Options(options.kubeconfig, options.context, options.namespace, options.values, options.json))


def _profiles(options: argparse.Namespace, words: Sequence[str]) -> int:
    from .profiles import Options, profiles

    return profiles(Options(options.file, options.json))


def _uninstall(options: argparse.Namespace, words: Sequence[str]) -> int:
    from .uninstall import Options, uninstall

    return uninstall(Options(options.kubeconfig, options.context, options.namespace, options.hub_url, options.yes, options.json))
