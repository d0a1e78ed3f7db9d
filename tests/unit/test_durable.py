"""What a pause says to be saved outlives the machine: written through to the disk first, visible under its name only then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gke_workspaces_spawner.sandbox import binary
from gke_workspaces_spawner.sandbox.files import write_json
from gke_workspaces_spawner.sandbox.kept import Store
from gke_workspaces_spawner.sandbox.snapshots import PAGES, Shelf

Done = list[tuple[str, Path]]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Done:
    """In order: ``("disk", path)`` for what was written through, ``("name", path)`` for what appeared under a name."""
    done: Done = []
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def to_disk(fd: int) -> None:
        fsync(fd)
        done.append(("disk", Path(os.readlink(f"/proc/self/fd/{fd}"))))

    def named(how: object, source: os.PathLike[str], target: os.PathLike[str]) -> None:
        how(source, target)  # type: ignore[operator]
        done.append(("name", Path(target)))

    monkeypatch.setattr(os, "fsync", to_disk)
    monkeypatch.setattr(os, "rename", lambda source, target: named(rename, source, target))
    monkeypatch.setattr(os, "replace", lambda source, target: named(replace, source, target))
    return done


def test_a_snapshot_is_on_the_disk_before_it_is_visible(tmp_path: Path, done: Done) -> None:
    shelf = Shelf(tmp_path, b"k" * 32)
    partial = shelf.partial("s1")
    partial.mkdir()
    for name in (PAGES, "checkpoint.img", "manifest.json"):
        (partial / name).write_bytes(b"x" * 100)
    shelf.publish("s1")
    visible = done.index(("name", shelf.path("s1")))
    before = {path for what, path in done[:visible] if what == "disk"}
    written = {partial / entry.name for entry in shelf.path("s1").iterdir()}
    assert written | {partial} <= before
    assert ("disk", shelf.folder) in done[visible:]


def test_a_kept_file_is_on_the_disk_before_it_is_named(tmp_path: Path, done: Done) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(b"code")
    store = Store(tmp_path)
    digest = store.put(str(library))
    assert [what for what, _ in done] == ["disk", "name"]
    assert done[-1] == ("name", store.path(digest))


def test_a_note_of_a_kept_file_that_a_crash_left_empty_is_not_believed(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    store = Store(tmp_path)
    library.write_bytes(b"x" * store.folder.stat().st_size)
    digest = store.put(str(library))
    (note,) = (store.folder / "index").iterdir()
    note.write_text("")
    assert store.put(str(library)) == digest


def test_the_runsc_of_a_snapshot_is_on_the_disk_with_its_folders(tmp_path: Path, done: Done) -> None:
    runsc = binary.install(Path("/bin/true"), tmp_path)
    copy = tmp_path / "runsc-bin" / runsc.digest / "runsc"
    visible = done.index(("name", copy))
    assert done[:visible]
    assert {what for what, _ in done[:visible]} == {"disk"}
    assert {("disk", copy.parent), ("disk", copy.parent.parent)} <= set(done[visible:])


def test_a_durable_json_file_is_on_the_disk_before_it_is_named_and_its_name_after(tmp_path: Path, done: Done) -> None:
    write_json(tmp_path / "a.json", {"a": 1}, durable=True)
    assert [what for what, _ in done] == ["disk", "name", "disk"]
    assert done[-1] == ("disk", tmp_path)
