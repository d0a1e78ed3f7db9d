"""What the node agent asks of a container runtime: pretend pods and gVisor sandboxes answer to the same calls."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path) -> dict[str, Any]:
    """The file's content."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


class Ended(NamedTuple):
    """How a container ended."""

    code: int
    reason: str = ""
    """As in a container's status: ``Completed``, ``Error``, ``OOMKilled``."""


class RestoreCrashed(Exception):
    """gVisor began a restore and failed; the message is the container's."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A pod's main container, with everything resolved that a kubelet resolves."""

    namespace: str
    pod: str
    pod_uid: str
    container: str
    image: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    port: int
    volumes: Mapping[str, Path] = field(default_factory=dict)
    """Mount path in the container -> folder on this machine."""
    memory: int | None = None
    uid: int = 1000
    gid: int = 1000
    checkpoint_file: bool = True
    """Whether /proc/gvisor/checkpoint is there."""


class Instance(Protocol):
    """One running pod."""

    ip: str

    async def ended(self) -> Ended:
        """Wait until it has ended."""

    def terminate(self) -> None:
        """SIGTERM."""

    async def kill(self, reason: str = "Error") -> None:
        """End it now and remove what is left of it."""

    async def checkpoint(self, folder: Path) -> None:
        """Freeze it and write its image into ``folder``; it stays frozen. Raises OSError."""

    async def freeze(self) -> None:
        """Stand still, as during a checkpoint."""

    async def go_on(self, word: str) -> None:
        """Let it go on after :meth:`checkpoint` or :meth:`freeze`; ``word`` is what /proc/gvisor/checkpoint says."""

    def log(self) -> str:
        """What it wrote to its standard output."""


class Runtime(Protocol):
    """Makes instances."""

    async def start(self, launch: Launch) -> Instance:
        """A cold start."""

    async def restore(self, launch: Launch, folder: Path) -> Instance:
        """From an image that :meth:`Instance.checkpoint` wrote. Raises RestoreCrashed."""

    async def close(self) -> None:
        """End everything."""


@dataclass(frozen=True, slots=True)
class Image:
    """A row of the image table."""

    pattern: str
    command: tuple[str, ...]
    """The image's arguments, for pods that name none; no image of the table has an entry point of its own."""
    digest: str
    pull_seconds: float
    runs: str
    """``server``: behaves like a single-user server; ``exits:CODE``: ends at once; ``rootfs``: this Python environment."""


class Images:
    """The fixed table of images, ``images.toml``."""

    def __init__(self) -> None:
        rows = read_toml(Path(__file__).with_name("images.toml"))["image"]
        self._rows = [
            Image(row["pattern"], tuple(row.get("command", ())), row.get("digest", ""), row.get("pull_seconds", 0.0), row["runs"])
            for row in rows
        ]

    def find(self, name: str) -> Image | None:
        """The first row that fits."""
        return next((row for row in self._rows if fnmatch.fnmatchcase(name, row.pattern)), None)
