"""Root never follows what a user can steer: :mod:`gke_workspaces_spawner.sandbox.homes`, attacked as a user would."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import stat
import threading
from pathlib import Path

import pytest

from gke_workspaces_spawner.sandbox import homes
from gke_workspaces_spawner.sandbox.homes import Item, Made

UID = 219_876
RENAME_EXCHANGE = 2


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home below folders that its user cannot enter, as in a state folder."""
    state = tmp_path / "state"
    (state / "homes").mkdir(mode=0o711, parents=True)
    state.chmod(0o700)
    path = state / "homes" / "one"
    homes.make_home(path, UID, UID)
    return path


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A tree outside of the home that everybody may write: only our own care protects it."""
    tree = tmp_path / "canary"
    tree.mkdir()
    (tree / "inner").mkdir()
    (tree / "secret").write_text("do not read")
    for place in (tree, tree / "inner"):
        place.chmod(0o777)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    tmp_path.chmod(0o711)
    return tree


def fingerprint(tree: Path) -> str:
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(tree):
        for name in sorted([*folders, *files]):
            path = Path(folder, name)
            status = path.lstat()
            digest.update(f"{path} {status.st_mode} {status.st_uid} {status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.chown(path, UID, UID)
    parent = path.parent
    while parent.stat().st_uid == 0:
        os.chown(parent, UID, UID)
        parent = parent.parent
    return path


def test_a_home_is_the_users_alone_and_made_once(home: Path) -> None:
    status = home.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (UID, UID, 0o700)
    put(home / "kept", "x")
    homes.make_home(home, UID, UID)
    assert (home / "kept").read_text() == "x"
    with pytest.raises(PermissionError):
        homes.make_home(home, UID + 1, UID + 1)


def test_a_home_is_not_made_where_others_can_write_or_through_a_link(home: Path, tmp_path: Path) -> None:
    (home.parent / "link").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        homes.make_home(home.parent / "link", UID, UID)
    assert tmp_path.stat().st_uid != UID
    home.parent.chmod(0o777)
    with pytest.raises(PermissionError):
        homes.make_home(home.parent / "two", UID, UID)


def test_a_listing_names_everything_and_is_bounded(home: Path) -> None:
    put(home / "b.txt", "hello")
    put(home / "a" / "c")
    os.mkfifo(home / "pipe")
    (home / "link").symlink_to("/etc/shadow")
    Path(os.fsdecode(os.fsencode(home) + b"/\xff")).touch()
    found = homes.listing(home, UID, UID)
    assert {(e.name, e.kind) for e in found.entries} == {
        ("a", "folder"),
        ("b.txt", "file"),
        ("pipe", "other"),
        ("link", "other"),
        ("\udcff", "file"),
    }
    assert next(e for e in found.entries if e.name == "b.txt").bytes == 5
    assert not found.more
    short = homes.listing(home, UID, UID, limit=2)
    assert (len(short.entries), short.more) == (2, True)
    assert [e.name for e in homes.listing(home, UID, UID, ("a",)).entries] == ["c"]


def test_a_regular_file_is_read(home: Path) -> None:
    put(home / "a" / "data", "x" * 100_000)
    descriptor, size = homes.open_file(home, UID, UID, ("a", "data"))
    try:
        assert size == 100_000
        assert os.pread(descriptor, 200_000, 0) == b"x" * 100_000
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)


def test_links_pipes_devices_and_dots_are_refused(home: Path, canary: Path) -> None:
    os.mkfifo(home / "pipe")
    os.chown(home / "pipe", UID, UID)
    os.mknod(home / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    os.chown(home / "device", UID, UID)
    (home / "link").symlink_to(canary / "secret")
    (home / "outside").symlink_to(canary)
    put(home / "closed", "x").chmod(0o600)
    os.chown(home / "closed", 0, 0)
    for path in [
        ("pipe",),
        ("device",),
        ("link",),
        ("outside", "secret"),
        ("..", "two"),
        (),
        ("a/b",),
        ("closed",),
        ("absent",),
        ("x\0y",),
    ]:
        with pytest.raises(OSError):
            os.close(homes.open_file(home, UID, UID, path)[0])
    for path in [("outside",), ("..",), ("pipe",)]:
        with pytest.raises(OSError):
            homes.listing(home, UID, UID, path)


def test_root_is_never_the_one_who_works_in_a_home(home: Path) -> None:
    with pytest.raises(PermissionError):
        homes.listing(home, 0, 0)


def test_the_helper_is_the_user_without_groups_and_without_other_descriptors(home: Path) -> None:
    put(home / "file").chmod(0o060)
    os.chown(home / "file", UID + 1, 0)
    with pytest.raises(PermissionError):
        homes.open_file(home, UID, UID, ("file",))


def test_placeholders_are_made_where_nothing_is_and_removed_when_unused(home: Path) -> None:
    put(home / "there", "kept")
    wanted = [
        Item(("there",), "file"),
        Item(("gone", "deep", "f"), "file"),
        Item(("cwd",), "folder"),
        Item(("used",), "file"),
        Item((), "folder"),
    ]
    assert set(homes.missing(home, UID, UID, wanted)) == set(wanted[1:4])
    made = homes.placeholders(home, UID, UID, wanted)
    assert [m.path for m in made] == [("gone",), ("gone", "deep"), ("gone", "deep", "f"), ("cwd",), ("used",)]
    assert homes.missing(home, UID, UID, wanted) == ()
    assert (home / "gone" / "deep" / "f").stat().st_uid == UID
    put(home / "used", "now used")
    removed = homes.remove_unused(home, UID, UID, made)
    assert {m.path for m in removed} == {("gone",), ("gone", "deep"), ("gone", "deep", "f"), ("cwd",)}
    assert {p.name for p in home.iterdir()} == {"there", "used"}
    assert homes.remove_unused(home, UID, UID, made) == ()


def test_what_replaced_a_placeholder_is_not_removed(home: Path) -> None:
    made = homes.placeholders(home, UID, UID, [Item(("f",), "file"), Item(("d",), "folder"), Item(("h",), "file")])
    (home / "f").rename(home / "elsewhere")
    put(home / "f")
    (home / "d").rmdir()
    (home / "d").symlink_to("/etc")
    os.link(home / "h", home / "also")
    assert homes.remove_unused(home, UID, UID, made) == ()
    assert {p.name for p in home.iterdir()} == {"f", "elsewhere", "d", "h", "also"}


def test_a_placeholder_below_something_that_is_no_folder_is_refused_and_leaves_nothing(home: Path, canary: Path) -> None:
    before = fingerprint(canary)
    (home / "link").symlink_to(canary)
    put(home / "file")
    for path in [("link", "x"), ("file", "x"), ("..", "x")]:
        with pytest.raises(OSError) as error:
            homes.placeholders(home, UID, UID, [Item(("first",), "file"), Item(path, "file")])
        assert error.value.errno in (errno.ELOOP, errno.ENOTDIR, errno.EINVAL)
        assert not (home / "first").exists()
    assert fingerprint(canary) == before


def test_a_folder_swapped_for_a_link_meanwhile_never_leads_outside(home: Path, canary: Path) -> None:
    before = fingerprint(canary)
    place, aside = home / "d", home / "aside"
    for folder in (place, place / "inner"):
        folder.mkdir()
        os.chown(folder, UID, UID)
    put(place / "secret", "mine")
    aside.symlink_to(canary)
    stop, swaps = threading.Event(), [0]
    libc = ctypes.CDLL(None, use_errno=True)

    def swap() -> None:
        while not stop.is_set():
            assert libc.renameat2(-100, bytes(place), -100, bytes(aside), RENAME_EXCHANGE) == 0
            swaps[0] += 1

    thread = threading.Thread(target=swap)
    thread.start()
    outcomes = {"made": 0, "read": 0, "refused": 0}
    try:
        for turn in range(200):
            try:
                if turn % 2:
                    made = homes.placeholders(home, UID, UID, [Item(("d", "inner", f"f{turn}"), "file"), Item(("d", f"g{turn}"), "file")])
                    homes.remove_unused(home, UID, UID, made)
                    homes.remove_unused(home, UID, UID, [Made(("d", "secret"), "file", 0, 0)])
                    outcomes["made"] += 1
                else:
                    descriptor, _ = homes.open_file(home, UID, UID, ("d", "secret"))
                    assert os.pread(descriptor, 100, 0) == b"mine"
                    os.close(descriptor)
                    outcomes["read"] += 1
            except OSError:
                outcomes["refused"] += 1
    finally:
        stop.set()
        thread.join()
    assert swaps[0] > 200
    assert outcomes["made"] + outcomes["read"] > 0
    assert outcomes["refused"] > 0
    assert fingerprint(canary) == before
