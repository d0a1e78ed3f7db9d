"""Save and restore: nothing is lost when it works, nothing happens when it does not."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gke_workspaces_spawner.sandbox import Failed, Nothing, SandboxError, Saved, Saving, gmac
from gke_workspaces_spawner.sandbox.processes import Process, command_lines
from gke_workspaces_spawner.sandbox.snapshots import PAGES, SEAL, Shelf

from .conftest import UID, Lab, Session, runsc_path, wait_for

PREPARE = """
global file, count, said
file = open(os.path.expanduser('~/data.txt'), 'w+')
file.write('hello\\nworld\\n'); file.flush(); file.seek(6)
count, said = 0, []
def counting():
    global count
    while True:
        count += 1
        time.sleep(0.005)
def listening():
    while True:
        try:
            said.append(open('/proc/gvisor/checkpoint').read().strip())
        except OSError:
            time.sleep(0.02)
for target in (counting, listening):
    threading.Thread(target=target, daemon=True).start()
"""


def wrapper(folder: Path, body: str) -> Path:
    """A runsc that does something else for some verbs; ``$real`` is the one under test."""
    path = folder / "wrapped-runsc"
    path.write_text(f'#!/bin/sh\nreal={runsc_path()}\n{body}\nexec $real "$@"\n')
    path.chmod(0o700)
    return path


async def goes_on(lab: Lab, session: Session) -> None:
    """The server of ``session`` answers, its threads run, nothing of the save is left."""
    before = await session.run("return count")
    await wait_for_count(session, before)
    assert (await lab.sandboxes.status("one")).state == "running"
    assert await lab.sandboxes.snapshots() == ()
    assert [path.name for path in (lab.state / "snapshots").iterdir()] == []
    assert list((lab.state / "reservations").glob("*.json")) == []


async def wait_for_count(session: Session, before: int) -> None:
    end = time.monotonic() + 10
    while await session.run("return count") <= before:
        assert time.monotonic() < end, "the thread does not count"


async def ready(lab: Lab, megabytes: int = 8) -> Session:
    session = await lab.up(megabytes=megabytes)
    await session.run(PREPARE)
    return session


async def test_memory_file_position_and_threads_survive_three_cycles(lab: Lab) -> None:
    session = await ready(lab, 32)
    digest = await session.run("return hashlib.sha256(data).hexdigest()")
    pid = await session.run("return os.getpid()")
    for number in range(3):
        count = await session.run("return count")
        saved = await lab.pause("one", f"p{number}", f"s{number}")
        assert saved.bytes > 32 << 20
        assert saved.frozen_at <= saved.durable_at < saved.frozen_until
        session = await lab.resume("one", f"s{number}")
        status = await lab.sandboxes.status("one")
        assert (status.state, status.restored_from, status.address) == ("running", f"s{number}", session.ip)
        assert await session.run("return [hashlib.sha256(data).hexdigest(), os.getpid(), file.tell()]") == [digest, pid, 6]
        await wait_for_count(session, count)
        assert await session.run("return said[-1]") == "restore"
        await lab.sandboxes.verified("one")
    assert await session.run("return file.read()") == "world\n"


async def test_thaw_after_a_finished_save_goes_on_and_says_resume_inside(lab: Lab) -> None:
    session = await ready(lab)
    assert isinstance(await lab.save(), Saved)
    assert (await lab.sandboxes.status("one")).state == "frozen"
    assert await session.silent()
    await lab.sandboxes.thaw("one", "p1")
    await lab.sandboxes.thaw("one", "p1")
    await goes_on(lab, session)
    assert await lab.sandboxes.observe("one", "p1") == Failed("save_cancelled", "the pause was given up", True)
    assert await lab.sandboxes.frozen_unbroken("one", "p1", 1) is False
    assert isinstance(await lab.save("one", "p2", "s2"), Saved)
    await lab.sandboxes.remove("one")
    session = await lab.resume("one", "s2")
    assert await session.run("return said[-1]") == "restore"


async def test_nothing_runs_and_nothing_is_written_between_freeze_and_removal(lab: Lab) -> None:
    session = await ready(lab)
    await session.run(
        "def write():\n    n = 0\n    while True:\n        n += 1\n        globals()['n'] = n\n"
        "        open(os.path.expanduser('~/ticks'), 'w').write(str(n))\nthreading.Thread(target=write, daemon=True).start()"
    )
    ticks = lab.home() / "ticks"
    await wait_for(lambda: ticks.exists() and ticks.read_text().isdigit())
    assert isinstance(await lab.save(), Saved)
    written = ticks.stat().st_mtime_ns
    assert await lab.sandboxes.frozen_unbroken("one", "p1", 30)
    assert ticks.stat().st_mtime_ns == written
    text = ticks.read_text()
    await lab.sandboxes.remove("one")
    assert (ticks.stat().st_mtime_ns, ticks.read_text()) == (written, text)
    session = await lab.resume()
    assert await session.run("return n") >= int(text or 0)


async def test_save_is_joined_by_the_same_pause_and_refuses_another(lab: Lab) -> None:
    await ready(lab, 64)
    assert await lab.sandboxes.observe("one", "p1") == Nothing()
    deadline = time.time() + 60
    for _ in range(3):
        await lab.sandboxes.save("one", "p1", "s1", {}, deadline, 30)
    with pytest.raises(SandboxError) as caught:
        await lab.sandboxes.save("one", "p2", "s2", {}, deadline, 30)
    assert caught.value.code == "busy"
    assert isinstance(await lab.outcome(), Saved)
    await lab.sandboxes.save("one", "p1", "s1", {}, deadline, 30)
    assert isinstance(await lab.sandboxes.observe("one", "p1"), Saved)


async def test_snapshot_is_visible_only_when_complete(lab: Lab, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    body = f'case "$*" in *" checkpoint "*) $real "$@"; code=$?; while [ ! -e {gate} ]; do sleep 0.05; done; exit $code;; esac'
    lab.sandboxes = lab.again(runsc=wrapper(tmp_path, body))
    await ready(lab)
    await lab.sandboxes.save("one", "p1", "s1", {}, time.time() + 60, 30)
    partial = lab.state / "snapshots/.partial-s1"
    await wait_for(lambda: (partial / PAGES).exists() and (partial / PAGES).stat().st_size > 8 << 20)
    state = await lab.sandboxes.observe("one", "p1")
    assert isinstance(state, Saving)
    assert state.fraction is not None
    assert 0 < state.fraction <= 1
    assert await lab.sandboxes.snapshots() == ()
    assert await lab.sandboxes.manifest("s1") is None
    gate.touch()
    assert isinstance(await lab.outcome(), Saved)
    assert await lab.sandboxes.snapshots() == ("s1",)
    assert not partial.exists()


async def test_manifest_says_what_was_given_and_what_was_seen(lab: Lab) -> None:
    await ready(lab)
    saved = await lab.save()
    manifest = await lab.sandboxes.manifest("s1")
    assert manifest is not None
    assert manifest["owner"] == "ann"
    assert manifest["bytes"] == saved.bytes
    assert manifest["created"] == saved.frozen_at
    assert {"path": "data.txt", "kind": "file"} in manifest["open_files"]
    size = sum(path.stat().st_size for path in (lab.state / "snapshots/s1").iterdir() if path.suffix == ".img")
    assert size <= saved.bytes <= size + (1 << 20)
    for path in [lab.state / "snapshots/s1", *(lab.state / "snapshots/s1").iterdir()]:
        assert path.stat().st_mode & 0o077 == 0, path


async def test_memory_is_measured_from_outside_and_agrees_with_the_snapshot(lab: Lab) -> None:
    await ready(lab, 64)
    before = await lab.sandboxes.memory("one")
    saved = await lab.save()
    assert before > 64 << 20
    assert abs(before - saved.bytes) < 0.1 * saved.bytes


# ---------------------------------------------------------------- failures: the server goes on


async def test_full_disk_is_refused_before_the_freeze(lab: Lab) -> None:
    snapshots = lab.state / "snapshots"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m,mode=700", "none", str(snapshots)], check=True)
    try:
        session = await ready(lab, 64)
        result = await lab.save()
        assert isinstance(result, Failed)
        assert (result.reason, result.alive) == ("disk_full", True)
        record = json.loads((lab.room().path / "save.json").read_text())
        assert record["frozen_at"] is None
        assert not list(lab.room().path.glob("runsc-pause.log"))
        await goes_on(lab, session)
    finally:
        subprocess.run(["umount", str(snapshots)], check=True)


async def test_disk_that_fills_up_during_the_save_leaves_the_server_running(lab: Lab, tmp_path: Path) -> None:
    snapshots = lab.state / "snapshots"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m,mode=700", "none", str(snapshots)], check=True)
    body = f'case "$*" in *" pause "*) mount -o remount,size=40m {snapshots};; esac'
    lab.sandboxes = lab.again(runsc=wrapper(tmp_path, body))
    try:
        session = await ready(lab, 64)
        result = await lab.save()
        assert isinstance(result, Failed)
        assert (result.reason, result.alive) == ("disk_full", True)
        await goes_on(lab, session)
        used = os.statvfs(snapshots)
        assert (used.f_blocks - used.f_bfree) * used.f_bsize < 1 << 20
    finally:
        await lab.sandboxes.remove("one")
        subprocess.run(["umount", str(snapshots)], check=True)


async def test_two_saves_do_not_promise_the_same_room_twice(lab: Lab, tmp_path: Path) -> None:
    snapshots = lab.state / "snapshots"
    gate = tmp_path / "gate"
    body = f'case "$*" in *" pause "*) while [ ! -e {gate} ]; do sleep 0.05; done;; esac'
    lab.sandboxes = lab.again(runsc=wrapper(tmp_path, body))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m,mode=700", "none", str(snapshots)], check=True)
    try:
        await lab.up("one", megabytes=64)
        await lab.up("two", lab.spec(name="bob", uid=UID + 1), megabytes=64)
        await lab.sandboxes.save("one", "p1", "s1", {}, time.time() + 60, 30)
        await wait_for(lambda: (lab.state / "reservations/one.json").exists())
        other = await lab.save("two", "p2", "s2")
        assert isinstance(other, Failed)
        assert (other.reason, other.alive) == ("disk_full", True)
        gate.touch()
        assert isinstance(await lab.outcome("one", "p1"), Saved)
        await lab.sandboxes.remove("one")
        await lab.sandboxes.delete("s1")
        assert isinstance(await lab.save("two", "p3", "s3"), Saved)
    finally:
        gate.touch()
        for sandbox_id in await lab.sandboxes.ids():
            await lab.sandboxes.remove(sandbox_id)
        await lab.idle()
        subprocess.run(["umount", str(snapshots)], check=True)


async def test_killed_checkpoint_client_leaves_the_server_running(lab: Lab) -> None:
    session = await ready(lab, 200)
    await lab.sandboxes.save("one", "p1", "s1", {}, time.time() + 60, 30)

    def client() -> int | None:
        return next((pid for pid, words in command_lines() if "checkpoint" in words and str(lab.state / "runsc") in words), None)

    await wait_for(lambda: client() is not None)
    os.kill(client() or 0, signal.SIGKILL)
    result = await lab.outcome()
    assert isinstance(result, Failed)
    assert (result.reason, result.alive) == ("save_failed", True)
    await goes_on(lab, session)


@pytest.mark.parametrize("verb", ["pause", "checkpoint"])
async def test_hanging_runsc_is_given_up_at_the_deadline(lab: Lab, tmp_path: Path, verb: str) -> None:
    once = tmp_path / "hung"
    body = f'case "$*" in *" {verb} "*) if [ ! -e {once} ]; then touch {once}; exec sleep 1000; fi;; esac'
    lab.sandboxes = lab.again(runsc=wrapper(tmp_path, body))
    session = await ready(lab)
    began = time.monotonic()
    result = await lab.save(seconds=2)
    assert isinstance(result, Failed)
    assert (result.reason, result.alive) == ("save_timeout", True)
    assert time.monotonic() - began < 6
    assert once.exists()
    await goes_on(lab, session)


async def test_cancel_ends_a_hanging_save_at_once(lab: Lab, tmp_path: Path) -> None:
    hung = tmp_path / "hung"
    body = f'case "$*" in *" checkpoint "*) touch {hung}; exec sleep 1000;; esac'
    lab.sandboxes = lab.again(runsc=wrapper(tmp_path, body))
    session = await ready(lab)
    await lab.sandboxes.save("one", "p1", "s1", {}, time.time() + 600, 30)
    await wait_for(hung.exists)
    assert (await lab.sandboxes.status("one")).state == "frozen"
    began = time.monotonic()
    await lab.sandboxes.thaw("one", "p1")
    assert time.monotonic() - began < 3
    result = await lab.sandboxes.observe("one", "p1")
    assert isinstance(result, Failed)
    assert (result.reason, result.alive) == ("save_cancelled", True)
    await goes_on(lab, session)


async def test_shim_killed_during_the_save_leaves_the_server_running(lab: Lab, tmp_path: Path) -> None:
    hung = tmp_path / "hung"
    body = f'case "$*" in *" checkpoint "*) touch {hung}; while true; do sleep 0.1; done;; esac'
    lab.sandboxes = lab.again(runsc=wrapper(tmp_path, body))
    session = await ready(lab)
    await lab.sandboxes.save("one", "p1", "s1", {}, time.time() + 600, 30)
    await wait_for(hung.exists)
    lab.shim().kill(5)
    assert await session.silent()
    result = await lab.again().observe("one", "p1")
    assert isinstance(result, Failed)
    assert (result.reason, result.alive) == ("save_interrupted", True)
    await goes_on(lab, session)
    assert isinstance(await lab.again(runsc=runsc_path()).observe("one", "p2"), Nothing)


async def test_shim_killed_after_the_save_keeps_it_and_thaws_by_the_clock(lab: Lab) -> None:
    session = await ready(lab)
    saved = await lab.save(frozen=4)
    lab.shim().kill(5)
    assert await lab.again().observe("one", "p1") == saved
    assert await lab.again().frozen_unbroken("one", "p1", 0.1)
    await session.ready(10)
    assert time.time() >= saved.frozen_until - 0.1
    await wait_for(lambda: json.loads((lab.room().path / "save.json").read_text())["phase"] == "failed")
    await goes_on(lab, session)


async def test_frozen_server_thaws_by_wall_clock(lab: Lab) -> None:
    session = await ready(lab)
    saved = await lab.save(frozen=1.5)
    assert await session.silent(0.3)
    await session.ready(5)
    assert saved.frozen_until <= time.time() < saved.frozen_until + 3
    while isinstance(result := await lab.sandboxes.observe("one", "p1"), Saving):
        await asyncio.sleep(0.01)
    assert isinstance(result, Failed)
    assert (result.reason, result.alive) == ("frozen_too_long", True)
    assert await lab.sandboxes.frozen_unbroken("one", "p1", 1) is False
    await goes_on(lab, session)


async def test_a_confirmed_freeze_holds_for_the_promised_time(lab: Lab) -> None:
    session = await ready(lab)
    await lab.save(frozen=1)
    assert await lab.sandboxes.frozen_unbroken("one", "p1", 3)
    until = time.time() + 2.5
    while time.time() < until:
        assert await session.silent(0.3)
    await session.ready(5)


async def test_sandbox_that_dies_during_the_save_is_reported_gone(lab: Lab, tmp_path: Path) -> None:
    hung = tmp_path / "hung"
    wait = f"while kill -0 $(cat {lab.state}/sandboxes/one/pid); do sleep 0.05; done"
    body = f'case "$*" in *" checkpoint "*) touch {hung}; {wait}; exit 1;; esac'
    lab.sandboxes = lab.again(runsc=wrapper(tmp_path, body))
    await ready(lab)
    await lab.sandboxes.save("one", "p1", "s1", {}, time.time() + 60, 30)
    await wait_for(hung.exists)
    sentry = lab.room().sentry()
    assert sentry is not None
    sentry.kill(5)
    result = await lab.outcome()
    assert isinstance(result, Failed)
    assert not result.alive
    assert (await lab.sandboxes.status("one")).state == "exited"
    with pytest.raises(SandboxError) as caught:
        await lab.sandboxes.save("one", "p2", "s2", {}, time.time() + 60, 30)
    assert caught.value.code == "sandbox_gone"


# ---------------------------------------------------------------- snapshots


async def test_flipped_byte_in_a_small_file_is_refused_before_the_restore(lab: Lab) -> None:
    await ready(lab)
    await lab.pause()
    spec = lab.spec()
    for name in ("checkpoint.img", "pages_meta.img", "manifest.json", "spec.json", "kept.json", "macs.json"):
        flip(lab.state / "snapshots/s1" / name)
        for call in (lab.sandboxes.restore("one", spec, "s1"), lab.sandboxes.manifest("s1"), lab.verify("s1")):
            with pytest.raises(SandboxError) as caught:
                await call
            assert caught.value.code == "snapshot_changed"
            assert name in caught.value.detail
        assert await lab.sandboxes.ids() == ()
        assert await lab.sandboxes.snapshots() == ("s1",)
        flip(lab.state / "snapshots/s1" / name)
    assert await (await lab.resume()).run("return file.tell()") == 6


async def test_flipped_byte_in_the_pages_is_found_by_verify(lab: Lab) -> None:
    await ready(lab)
    await lab.pause()
    await wait_for((lab.state / "snapshots/s1" / SEAL).exists)
    await lab.verify("s1")
    flip(lab.state / "snapshots/s1" / PAGES)
    with pytest.raises(SandboxError) as caught:
        await lab.verify("s1")
    assert caught.value.code == "snapshot_changed"
    assert PAGES in caught.value.detail


async def test_restore_of_changed_pages_is_never_called_verified(lab: Lab) -> None:
    """Not by the shim that restored, nor by one that took over; and a cold start has nothing to be compared with."""
    await ready(lab, 64)
    await lab.sandboxes.verified("one")
    await lab.pause()
    await lab.idle()
    flip(lab.state / "snapshots/s1" / PAGES)
    await lab.sandboxes.restore("one", lab.spec(), "s1")
    for _ in range(2):
        with pytest.raises(SandboxError) as caught:
            await lab.sandboxes.verified("one")
        assert caught.value.code == "snapshot_changed"
        assert PAGES in caught.value.detail
    assert lab.shim().kill(5)
    with pytest.raises(SandboxError) as caught:
        await lab.sandboxes.verified("one")
    assert caught.value.code == "snapshot_changed"
    flip(lab.state / "snapshots/s1" / PAGES)
    assert lab.shim().kill(5)
    await lab.sandboxes.verified("one")


def test_seal_without_libcrypto_is_verified_with_it_and_never_guessed_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older seals and machines hash with SHA-256; a seal that this machine cannot read is no proof, and no change either."""
    shelf = Shelf(tmp_path, os.urandom(32))
    for snapshot, library in (("hashed", False), ("tagged", True)):
        partial = shelf.partial(snapshot)
        partial.mkdir()
        (partial / PAGES).write_bytes(os.urandom((5 << 20) + 3))
        (partial / "manifest.json").write_text("{}")
        shelf.publish(snapshot)
        with monkeypatch.context() as patch:
            if not library:
                patch.setattr(gmac, "load", lambda: None)
            assert shelf.seal(snapshot)
        assert ("gmac" if library else "sha256") in (shelf.path(snapshot) / SEAL).read_text()
        shelf.verify(snapshot)
    with monkeypatch.context() as patch:
        patch.setattr(gmac, "load", lambda: None)
        shelf.verify("hashed")
        with pytest.raises(SandboxError) as caught:
            shelf.verify("tagged")
    assert caught.value.code == "restore_failed"
    for snapshot in ("hashed", "tagged"):
        flip(shelf.path(snapshot) / PAGES)
        with pytest.raises(SandboxError) as caught:
            shelf.verify(snapshot)
        assert caught.value.code == "snapshot_changed"


def test_tags_of_parts_are_those_of_aes_gcm() -> None:
    """Against another implementation; also that key and number matter."""
    library, data = gmac.load(), bytearray(os.urandom(70_001))
    assert library is not None
    key, other = os.urandom(32), os.urandom(32)
    address = ctypes.addressof(ctypes.c_char.from_buffer(data))
    for number in (0, 7, 1 << 40):
        expected = AESGCM(key).encrypt(number.to_bytes(12, "big"), b"", bytes(data)).hex()
        assert library.tag(key, number, address, len(data)) == expected
    assert library.tag(key, 7, address, len(data)) != library.tag(other, 7, address, len(data))


async def test_swapped_added_missing_and_foreign_files_are_refused(lab: Lab) -> None:
    await ready(lab)
    await lab.pause()
    session = await lab.resume()
    await session.run("return 1")
    await lab.pause("one", "p2", "s2")
    await lab.idle()
    folder, other = lab.state / "snapshots/s1", lab.state / "snapshots/s2"

    async def refused() -> str:
        with pytest.raises(SandboxError) as caught:
            await lab.verify("s1")
        assert caught.value.code == "snapshot_changed"
        return caught.value.detail

    shutil.copytree(folder, lab.state / "copy")
    for name in os.listdir(folder):
        if (other / name).read_bytes() == (folder / name).read_bytes():
            continue
        shutil.copy(other / name, folder / name)
        await refused()
        shutil.copy(lab.state / "copy" / name, folder / name)
    await lab.verify("s1")
    (folder / "extra").touch()
    assert "extra" in await refused()
    (folder / "extra").unlink()
    (folder / "kept.json").unlink()
    assert "kept.json" in await refused()
    shutil.rmtree(folder)
    shutil.copytree(other, folder)
    await refused()
    with pytest.raises(SandboxError):
        await lab.again(key=os.urandom(32)).manifest("s2")


async def test_same_snapshot_restores_twice_side_by_side(lab: Lab) -> None:
    session = await ready(lab)
    await session.run("global x; x = 'saved'")
    await lab.pause()
    one = await lab.resume("one")
    two = await lab.resume("two")
    assert one.ip != two.ip
    await one.run("global x; x = 'changed'")
    assert (await one.run("return x"), await two.run("return x")) == ("changed", "saved")


async def test_restore_is_joined_and_never_mistaken_for_another_start(lab: Lab) -> None:
    await ready(lab)
    await lab.pause()
    session = await lab.resume()
    assert (await lab.sandboxes.restore("one", lab.spec(), "s1")).ip == session.ip
    with pytest.raises(SandboxError) as caught:
        await lab.sandboxes.start("one", lab.spec(), {})
    assert caught.value.code == "busy"


async def test_deleted_snapshot_is_gone_with_its_bytes(lab: Lab) -> None:
    await ready(lab)
    await lab.pause()
    await lab.idle()
    await lab.sandboxes.delete("s1")
    await lab.sandboxes.delete("s1")
    assert await lab.sandboxes.snapshots() == ()
    assert await lab.sandboxes.manifest("s1") is None
    assert list((lab.state / "snapshots").iterdir()) == []
    assert {path.name for path in (lab.state / "kept").iterdir()} == {"index", "lock"}
    assert list((lab.state / "kept/index").iterdir()) == []
    with pytest.raises(SandboxError) as caught:
        await lab.sandboxes.restore("one", lab.spec(), "s1")
    assert caught.value.code == "snapshot_gone"


async def test_restore_of_changed_mounts_fails_and_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    await ready(lab)
    await lab.pause()
    with pytest.raises(SandboxError) as caught:
        await lab.sandboxes.restore("one", lab.spec(readonly=(str(tmp_path),)), "s1")
    assert caught.value.code == "restore_failed"
    assert await lab.sandboxes.ids() == ()
    assert (await lab.sandboxes.status("one")).state == "absent"
    assert await (await lab.resume()).run("return file.tell()") == 6


async def test_a_restart_of_the_caller_changes_nothing_for_a_frozen_server(lab: Lab) -> None:
    session = await ready(lab)
    await lab.sandboxes.save("one", "p1", "s1", {}, time.time() + 60, 60)
    fresh = lab.again()
    lab.sandboxes = fresh
    assert isinstance(await lab.outcome(), Saved)
    assert await session.silent()
    await fresh.remove("one")
    assert await (await lab.resume()).run("return file.tell()") == 6


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


async def test_the_event_loop_is_never_held(lab: Lab) -> None:
    """No call keeps the loop for 50 ms, beside what the machine itself does to a thread that only sleeps."""
    gaps: list[float] = []

    async def heartbeat() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            gaps.append(now - last)
            last = now

    beat = asyncio.create_task(heartbeat())
    session = await ready(lab, 64)
    await lab.pause()
    session = await lab.resume()
    await lab.sandboxes.verified("one")
    await session.run("return 1")
    await lab.sandboxes.remove("one")
    beat.cancel()
    assert max(gaps) < 0.05


def test_processes_are_never_mistaken_for_later_ones_of_the_same_pid() -> None:
    me = Process.of(os.getpid())
    assert me is not None
    assert me.alive()
    assert not me._replace(start=me.start + 1).alive()
    assert not me._replace(boot="another").alive()


def test_a_resume_takes_the_seal_over_from_one_made_at_leisure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits until a seal with rests is done; whoever makes it, it is of the bytes, and there is one."""
    shelf = Shelf(tmp_path, os.urandom(32))
    partial = shelf.partial("one")
    partial.mkdir()
    (partial / PAGES).write_bytes(os.urandom((9 << 20) + 3))
    (partial / "manifest.json").write_text("{}")
    shelf.publish("one")
    rests: list[float] = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 2:
            shelf.verify("one")  # would wait for ever if the lock were held in a rest

    monkeypatch.setattr("gke_workspaces_spawner.sandbox.snapshots.time", SimpleNamespace(sleep=rest))
    assert not shelf.seal_at_leisure("one")
    first = (shelf.path("one") / SEAL).read_bytes()
    shelf.verify("one")

    (shelf.path("one") / SEAL).unlink()
    assert shelf.seal_at_leisure("one")
    assert len(rests) == 2 + 3
    assert (shelf.path("one") / SEAL).read_bytes() != first
    shelf.verify("one")
    flip(shelf.path("one") / PAGES)
    with pytest.raises(SandboxError) as caught:
        shelf.verify("one")
    assert caught.value.code == "snapshot_changed"
    assert not shelf.seal_at_leisure("gone")
