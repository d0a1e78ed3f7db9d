"""Placeholders in a home for what a saved process holds there and what has gone since: a restore fails without.

Everything in the home is done by :mod:`.homes`, with the user's uid.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from .errors import SandboxError
from .files import read_json, write_json
from .journal import note
from .room import PLACES
from .spec import Json, SandboxSpec


def hold_places(room: Path, spec: SandboxSpec, items: Iterable[Mapping[str, Json]]) -> None:
    """Empty files and folders where the processes hold some that have gone: a restore fails without."""
    wanted = [item for item in items if item["kind"] in ("file", "folder") and not _is_there(spec.home, item)]
    if not wanted:
        return
    from . import homes

    places = [homes.Item(tuple(item["path"].split("/")), item["kind"]) for item in wanted]
    try:
        made = homes.placeholders(Path(spec.home), spec.uid, spec.gid, places)
    except OSError as error:
        raise SandboxError("files_changed", f"open files of the home have gone and their places cannot be held: {error}") from error
    if made:
        said = [{"path": "/".join(one.path), "kind": one.kind, "device": one.device, "inode": one.inode} for one in made]
        write_json(room / PLACES, {"home": spec.home, "uid": spec.uid, "gid": spec.gid, "made": said})


def free_places(room: Path) -> None:
    """Remove what :func:`hold_places` made, where nobody has used it."""
    places = read_json(room / PLACES)
    if places is None:
        return
    from . import homes

    made = [homes.Made(tuple(one["path"].split("/")), one["kind"], one["device"], one["inode"]) for one in places["made"]]
    try:
        homes.remove_unused(Path(places["home"]), places["uid"], places["gid"], made)
    except OSError as error:
        note(f"placeholders of {room.name} stay: {error}")


def _is_there(home: str, item: Mapping[str, Json]) -> bool:
    """Whether a file or folder of the home is at its place; never through a link, and nothing is opened but the way to it."""
    parts = item["path"].split("/")
    folder = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        found = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return False
    finally:
        os.close(folder)
    return stat.S_ISREG(found) if item["kind"] == "file" else stat.S_ISDIR(found)
