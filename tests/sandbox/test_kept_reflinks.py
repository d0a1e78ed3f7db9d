"""Where the disk can share blocks, a kept file costs none of its own, and still is nobody's but ours."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gke_workspaces_spawner.sandbox.files import read_json

from .conftest import Lab, laboratory

SIZE = 16 << 20
_FS_IOC_FIEMAP = 0xC020660B
_SYNC, _SHARED = 1, 0x2000
_HEAD, _EXTENT = struct.Struct("=QQIIII"), struct.Struct("=QQQQQIIII")
_EXTENTS = 64


def extents(path: Path) -> list[tuple[int, int, bool]]:
    """Where the bytes of a file lie on its disk: start, length, and whether another file has the same blocks."""
    asked = bytearray(_HEAD.pack(0, (1 << 64) - 1, _SYNC, 0, _EXTENTS, 0) + bytes(_EXTENT.size * _EXTENTS))
    with open(path, "rb") as file:
        fcntl.ioctl(file, _FS_IOC_FIEMAP, asked)
    found = _HEAD.unpack_from(asked)[3]
    rows = (_EXTENT.unpack_from(asked, _HEAD.size + _EXTENT.size * number) for number in range(found))
    return [(row[1], row[2], bool(row[5] & _SHARED)) for row in rows]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that can share blocks between files, in a file of this test's folder."""
    image, folder = tmp_path / "disk.img", tmp_path / "disk"
    with open(image, "wb") as file:
        file.truncate(1 << 30)
    folder.mkdir()
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    try:
        for place in (tmp_path, folder):
            place.chmod(0o755)
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
async def lab(disk: Path) -> AsyncIterator[Lab]:
    async with laboratory(disk / "state") as lab:
        yield lab


async def test_a_kept_file_shares_the_blocks_of_its_original_and_none_of_its_later_changes(lab: Lab, disk: Path) -> None:
    library = disk / "prefix" / "mapped.so"
    library.parent.mkdir()
    library.write_bytes(b"a" * SIZE)
    session = await lab.up(spec=lab.spec(readonly=(str(library.parent),)))
    await session.run(
        f"import mmap\nglobal mapped\nwith open({str(library)!r}, 'rb') as f: mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)"
    )
    await lab.pause()
    held = read_json(lab.state / "snapshots/s1/kept.json")
    assert held is not None
    (digest,) = (entry["sha256"] for entry in held["files"] if entry["path"] == str(library))
    copy = lab.state / "kept" / digest

    assert sum(length for _, length, _ in extents(library)) >= SIZE
    assert extents(copy) == extents(library)
    assert all(shared for _, _, shared in extents(copy))
    assert copy.stat().st_ino != library.stat().st_ino  # no hard link: an inode can be rewritten in place

    with open(library, "r+b") as file:
        file.write(b"X" * SIZE)
        os.fsync(file.fileno())
    assert copy.read_bytes() == b"a" * SIZE
    session = await lab.resume()
    assert await session.run("return [sorted(set(mapped[:])), len(mapped)]") == [[ord("a")], SIZE]
