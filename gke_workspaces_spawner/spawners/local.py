"""Servers in gVisor sandboxes on the Hub's own machine: the embedded default, with real memory, and no cluster."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import secrets
import shutil
import site
import sys
import sysconfig
from collections.abc import Mapping, MutableMapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jupyterhub.spawner import Spawner
from jupyterhub.traitlets import ByteSpecification
from traitlets import Bool, List, Unicode

from ..engines.gvisor import GVisorEngine
from ..hub.mixin import PausableMixin
from ..hub.services import ENDED, Workspaces
from ..hub.vault import TokenFiles
from ..lifecycle.model import Json
from ..lifecycle.phases import Phase
from ..lifecycle.reasons import Broken
from ..sandbox import Network, Sandboxes, SandboxSpec
from ..sandbox.homes import Item, Listing, listing, make_home, open_file, placeholders

PORT = 8888
"""Every sandbox has an address of its own, so all servers listen on the same port."""
FIRST_UID = 210_000
"""Users get uids from here on: above what adduser and systemd give out, never an account of the host."""
MIGRATED = Item((".jupyter", "migrated"), "file")
"""Jupyter's mark of a home that needs no migration of IPython 3's settings."""


class LocalWorkspaceSpawner(PausableMixin, Spawner):  # type: ignore[misc]
    """Starts each single-user server in a gVisor sandbox that can be paused and resumed."""

    state_dir = Unicode(
        help="""
        Folder for sandboxes, snapshots, homes and keys.

        It is made 0700; its disk needs room for the memory of the servers that are paused.
        """
    ).tag(config=True)
    runsc = Unicode(
        "runsc",
        help="""
        Path or name of gVisor's runsc.

        It is copied into the state folder, and each snapshot is restored by the one that made it.
        """,
    ).tag(config=True)
    outbound = Bool(True, help="Whether servers may reach the internet (through NAT); never the host, each other or private networks.").tag(
        config=True
    )
    readonly_paths = List(Unicode(), help="Further host folders that servers see, read-only, at the same path.").tag(config=True)
    memory_reserve = ByteSpecification(
        "256M",
        help="""
        Memory of this machine that stays free when a server is resumed, in bytes or with a suffix (K, M, G, T).

        A resume that would go below it waits until other servers have ended or are paused.
        """,
    ).tag(config=True)

    @classmethod
    def make_workspaces(cls, settings: MutableMapping[str, Any], spawner: Any) -> Workspaces:
        state = Path(spawner.state_dir).absolute()
        runsc = shutil.which(spawner.runsc)
        if not spawner.state_dir:
            raise Broken("runsc_unusable", "c.LocalWorkspaceSpawner.state_dir is not set")
        if runsc is None:
            raise Broken("runsc_unusable", f"there is no runsc at {spawner.runsc}")
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        network = Network.open(state, outbound=spawner.outbound, hub_ports=[settings["hub"].port])
        sandboxes = Sandboxes(state, runsc=Path(runsc), network=network, mac_key=_key(state, "mac"))
        engine = GVisorEngine(sandboxes, logging.getLogger(GVisorEngine.__module__), spawner.memory_reserve)
        return Workspaces(settings, engine, TokenFiles(state / "tokens"), spawner.workspace_limits(), homes=Homes(state))

    async def poll(self) -> int | None:
        """The same answer; why this machine ended the server is kept for its user, before what is left of it is removed."""
        workspaces, key = self.workspaces, self.workspace_key
        if self.workspace.phase is Phase.RUNNING:
            why = await self._engine.why_ended(workspaces.server(key))
            if why is not None:
                workspaces.store.update_extra(key, **{ENDED: why})
        return await super().poll()

    # ------------------------------------------------------------ what the mixin asks for

    @property
    def _engine(self) -> GVisorEngine:
        engine = self.workspaces.engine
        assert isinstance(engine, GVisorEngine)
        return engine

    async def workspace_plain_launch(self) -> Mapping[str, Json]:
        self.ip, self.port = "0.0.0.0", PORT  # inside the sandbox's own network
        home = self.workspaces.homes.of(self.user.orm_user)
        inside = f"/home/{home.name}"
        spec = SandboxSpec(
            argv=(*self._command(), *self.get_args()),
            env={},
            uid=home.uid,
            gid=home.uid,
            user=home.name,
            home=str(home.path),
            home_inside=inside,
            readonly=tuple(sorted({*_interpreter_paths(), *self.readonly_paths})),
            memory_limit=int(self.mem_limit) if self.mem_limit else None,
            hostname="jupyter",
        )
        return {"spec": spec.to_json(), "secret_env": self._environment(inside, home.name), "snapshot_id": None}

    async def workspace_launch(self, spec: Mapping[str, Json]) -> None:
        self.workspaces.store.update_extra(self.workspace_key, **{ENDED: None})
        if spec.get("snapshot_id") is None:
            await self._let_a_full_home_start()
        self._address = await self._engine.start(self.workspaces.server(self.workspace_key), spec)

    async def _let_a_full_home_start(self) -> None:
        """Where the home is full a Jupyter Server ends at its start, as it cannot write that it has nothing to migrate (jupyter_core's
        ``migrate``, when there is an IPython folder): an empty marker takes no room and says the same.
        """
        home = self.workspaces.homes.of(self.user.orm_user)
        try:
            await asyncio.to_thread(placeholders, home.path, home.uid, home.uid, [MIGRATED])
        except OSError as error:  # a full disk without a free inode, or something odd of the user's own: Jupyter decides then
            self.log.warning("No marker in the home of %s: %s", self.user.name, error)

    def workspace_url(self) -> str | None:
        server = self.server
        address = getattr(self, "_address", None) or (server.ip if server is not None else None)
        if not address or server is None:
            return None
        return f"http://{address}:{PORT}{server.base_url}"

    def _command(self) -> list[str]:
        command = list(self.cmd)
        found = Path(sys.prefix, "bin", command[0])
        return [str(found), *command[1:]] if found.exists() else command

    def _environment(self, home: str, name: str) -> dict[str, str]:
        """All of it is handed over as a secret: admins put credentials into ``environment``."""
        env = {str(k): str(v) for k, v in self.get_env().items()}
        env.update(
            HOME=home,
            USER=name,
            LOGNAME=name,
            SHELL="/bin/bash",
            LANG=env.get("LANG", "C.UTF-8"),
            PATH=f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin",
            JUPYTER_RUNTIME_DIR="/tmp/jupyter-runtime",  # outside the home: nothing is written there between save and stop
            GKE_WORKSPACES_GUEST_SECRET=self.workspaces.guest_secret(self.workspace_key),
        )
        return env


# ---------------------------------------------------------------- homes


class Home:
    """A user's home folder on the host, with the uid that owns it."""

    def __init__(self, path: Path, uid: int, name: str) -> None:
        self.path = path
        self.uid = uid
        self.name = name


class Homes:
    """A uid and a home per user, never given to another one: a new user of an old name gets an empty home.

    SQLite gives ids of deleted rows away again, so a user is told apart by id and time of creation.
    """

    def __init__(self, state: Path) -> None:
        self._folder = state / "homes"
        self._table = state / "homes.json"
        self._folder.mkdir(mode=0o711, parents=True, exist_ok=True)

    def of(self, orm_user: Any) -> Home:
        """The home of that user, made when there is none."""
        identity = hashlib.sha256(f"{orm_user.id}/{orm_user.created.isoformat()}".encode()).hexdigest()[:16]
        table: dict[str, int] = json.loads(self._table.read_text(encoding="ascii")) if self._table.exists() else {}
        if identity not in table:
            table[identity] = max(table.values(), default=FIRST_UID - 1) + 1
            temporary = self._table.with_suffix(".new")
            temporary.write_text(json.dumps(table), encoding="ascii")
            os.replace(temporary, self._table)
        uid = table[identity]
        path = self._folder / identity
        make_home(path, uid, uid)
        return Home(path, uid, _login(orm_user.name, uid))

    def reader(self, orm_user: Any) -> HomeReader:
        """For pages that show a home while its server is paused."""
        return HomeReader(self.of(orm_user))


class HomeReader:
    """Reads a home in its user's uid, beneath it only, following no link; never runs anything in the Hub's own thread."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def listing(self, path: tuple[str, ...]) -> Listing:
        """What a folder holds, as much of it as a page shows. Raises OSError."""
        return await asyncio.to_thread(listing, self._home.path, self._home.uid, self._home.uid, path)

    async def open_file(self, path: tuple[str, ...]) -> int:
        """A descriptor of a regular file, which the caller closes. Raises OSError."""
        descriptor, _size = await asyncio.to_thread(open_file, self._home.path, self._home.uid, self._home.uid, path)
        return descriptor


def _login(name: str, uid: int) -> str:
    """A name for passwd and the home's path inside: the user's own where it is plain."""
    plain = "".join(c for c in name.lower() if c.isascii() and (c.isalnum() or c in "._-"))[:32]
    return plain if plain == name and plain[:1].isalpha() else f"user{uid}"


def _interpreter_paths() -> set[str]:
    """What a Python process of this environment reads, outside /usr: the venv, its base, an editable install's sources."""
    paths = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, sysconfig.get_path("purelib"), *site.getsitepackages())}
    paths |= {sys.prefix, *(package_folder(name) for name in ("gke_workspaces_spawner", "jupyter_pause_ext"))}
    outside = {p for p in paths if not f"{p}/".startswith("/usr/")}
    return {p for p in outside if not any(p != other and f"{p}/".startswith(f"{other}/") for other in outside)} | {"/usr"}


def package_folder(name: str) -> str:
    """Where a package's files lie: inside the environment, or elsewhere when it is installed for development."""
    spec = find_spec(name)
    return os.path.dirname(os.path.realpath(spec.origin)) if spec is not None and spec.origin else sys.prefix


def _key(state: Path, name: str) -> bytes:
    """A random key of that name, made once, 0600."""
    folder = state / "keys"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / name
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return path.read_bytes()
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(32))
        file.flush()
        os.fsync(file.fileno())
    return path.read_bytes()
