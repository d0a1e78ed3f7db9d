"""``gke-workspaces demo``: a JupyterHub on this machine whose servers can be paused, from nothing to one URL.

The order is: look whether it can work, before anything is touched; end what a killed start left; bring what is missing; make
the network; start the Hub; give people their tokens and links. Stopping goes the other way, and pauses what runs first.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from ..hubclient import HubClient, HubError
from ..sandbox import probe
from ..sandbox.network import Network, NetworkError
from . import checks, lost, people, readyfile, settings, stopping
from .bring import bring
from .hub_config import write_config
from .leftovers import MARK, end_leftovers
from .say import Stopped, say, step
from .settings import Settings
from .signals import Asked, AtOnce, Signals, signals

START_SECONDS = 90.0
"""For the Hub to answer through its proxy."""
END_SECONDS = 20.0
"""For the Hub to end after a SIGTERM."""
LOG_BYTES = 5 << 20
"""A log that is longer is kept as ``.1`` at the next start."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    state: Path
    port: int | None
    users: tuple[str, ...]
    runsc: Path | None
    ready_file: Path | None
    outbound: bool


def demo(options: Options) -> int:
    """Run it until it is asked to stop; the exit code. Raises Stopped with one sentence when it cannot."""
    checks.machine()
    users = checks.user_names(options.users)
    checks.state_folder(options.state)
    state = options.state.resolve()
    with _only_one(state), signals() as coming:
        chosen = settings.choose(state, options.port, users)
        if options.ready_file:
            readyfile.check_place(options.ready_file)
            readyfile.remove(options.ready_file)
        _forget_old_ready_file(chosen)
        end_leftovers(chosen, "An earlier start was killed")
        checks.port_free(chosen.port)
        checks.disk(state, checks.STATE_BYTES, "the demo's state folder", "free some, or use --state on another disk")
        say(f"GKE Workspaces, state in {state}")
        brought = bring(options.runsc)
        complaint = probe(brought.runsc)
        if complaint:
            raise Stopped(complaint)
        network: Network | None = None
        try:
            with coming.held():
                network = Network.open(state, outbound=options.outbound, hub_ports=[chosen.hub_port])
            chosen = replace(
                chosen,
                ready_file=str(options.ready_file.absolute()) if options.ready_file else "",
                hub_host=network.hub_host,
                runsc=str(brought.runsc),
                proxy_command=brought.proxy,
                outbound=options.outbound,
            )
            return _serve(_with_free_ports(chosen), network, coming)
        except NetworkError as error:
            raise Stopped(error.sentence) from error
        finally:
            coming.over()
            if network is not None:
                network.close()


def _serve(chosen: Settings, network: Network, coming: Signals) -> int:
    """From the start of the Hub to its end."""
    hub = HubProcess(chosen, coming)
    tokens: dict[str, Any] = {}
    try:
        code = _until_asked(chosen, hub, tokens)
        coming.over()
        _close(chosen, hub)
        return code
    except Asked:
        return _pause_and_stop(chosen, hub, network, coming, tokens.get("admin_token", ""))
    except (Stopped, HubError, OSError) as error:
        coming.over()
        _close(chosen, hub)
        if isinstance(error, Stopped):
            raise
        raise Stopped(f"The hub did not do what it was asked for: {error}\n{hub.tail()}") from error
    finally:  # whatever came in between
        coming.over()
        _forget_old_ready_file(chosen)
        hub.kill()


def _pause_and_stop(chosen: Settings, hub: HubProcess, network: Network, coming: Signals, admin_token: str) -> int:
    """What Ctrl-C asks for; a second one ends it at once."""
    try:
        say()
        if admin_token and hub.alive():
            _pause_servers(HubClient(chosen.hub_api_url, admin_token))
        elif count := stopping.alive(chosen):  # found by a start that was broken off
            many = count > 1
            say(f"{count} server{'s run' if many else ' runs'} on without the hub: the next start finds {'them' if many else 'it'}.")
        say("Stopping the hub. Paused servers can be resumed after the next start.")
        _close(chosen, hub, revoke=bool(admin_token))
        return 0
    except AtOnce:
        coming.over()
        _stop_at_once(chosen, hub, network, admin_token)
        return 130


def _pause_servers(client: HubClient) -> None:
    try:
        for server in stopping.pause_all(client):
            say(f"  {server} is still running: the next start finds it.")
    except HubError as error:
        say(f"The hub does not say what runs ({error}). Servers that run go on in their sandboxes: start again to find them.")


def _until_asked(chosen: Settings, hub: HubProcess, tokens: dict[str, Any]) -> int:
    """Start, tell people, and wait; returns only when the Hub ends by itself."""
    ran = lost.ran(chosen)
    with step("starting the hub"):
        hub.start()
    tokens.update(people.welcome(chosen))
    _tell_of_lost(chosen, tokens["admin_token"], ran)
    if chosen.ready_file:
        readyfile.write(Path(chosen.ready_file), tokens)
    _announce(chosen, tokens)
    hub.wait()
    say(f"The hub ended by itself (exit code {hub.code}). Servers that run go on in their sandboxes: start again to find them.")
    say(hub.tail())
    return 1


def _tell_of_lost(chosen: Settings, admin_token: str, ran: Sequence[stopping.Running]) -> None:
    """In one line."""
    names = [str(server) for server in lost.lost(HubClient(chosen.hub_api_url, admin_token), ran)]
    if names:
        count = f"{len(names)} server{'s' if len(names) > 1 else ''}"
        say(f"Lost since the last start: the memory of {count} that ran ({', '.join(names)}); files and earlier pauses are kept.")


def _close(chosen: Settings, hub: HubProcess, *, revoke: bool = True) -> None:
    """Tokens worthless (where some were given out), file gone, Hub and proxy ended."""
    if revoke and hub.alive():
        try:
            people.revoke(chosen)
        except HubError as error:
            say(f"  tokens could not be revoked now, the next start does it: {error}")
    _forget_old_ready_file(chosen)
    hub.end()


def _stop_at_once(chosen: Settings, hub: HubProcess, network: Network, admin_token: str) -> None:
    """Say what is lost, then end everything but snapshots and homes."""
    try:
        client = HubClient(chosen.hub_api_url, admin_token, timeout=2.0)
        names = [str(server) for server in stopping.running(client)] if admin_token and hub.alive() else []
    except HubError:
        names = []
    hub.kill()
    _forget_old_ready_file(chosen)
    ended = stopping.end_sandboxes(chosen, network)
    for sandbox in ended:
        network.detach(sandbox)
    if ended:
        who = f" ({', '.join(names)})" if names else ""
        count = f"{len(ended)} server{'s' if len(ended) > 1 else ''}{who}"
        say(f"Stopped at once. Lost: the memory of {count}; files and earlier pauses are kept.")
    else:
        say("Stopped at once. Nothing was running, nothing is lost.")


class HubProcess:
    """The Hub as a child, in a session of its own: a Ctrl-C at the terminal reaches the command only."""

    def __init__(self, chosen: Settings, coming: Signals) -> None:
        self._settings = chosen
        self._coming = coming
        self._log = chosen.logs / "hub.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers through the proxy. Raises Stopped with the end of its log."""
        chosen = self._settings
        chosen.save()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTERHUB_", "CONFIGPROXY_", "JPY_"))}
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        environment[MARK] = chosen.state
        with _log_file(self._log) as log, self._coming.held():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(write_config(chosen))],
                cwd=chosen.hub,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=0o077,
            )
        client = HubClient(chosen.hub_api_url, chosen.command_token, timeout=5.0)
        end = time.monotonic() + START_SECONDS
        while True:
            if not self.alive():
                raise Stopped(f"The hub did not start (exit code {self.code}); its log is {self._log}:\n{self.tail()}")
            try:
                client.call("GET", "/info")
                return
            except HubError as error:
                if time.monotonic() > end:
                    raise Stopped(
                        f"The hub does not answer after {START_SECONDS:.0f} s ({error}); its log is {self._log}:\n{self.tail()}"
                    ) from error
            time.sleep(0.1)

    @property
    def code(self) -> int | None:
        """Its exit code; ``None`` while it runs."""
        return self._process.poll() if self._process else None

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def wait(self) -> None:
        """Until it ends."""
        if self._process:
            self._process.wait()

    def end(self) -> None:
        """In order: it ends its proxy and services, and leaves servers running."""
        if self._process and self.alive():
            self._process.terminate()
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                say(f"  the hub does not end after {END_SECONDS:.0f} s and is killed")
        self.kill()

    def kill(self) -> None:
        """At once, with its proxy and services."""
        if self._process and self.alive():
            self._process.kill()
            self._process.wait()
        end_leftovers(self._settings)

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        try:
            return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


def _announce(chosen: Settings, ready: dict[str, Any]) -> None:
    first, *others = chosen.users
    say(f"\nReady. Open this link in your browser (it logs in as {first}, once, within ten minutes):\n")
    say(f"    {ready['users'][first]['login_url']}\n")
    command = shlex.join([_this_command(), "login", "NAME", "--state", chosen.state])
    say(f"Another link, also for {', '.join([*others, people.ADMIN])}: {command}")
    say(f"Log: {chosen.logs / 'hub.log'}. Ctrl-C pauses the servers that run and stops.")


def _this_command() -> str:
    """How the person calls this command: by its name where that is found, else by its path (``make demo`` puts it into ``.venv``)."""
    ours = Path(sys.executable).parent / "gke-workspaces"
    found = shutil.which("gke-workspaces")
    return "gke-workspaces" if found and Path(found).resolve() == ours.resolve() else str(ours)


def _with_free_ports(chosen: Settings) -> Settings:
    if not settings.free(chosen.hub_port, chosen.hub_host):
        who = checks.listener(chosen.hub_port)
        raise Stopped(
            f"Port {chosen.hub_port} is taken{f' by {who}' if who else ''}, and paused servers know the hub by it: stop that, "
            "or use another state folder."
        )
    return chosen if settings.free(chosen.proxy_api_port) else settings.another_proxy_port(chosen)


def _forget_old_ready_file(chosen: Settings) -> None:
    if chosen.ready_file:
        try:
            readyfile.remove(Path(chosen.ready_file))
        except Stopped as error:
            say(f"  {error}")


@contextmanager
def _log_file(path: Path) -> Iterator[IO[bytes]]:
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    with path.open("ab") as log:
        yield log


@contextmanager
def _only_one(state: Path) -> Iterator[None]:
    """One command per state folder."""
    with (state / "lock").open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise Stopped(
                f"A demo with the state folder {state} runs already (pid {lock.read().strip()}): stop it, or use another --state."
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
