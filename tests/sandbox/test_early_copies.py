"""Copies of the libraries that a server holds are made while it runs, and neither a pause nor an end ever waits for that."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest

from gke_workspaces_spawner.sandbox import SandboxError, kept
from gke_workspaces_spawner.sandbox.files import read_json, sha256_file
from gke_workspaces_spawner.sandbox.room import EARLY

from .conftest import Lab, Session, wait_for

SIZE = 300 << 20
LARGE = 100 << 20
"""Bytes that a half-made copy of no other file has."""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A large file below a read-only bind."""
    folder = tmp_path / "prefix"
    folder.mkdir()
    path = folder / "large.so"
    with path.open("wb") as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 20))
    for each in (tmp_path, folder, path):
        each.chmod(0o755)
    return path


async def holding(lab: Lab, library: Path, name: str = "one") -> Session:
    session = await lab.up(name, spec=lab.spec(readonly=(str(library.parent),)))
    await session.run(f"global mapped\nimport mmap\nwith open({str(library)!r}, 'rb') as f: mapped = mmap.mmap(f.fileno(), 0, access=1)")
    return session


def copies(lab: Lab) -> dict[str, int]:
    """Inode of each copy, also of those under way."""
    return {path.name: path.stat().st_ino for path in (lab.state / "kept").iterdir() if path.is_file() and path.name != "lock"}


def digests(lab: Lab, snapshot_id: str = "s1") -> set[str]:
    held = read_json(lab.state / "snapshots" / snapshot_id / "kept.json")
    assert held is not None
    return {entry["sha256"] for entry in held["files"] if "sha256" in entry}


async def test_a_pause_finds_the_copies_made(lab: Lab, library: Path) -> None:
    await holding(lab, library)
    await wait_for((lab.room().path / EARLY).exists, 60)
    before = copies(lab)
    assert set(before) == lab.room().early()
    assert sha256_file(library) in before
    await lab.pause()
    after = copies(lab)
    assert {name: after[name] for name in before} == before
    assert digests(lab) <= set(after)


async def test_a_pause_while_they_are_made_is_right_and_makes_none_twice(lab: Lab, library: Path) -> None:
    session = await holding(lab, library)
    big = "hashlib.sha256(mapped).hexdigest()"
    before = await session.run(f"return {big}")
    begun: list[int] = []

    def under_way() -> bool:
        begun.clear()
        for path in (lab.state / "kept").glob(".*"):
            with contextlib.suppress(FileNotFoundError):
                found = path.stat()
                begun.extend([found.st_ino] if found.st_size >= LARGE else [])
        return bool(begun)

    await wait_for(under_way, 60)
    await lab.pause()
    found = copies(lab)
    assert not [name for name in found if name.startswith(".")]
    assert found[sha256_file(library)] in begun  # the very file that was being written when the pause came
    assert before in digests(lab)
    os.unlink(library)
    assert await (await lab.resume()).run(f"return {big}") == before


async def test_an_end_waits_for_no_copy_and_leaves_none_half_made(lab: Lab, library: Path) -> None:
    await holding(lab, library)
    await wait_for(lambda: any(name.startswith(".") for name in copies(lab)), 60)
    await lab.sandboxes.remove("one")
    assert await lab.sandboxes.ids() == ()
    await lab.idle()
    assert not [name for name in copies(lab) if name.startswith(".")]


async def test_copies_for_running_servers_stay_when_a_snapshot_is_deleted(lab: Lab, library: Path) -> None:
    await lab.up("two")
    await lab.pause("two", "p2", "s2")
    await lab.idle()
    await holding(lab, library)
    await wait_for((lab.room().path / EARLY).exists, 60)
    await lab.sandboxes.delete("s2")
    assert sha256_file(library) in copies(lab)
    await lab.sandboxes.remove("one")
    await lab.idle()
    await lab.sandboxes.delete("s2")
    assert copies(lab) == {}


def test_two_threads_never_copy_one_file_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * (kept.PIECE + 1))
    store, made, halfway, go_on = kept.Store(tmp_path), [], threading.Event(), threading.Event()
    clone = kept._clone

    def counted(*arguments: object) -> None:
        made.append(arguments)
        clone(*arguments)  # type: ignore[arg-type]
        halfway.set()
        assert go_on.wait(20)

    monkeypatch.setattr(kept, "_clone", counted)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(store.put(str(source)))) for _ in range(2)]
    threads[0].start()
    assert halfway.wait(20)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert found == [sha256_file(source)] * 2


def test_a_copy_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * (kept.PIECE + 1))
    store = kept.Store(tmp_path)
    with pytest.raises(SandboxError):
        store.put(str(source), lambda: True)
    assert [path.name for path in store.folder.iterdir()] == ["index"]
    assert list((store.folder / "index").iterdir()) == []
