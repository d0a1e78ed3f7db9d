"""What one demo has chosen: ports, users, keys. Made once, kept in ``STATE/hub/settings.json`` (0600), read by the Hub too."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

PORTS = range(20_000, 32_768)
"""For what nobody types: below the range that the kernel gives to outgoing connections."""
DEFAULT_PORT = 8000
DEFAULT_USERS = ("ann", "bo")


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it; secrets are hex."""

    state: str
    port: int
    """Public, on 127.0.0.1."""
    users: tuple[str, ...]
    hub_port: int
    """On the network's ``hub_host``; paused processes hold it in their memory, so it is never changed."""
    proxy_api_port: int
    cookie_secret: str
    crypt_key: str
    proxy_token: str
    command_token: str
    """The demo command's own token; it only makes and revokes the tokens of people, and leaves this folder never."""
    ready_file: str = ""
    """Where tokens were written last, to be removed at the next start."""
    hub_host: str = "127.0.0.1"
    runsc: str = "runsc"
    proxy_command: tuple[str, ...] = ()
    outbound: bool = True

    @property
    def url(self) -> str:
        """The public root."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def hub_api_url(self) -> str:
        """REST, as people and scripts reach it."""
        return f"{self.url}hub/api"

    @property
    def hub(self) -> Path:
        """Folder of the Hub's own files."""
        return hub_folder(Path(self.state))

    @property
    def logs(self) -> Path:
        """Folder of the log files."""
        return Path(self.state, "logs")

    @property
    def database(self) -> Path:
        """The Hub's."""
        return self.hub / "jupyterhub.sqlite"

    @property
    def tickets(self) -> Path:
        """The tickets to log in with."""
        return self.hub / "tickets.sqlite"

    def login_url(self, ticket: str) -> str:
        """A link that logs in once; the ticket is in the fragment, which is never sent in a request line."""
        return f"{self.url}hub/login#{ticket}"

    def save(self) -> None:
        """Write them, complete or not at all."""
        path = self.hub / "settings.json"
        temporary = path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


def hub_folder(state: Path) -> Path:
    """Where the Hub's own files are."""
    return state / "hub"


def load(state: Path) -> Settings | None:
    """The settings of a state folder, if it has some; unknown fields of a newer version are left out."""
    try:
        data: dict[str, Any] = json.loads((hub_folder(state) / "settings.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    known = {name: data[name] for name in Settings.__dataclass_fields__ if name in data}
    for name in ("users", "proxy_command"):
        known[name] = tuple(known.get(name, ()))
    return Settings(**known)


def choose(state: Path, port: int | None, users: Sequence[str]) -> Settings:
    """The settings of a state folder with what was asked for now; what is new is chosen."""
    for folder in (hub_folder(state), state / "logs"):
        folder.mkdir(mode=0o700, exist_ok=True)
    old = load(state)
    if old is None:
        hub_port, proxy_api_port = _free_ports(2)
        old = Settings(
            state=str(state),
            port=DEFAULT_PORT,
            users=DEFAULT_USERS,
            hub_port=hub_port,
            proxy_api_port=proxy_api_port,
            cookie_secret=secrets.token_hex(32),
            crypt_key=secrets.token_hex(32),
            proxy_token=secrets.token_hex(32),
            command_token=secrets.token_hex(32),
        )
    new = replace(old, state=str(state), port=port or old.port, users=tuple(users) or old.users)
    new.save()
    return new


def another_proxy_port(settings: Settings) -> Settings:
    """The proxy's API has a new port; nothing but a running Hub knows the old one."""
    return replace(settings, proxy_api_port=_free_ports(1)[0])


def free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether that port can be listened on now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _free_ports(count: int) -> list[int]:
    generator = secrets.SystemRandom()
    found: list[int] = []
    while len(found) < count:
        port = generator.choice(PORTS)
        if port not in found and free(port, "0.0.0.0"):
            found.append(port)
    return found
