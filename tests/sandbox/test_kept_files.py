"""Files of the host that a paused process holds, and what happens when they change meanwhile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gke_workspaces_spawner.sandbox import SandboxError
from gke_workspaces_spawner.sandbox.files import read_json

from .conftest import UID, Lab, Session

SIZE = 3 << 20


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder of "libraries" below a read-only bind."""
    os.chmod(tmp_path, 0o755)
    folder = tmp_path / "prefix"
    (folder / "lib/deep").mkdir(parents=True)
    for name, letter in (("mapped.so", b"a"), ("opened.txt", b"b"), ("deep/unread.so", b"c"), ("untouched", b"d")):
        (folder / "lib" / name).write_bytes(letter * SIZE)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)
    return folder


async def holding(lab: Lab, library: Path) -> Session:
    """A session that maps one file, closed since, and never read one page of it; has another open; stands in a folder."""
    session = await lab.up(spec=lab.spec(readonly=(str(library),)))
    await session.run(
        "import mmap\n"
        f"lib = {str(library / 'lib')!r}\n"
        "global mapped, opened, unread\n"
        "with open(lib + '/mapped.so', 'rb') as f: mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)\n"
        "with open(lib + '/deep/unread.so', 'rb') as f: unread = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)\n"
        "opened = open(lib + '/opened.txt', 'rb'); opened.seek(5)\n"
        "mapped[0]\n"
        "os.chdir(lib + '/deep')"
    )
    return session


async def letters(session: Session) -> list[str]:
    """What the session sees in its two mappings, its open file, and whether that is all of it."""
    seen = await session.run(
        "opened.seek(0)\n"
        "return [sorted(set(mapped[:])), sorted(set(unread[:])), sorted(set(opened.read())), len(mapped), len(unread), os.getcwd()]"
    )
    assert seen[3:5] == [SIZE, SIZE]
    return ["".join(map(chr, part)) for part in seen[:3]] + [seen[5]]


def replace(path: Path, letter: bytes) -> None:
    """As pip and dpkg do: a new file, renamed over the old one."""
    new = path.with_name("new")
    new.write_bytes(letter * SIZE)
    new.chmod(0o755)
    os.replace(new, path)


async def test_nothing_is_overlaid_when_nothing_changed(lab: Lab, library: Path) -> None:
    await holding(lab, library)
    await lab.pause()
    session = await lab.resume()
    assert await letters(session) == ["a", "c", "b", str(library / "lib/deep")]
    assert not (lab.room().path / "layers").exists()


async def test_replaced_libraries_keep_their_old_bytes_after_the_restore(lab: Lab, library: Path) -> None:
    await holding(lab, library)
    await lab.pause()
    for name in ("mapped.so", "opened.txt", "deep/unread.so"):
        replace(library / "lib" / name, b"X")
    session = await lab.resume()
    assert await letters(session) == ["a", "c", "b", str(library / "lib/deep")]
    assert await session.run(f"return open({str(library / 'lib/untouched')!r}).read(3)") == "ddd"
    await lab.pause("one", "p2", "s2")
    session = await lab.resume("one", "s2")
    assert await letters(session) == ["a", "c", "b", str(library / "lib/deep")]
    assert (library / "lib/mapped.so").read_bytes() == b"X" * SIZE


async def test_rewritten_in_place_and_deleted_trees_come_back_too(lab: Lab, library: Path) -> None:
    await holding(lab, library)
    await lab.pause()
    (library / "lib/mapped.so").write_bytes(b"X" * SIZE)
    shutil.rmtree(library / "lib/deep")
    (library / "lib/deep").symlink_to("/etc")
    session = await lab.resume()
    assert await letters(session) == ["a", "c", "b", str(library / "lib/deep")]
    await lab.sandboxes.remove("one")
    shutil.rmtree(library)
    session = await lab.resume()
    assert await letters(session) == ["a", "c", "b", str(library / "lib/deep")]
    assert not library.exists()


async def test_snapshot_of_a_patched_server_restores_also_after_the_old_files_are_back(lab: Lab, library: Path) -> None:
    await holding(lab, library)
    await lab.pause()
    replace(library / "lib/mapped.so", b"X")
    await lab.resume()
    await lab.pause("one", "p2", "s2")
    replace(library / "lib/mapped.so", b"a")
    session = await lab.resume("one", "s2")
    assert (await letters(session))[0] == "a"
    assert not (lab.room().path / "layers").exists()


async def test_library_replaced_while_the_server_runs_is_kept_as_the_server_has_it(lab: Lab, library: Path) -> None:
    session = await holding(lab, library)
    replace(library / "lib/mapped.so", b"X")
    (library / "lib/deep/unread.so").unlink()
    assert (await letters(session))[0] == "a"
    await lab.pause()
    session = await lab.resume()
    assert await letters(session) == ["a", "c", "b", str(library / "lib/deep")]


async def test_same_bytes_in_a_new_file_are_no_change(lab: Lab, library: Path) -> None:
    await holding(lab, library)
    await lab.pause()
    replace(library / "lib/mapped.so", b"a")
    session = await lab.resume()
    assert (await letters(session))[0] == "a"
    assert not (lab.room().path / "layers").exists()


async def test_restore_is_refused_with_the_names_when_the_copy_is_gone_or_changed(lab: Lab, library: Path) -> None:
    await holding(lab, library)
    await lab.pause()
    held = read_json(lab.state / "snapshots/s1/kept.json")
    assert held is not None
    digests = {os.path.basename(entry["path"]): entry.get("sha256") for entry in held["files"]}
    replace(library / "lib/mapped.so", b"X")
    replace(library / "lib/opened.txt", b"X")
    (lab.state / "kept" / digests["mapped.so"]).unlink()
    copy = lab.state / "kept" / digests["opened.txt"]
    copy.write_bytes(b"Y" * SIZE)
    with pytest.raises(SandboxError) as caught:
        await lab.resume()
    assert caught.value.code == "files_changed"
    assert str(library / "lib/mapped.so") in caught.value.detail
    assert str(library / "lib/opened.txt") in caught.value.detail
    assert await lab.sandboxes.snapshots() == ("s1",)
    assert await lab.sandboxes.ids() == ()


async def test_copies_are_shared_by_snapshots_and_never_linked_to_their_originals(lab: Lab, library: Path) -> None:
    await holding(lab, library)
    await lab.pause()
    before = {path.name: path.stat().st_mtime_ns for path in (lab.state / "kept").iterdir() if path.is_file() and path.name != "lock"}
    inodes = {path.stat().st_ino for path in library.rglob("*")}
    assert len(before) > 5
    assert not inodes & {path.stat().st_ino for path in (lab.state / "kept").iterdir()}
    await lab.resume()
    await lab.pause("one", "p2", "s2")
    after = {path.name: path.stat().st_mtime_ns for path in (lab.state / "kept").iterdir() if path.is_file() and path.name != "lock"}
    assert {name: after[name] for name in before if name in after} == {name: before[name] for name in before if name in after}
    await lab.idle()
    await lab.sandboxes.delete("s1")
    assert {path.name for path in (lab.state / "kept").iterdir()} >= {
        entry["sha256"] for entry in (read_json(lab.state / "snapshots/s2/kept.json") or {})["files"] if "sha256" in entry
    }
    assert await letters(await lab.resume("one", "s2")) == ["a", "c", "b", str(library / "lib/deep")]


async def test_only_files_below_our_own_read_only_binds_are_kept(lab: Lab, library: Path) -> None:
    session = await holding(lab, library)
    await session.run(
        "global more\nos.makedirs('/home/ann/usr/lib', exist_ok=True)\nos.symlink('/etc/shadow', '/home/ann/usr/lib/shadow.so')\n"
        "open('/home/ann/usr/lib/own.so', 'w').write('own')\nopen('/tmp/t.so', 'w').write('t')\n"
        "more = [open(p) for p in ('/home/ann/usr/lib/own.so', '/tmp/t.so', '/etc/passwd', '/proc/self/status')]"
    )
    await lab.pause()
    held = read_json(lab.state / "snapshots/s1/kept.json")
    spec = await lab.sandboxes.spec("s1")
    assert held is not None
    assert spec is not None
    made = read_json(lab.state / "snapshots/s1/spec.json")
    assert made is not None
    for entry in held["files"]:
        assert any(entry["path"].startswith(bind) for bind in (*spec.readonly, *made["etc"])), entry
    manifest = await lab.sandboxes.manifest("s1")
    assert manifest is not None
    assert {"path": "usr/lib/own.so", "kind": "file"} in manifest["open_files"]
    session = await lab.resume()
    assert await session.run("return [f.read() for f in more[:2]]") == ["own", "t"]


async def test_missing_open_files_and_folders_of_the_home_get_places_that_go_again(lab: Lab) -> None:
    session = await lab.up()
    await session.run(
        "global deep\nos.makedirs('/home/ann/a/b')\n"
        "deep = open('/home/ann/a/b/notes.txt', 'w+'); deep.write('x'); deep.flush()\nos.chdir('/home/ann/a')"
    )
    await lab.pause()
    shutil.rmtree(lab.home() / "a")
    session = await lab.resume()
    place = lab.home() / "a/b/notes.txt"
    assert place.read_bytes() == b""
    assert place.stat().st_uid == UID
    assert await session.run("return os.getcwd()") == "/home/ann/a"
    await lab.sandboxes.remove("one")
    assert not (lab.home() / "a").exists()
    session = await lab.resume()
    await session.run("deep.seek(0); deep.write('used'); deep.flush()")
    await lab.sandboxes.remove("one")
    assert place.read_text() == "used"


async def test_restored_server_maps_real_libraries_of_this_python(lab: Lab) -> None:
    """An extension module replaced while paused: the code that was loaded goes on running."""
    import _json

    real = Path(_json.__file__ or "")
    prefix = lab.state.parent / "python"
    shutil.copytree(real.parent, prefix / "dyn", symlinks=True)
    for path in [prefix, *prefix.rglob("*")]:
        path.chmod(0o755)
    os.chmod(lab.state.parent, 0o755)
    session = await lab.up(spec=lab.spec(readonly=(str(prefix),)))
    target = prefix / "dyn" / real.name
    await session.run(
        f"import importlib.util\nglobal native\nspec = importlib.util.spec_from_file_location('_json', {str(target)!r})\n"
        "native = importlib.util.module_from_spec(spec); spec.loader.exec_module(native)"
    )
    maps = await session.run("return open('/proc/self/maps').read()")
    assert str(target) in maps
    await lab.pause()
    replace(target, b"\0")
    session = await lab.resume()
    assert await session.run("return native.encode_basestring_ascii('h' + chr(233))") == '"h\\u00e9"'
    assert (lab.room().path / "layers").exists()
