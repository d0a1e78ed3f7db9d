"""What a paused server holds, changed while it is paused: old bytes, a place held, or a refusal with the name; never silence."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.running import RunningHub
from tests.sandbox.jupyter import Jupyter
from tests.sandbox.local_hub import local_hub

pytestmark = pytest.mark.any_hub

LOAD = """
import ctypes, hashlib, mmap
library = ctypes.CDLL({path!r}); library.{function}.restype = ctypes.c_double; library.{function}.argtypes = [ctypes.c_double]
with open({path!r}, 'rb') as file: mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
"""
LOOK = "print(hashlib.sha256(mapped).hexdigest(), library.{function}(4.0))"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that servers see read-only, with a real shared library of which no process has a page in memory yet."""
    folder = tmp_path_factory.mktemp("prefix") / "lib"
    folder.mkdir()
    shutil.copy(mathematics(), folder / "mathematics.so")
    for path in (folder, *folder.parents):
        if path.owner() == "root" and path.is_relative_to(tmp_path_factory.getbasetemp()):
            path.chmod(0o755)
    return folder


def mathematics() -> str:
    """The C library's mathematics, which this interpreter has in memory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next(line.split(maxsplit=5)[5] for line in lines if "/libm.so" in line or "/libm-" in line)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, libraries: Path) -> Iterator[RunningHub]:
    with local_hub(tmp_path_factory.mktemp("files"), {"spawner": {"readonly_paths": [str(libraries)]}}) as hub:
        yield hub


@pytest.fixture(scope="module")
def jupyter(hub: RunningHub) -> Jupyter:
    hub.start_server("ann")
    return Jupyter(hub, "ann")


@pytest.fixture
def kernel(jupyter: Jupyter) -> Iterator[str]:
    if jupyter.hub.workspace("ann")["phase"] == "paused":  # what a test before left when it failed
        jupyter.resume()
    kernel = jupyter.kernel()
    yield kernel
    jupyter.call("DELETE", f"/api/kernels/{kernel}", raw=True)


def home_of(jupyter: Jupyter, kernel: str) -> Path:
    """The home as the host sees it: the one with this kernel's mark."""
    mark = f"mark-{kernel}"
    jupyter.run(kernel, f"import os; os.chdir(os.environ['HOME']); open({mark!r}, 'w').close()")
    (found,) = (jupyter.hub.folder / "state" / "homes").glob(f"*/{mark}")
    found.unlink()
    return found.parent


def replaced(path: Path, content: bytes) -> None:
    """As pip, dpkg and editors save: a new file with the old one's owner, renamed over it."""
    status = path.stat()
    new = path.with_name("new")
    new.write_bytes(content)
    new.chmod(status.st_mode)
    os.chown(new, status.st_uid, status.st_gid)
    os.replace(new, path)


def test_a_library_replaced_during_a_pause_runs_as_it_was(jupyter: Jupyter, kernel: str, libraries: Path) -> None:
    library = libraries / "mathematics.so"
    jupyter.run(kernel, LOAD.format(path=str(library), function="exp2"))
    before = jupyter.run(kernel, "print(hashlib.sha256(mapped).hexdigest())")
    whole = library.read_bytes()
    jupyter.pause()
    replaced(library, b"\xcc" * len(whole))  # a trap at each address: whatever of it is run ends the kernel
    receipt = jupyter.resume()["receipt"]
    replaced(library, whole)
    assert receipt["resumed"] is True
    assert receipt["aids"]["kept_files"] == [str(library)]
    assert jupyter.run(kernel, LOOK.format(function="exp2")) == f"{before} 16.0"


def test_a_library_whose_old_bytes_are_gone_is_a_refusal_with_its_name(jupyter: Jupyter, kernel: str, libraries: Path) -> None:
    library = libraries / "mathematics.so"
    jupyter.run(kernel, LOAD.format(path=str(library), function="sqrt"))
    before = jupyter.run(kernel, "print(hashlib.sha256(mapped).hexdigest())")
    whole = library.read_bytes()
    paused = jupyter.pause()
    replaced(library, b"\xcc" * len(whole))
    kept = json.loads((jupyter.hub.folder / "state" / "snapshots" / paused["snapshot"]["id"] / "kept.json").read_text())
    (digest,) = (entry["sha256"] for entry in kept["files"] if entry["path"] == str(library))
    (jupyter.hub.folder / "state" / "kept" / digest).unlink()

    status, answer = jupyter.hub.ask("POST", "ann")
    view = jupyter.hub.wait_phase("paused", "ann")
    assert status == 409, answer
    assert view["reason"]["code"] == "files_changed"
    assert view["reason"]["sentence"] in answer["message"]
    assert str(library) in view["detail"]
    assert view["snapshot"] == paused["snapshot"]
    assert not any((jupyter.hub.folder / "state" / "sandboxes").iterdir())

    replaced(library, whole)
    assert jupyter.resume()["receipt"]["resumed"] is True
    assert jupyter.run(kernel, LOOK.format(function="sqrt")) == f"{before} 2.0"


def test_what_was_deleted_in_the_home_has_its_place_held_and_freed_again(jupyter: Jupyter, kernel: str) -> None:
    home = home_of(jupyter, kernel)
    jupyter.run(
        kernel,
        "os.makedirs('work/deep'); used = open('used.txt', 'w+'); used.write('abc'); used.flush()\n"
        "unused = open('unused.txt', 'w+'); unused.write('abc'); unused.flush(); os.chdir('work/deep')",
    )
    for _ in range(2):
        jupyter.pause()
        assert not (home / "unused.txt").exists() or (home / "unused.txt").read_text() == "abc"
        for name in ("used.txt", "unused.txt"):
            (home / name).unlink(missing_ok=True)
        shutil.rmtree(home / "work", ignore_errors=True)
        receipt = jupyter.resume()["receipt"]
        assert receipt["resumed"] is True
        assert sorted(receipt["aids"]["placeholders"]) == ["unused.txt", "used.txt", "work", "work/deep"]
        assert jupyter.run(kernel, "print(os.getcwd() == os.environ['HOME'] + '/work/deep', used.tell())") == "True 3"
    assert jupyter.run(kernel, "used.write('more'); used.flush(); print(os.path.getsize(os.environ['HOME'] + '/used.txt'))") == "7"
    jupyter.run(kernel, "os.chdir(os.environ['HOME'])")
    jupyter.pause()
    left = {path.name for path in home.iterdir()}
    assert "used.txt" in left
    assert not left & {"unused.txt", "work"}
    assert jupyter.resume()["receipt"]["resumed"] is True


def test_open_files_of_the_home_that_were_saved_anew_or_emptied_do_not_keep_it_from_coming_back(jupyter: Jupyter, kernel: str) -> None:
    home = home_of(jupyter, kernel)
    jupyter.run(
        kernel,
        "files = [open(name, 'w+') for name in ('saved.txt', 'emptied.txt', 'unlinked.txt')]\n"
        "for file in files: file.write('before'); file.flush()\n"
        "os.unlink('unlinked.txt')",
    )
    jupyter.pause()
    replaced(home / "saved.txt", b"after!")
    os.truncate(home / "emptied.txt", 0)
    receipt = jupyter.resume()["receipt"]
    assert receipt["resumed"] is True
    assert receipt["aids"] == {}
    assert jupyter.run(kernel, "print([(file.tell(), file.seek(0), file.read()) for file in files])") == str(
        [(6, 0, "after!"), (6, 0, ""), (6, 0, "before")]
    )


WRITER = """
import os, threading, time
counter, times = os.open('counter', os.O_WRONLY | os.O_CREAT, 0o600), []
def write():
    while True:
        os.pwrite(counter, b'%010d' % len(times), 0); times.append(time.monotonic()); time.sleep(0.002)
threading.Thread(target=write, daemon=True).start()
"""
WIDEST = """
gaps = [after - before for before, after in zip(times, times[1:])]
print(gaps.index(max(gaps)), max(gaps) > 0.2)
"""


def test_nothing_is_written_to_the_home_between_save_and_stop(jupyter: Jupyter, kernel: str) -> None:
    home = home_of(jupyter, kernel)
    jupyter.run(kernel, WRITER)
    for _ in range(2):
        jupyter.run(kernel, "del times[:]; time.sleep(0.2)")
        jupyter.pause()
        written = int((home / "counter").read_text())
        jupyter.resume()
        last, frozen = jupyter.run(kernel, WIDEST).split()
        assert frozen == "True"
        assert written - int(last) in (0, 1)  # the one that was being written has reached the file and not yet the list
    jupyter.run(kernel, "os.unlink('counter')")
