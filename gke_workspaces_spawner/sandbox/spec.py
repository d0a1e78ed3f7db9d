"""What a sandbox is made of, and what is said of it; plain values, JSON in and out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

Json = Any
"""A value that ``json.dumps`` takes."""

_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


def check_id(kind: str, value: str) -> str:
    """Return ``value`` if it may name a folder and a container; else raise ``ValueError``.

    At most 32 characters: runsc puts the id into the path of a unix socket (108 bytes in all). Ids of sandboxes must
    not be prefixes of one another (runsc resolves prefixes), which hashes of one fixed length are not.
    """
    if not _ID.fullmatch(value):
        raise ValueError(f"{kind} {value!r} is not made of 1-32 of a-z, 0-9, _ and -")
    return value


class SandboxSpec(NamedTuple):
    """What to run and what it may see. Holds no secret: it is written to disk and into snapshots."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    uid: int
    gid: int
    user: str
    """Name shown in the sandbox's passwd."""
    home: str
    """Host path; the only thing of the host that the sandbox may write."""
    home_inside: str
    """Where the home appears in the sandbox, e.g. ``/home/ann``."""
    readonly: tuple[str, ...]
    """Host paths bound read-only at the same path: ``/usr``, the interpreter's prefixes."""
    memory_limit: int | None = None
    """Bytes, or ``None``."""
    hostname: str = "workspace"

    def to_json(self) -> dict[str, Json]:
        """As a JSON object."""
        return {**self._asdict(), "argv": list(self.argv), "env": dict(self.env), "readonly": list(self.readonly)}

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> SandboxSpec:
        """The spec that :meth:`to_json` gave; fields of a later version are ignored."""
        known = {name: value[name] for name in cls._fields if name in value}
        known["argv"] = tuple(known["argv"])
        known["readonly"] = tuple(known["readonly"])
        return cls(**known)

    def check(self) -> None:
        """Raise ``ValueError`` for what would let the sandbox out or break its root file system."""
        if not self.argv:
            raise ValueError("argv is empty")
        if self.uid <= 0 or self.gid <= 0:
            raise ValueError("a sandbox never runs as the host's root")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", self.user):
            raise ValueError(f"user {self.user!r} cannot stand in a passwd file")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}", self.hostname):
            raise ValueError(f"hostname {self.hostname!r} is not one")
        for path in (self.home, self.home_inside, *self.readonly):
            parts = path.split("/")
            if not path.startswith("/") or path == "/" or any(part in ("", ".", "..") for part in parts[1:]):
                raise ValueError(f"{path!r} is not an absolute, plain path below /")
        for path in self.readonly:
            if path in ("/etc", "/dev", "/proc", "/sys", "/tmp", "/run", "/var", "/root", "/home"):
                raise ValueError(f"{path!r} is never shown to a sandbox as a whole")
            if is_below(self.home_inside, path) or is_below(path, self.home_inside):
                raise ValueError(f"{path!r} and the home in the sandbox lie in one another")


def is_below(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or lies in it; both absolute and plain."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


class Status(NamedTuple):
    """What the host knows of a sandbox."""

    state: str
    """``absent``, ``running``, ``frozen`` or ``exited``."""
    exit_code: int | None = None
    """Exit code of the first process (128 + signal as shells say), where it was seen."""
    address: str | None = None
    restored_from: str | None = None
    """Id of the snapshot that ``runsc restore`` loaded successfully; ``None`` for a cold start."""
    started: float = 0.0
    """Wall clock."""
    reason: str | None = None
    """``memory_limit`` when the sandbox was ended because it had taken more memory than it may; ``machine_restarted`` when it ended
    with the machine."""


class Attachment(Protocol):
    """A network namespace for one sandbox."""

    @property
    def path(self) -> str:
        """The namespace as a file, for runsc."""

    @property
    def ip(self) -> str:
        """The sandbox's address."""


class Network(Protocol):
    """Gives sandboxes network namespaces: :class:`.network.Network`, called in threads of the Hub; every call may be repeated."""

    def attach(self, sandbox_id: str) -> Attachment:
        """Make the namespace afresh (gVisor takes the addresses off the host side when a sandbox starts)."""

    def detach(self, sandbox_id: str) -> None:
        """Remove everything that :meth:`attach` made; may be repeated."""

    def release(self, sandbox_id: str) -> None:
        """Detach, and give the address to whoever needs one next."""

    def attached(self) -> Iterable[str]:
        """Ids that have a namespace."""

    def resolv_conf(self) -> str:
        """What ``/etc/resolv.conf`` says inside."""
