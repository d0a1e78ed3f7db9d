"""A sandbox from its start to its end: what it sees, what it may, what stays when it has gone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gke_workspaces_spawner.sandbox import SandboxError, Sandboxes, probe

from .conftest import UID, Lab, Session, runsc_path, wait_for


async def test_user_runs_unprivileged_with_a_home_and_sees_nothing_else_of_the_host(lab: Lab) -> None:
    session = await lab.up()
    seen = await session.run(
        "import os, pwd\n"
        "status = open('/proc/self/status').read()\n"
        "return {'ids': [os.getuid(), os.getgid(), os.getgroups()],\n"
        " 'name': pwd.getpwuid(os.getuid()).pw_name, 'home': os.path.expanduser('~'),\n"
        " 'lists': {p: sorted(os.listdir(p)) for p in ('/home', '/var')}, 'shadow': os.path.exists('/etc/shadow'),\n"
        " 'state': os.path.exists("
        + repr(str(lab.state))
        + "), 'caps': [l for l in status.splitlines() if l.startswith(('Cap', 'NoNewPrivs'))],\n"
        " 'host': open('/etc/hostname').read().strip(), 'cwd': os.getcwd()}"
    )
    assert seen["ids"] == [UID, UID, [UID]] or seen["ids"] == [UID, UID, []]
    assert (seen["name"], seen["home"], seen["cwd"], seen["host"]) == ("ann", "/home/ann", "/home/ann", "workspace")
    assert seen["lists"]["/home"] == ["ann"]
    assert seen["lists"]["/var"] == ["tmp"]
    assert not seen["shadow"]
    assert not seen["state"]
    for line in seen["caps"]:
        name, value = line.split()
        assert int(value, 16) == (1 if name == "NoNewPrivs:" else 0), line
    hidden = await session.run("import os\ntry:\n    return os.listdir('/root')\nexcept PermissionError:\n    return 'refused'")
    assert hidden == "refused"


async def test_only_the_home_is_written_on_the_host(lab: Lab, tmp_path: Path) -> None:
    victim = tmp_path / "shown"
    victim.mkdir(mode=0o755)
    os.chmod(tmp_path, 0o755)
    os.chown(victim, UID, UID)
    session = await lab.up(spec=lab.spec(readonly=(str(victim),)))
    tried = await session.run(
        "import os\nfound = {}\n"
        f"for path in ('/usr/x', {str(victim)!r} + '/x', '/etc/x', '/x', '/tmp/x', '/dev/shm/x', '/home/ann/x', '/var/tmp/x'):\n"
        "    try:\n        open(path, 'w').write('x'); found[path] = True\n"
        "    except OSError as error:\n        found[path] = error.errno\n"
        "return found"
    )
    assert [path for path, done in tried.items() if done is True] == ["/tmp/x", "/dev/shm/x", "/home/ann/x", "/var/tmp/x"]
    assert list(victim.iterdir()) == []
    written = lab.home() / "x"
    assert (written.read_text(), written.stat().st_uid) == ("x", UID)
    assert not (lab.room().path / "rootfs/var/tmp/x").exists()


async def test_secrets_reach_the_process_and_no_file_or_command_line(lab: Lab) -> None:
    canary = "canary-" + os.urandom(8).hex() + "'\"\n$HOME`"
    address = await lab.sandboxes.start("one", lab.spec(), {"TOKEN": canary})
    session = Session(address.ip)
    await session.ready()
    assert await session.run("import os\nreturn os.environ['TOKEN']") == canary
    mark = canary[:20].encode()
    for folder in (lab.room().path, lab.state / "runsc"):
        for where, _, names in os.walk(folder):
            for name in names:
                path = Path(where, name)
                if path.is_file():
                    assert mark not in path.read_bytes(), path
    pids = lab.pids()
    assert len(pids) >= 3
    for pid in pids:
        for kind in ("cmdline", "environ"):
            assert mark not in Path(f"/proc/{pid}/{kind}").read_bytes(), (pid, kind)


@pytest.mark.parametrize(("code", "expected"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)])
async def test_exit_code_is_known_after_the_end(lab: Lab, code: str, expected: int) -> None:
    await lab.sandboxes.start("one", lab.spec(code), {})

    async def ended() -> bool:
        return (await lab.sandboxes.status("one")).state == "exited"

    while not await ended():
        await asyncio.sleep(0.02)
    assert (await lab.sandboxes.status("one")).exit_code == expected
    await lab.sandboxes.remove("one")
    assert (await lab.sandboxes.status("one")).state == "absent"


async def test_removal_leaves_no_process_mount_namespace_or_folder(lab: Lab) -> None:
    before = (Path("/proc/self/mountinfo").read_text(), sorted(os.listdir("/run/netns")))
    await lab.up()
    assert len(lab.pids()) >= 3
    assert await lab.sandboxes.ids() == ("one",)
    await lab.sandboxes.remove("one")
    await lab.sandboxes.remove("one")
    assert (Path("/proc/self/mountinfo").read_text(), sorted(os.listdir("/run/netns"))) == before
    assert not lab.room().path.exists()
    assert await lab.sandboxes.ids() == ()
    assert list((lab.state / "runsc").iterdir()) == []
    await lab.idle()
    assert not any(Path(folder, "runsc-one.sock").exists() for folder in ("/run", "/tmp"))


async def test_removal_works_after_shim_and_room_are_lost(lab: Lab) -> None:
    await lab.up()
    lab.shim().kill(5)
    subprocess.run(["rm", "-rf", str(lab.room().path)], check=True)
    assert await lab.sandboxes.ids() == ("one",)
    await lab.sandboxes.remove("one")
    assert await lab.sandboxes.ids() == ()
    await lab.idle()


async def test_start_twice_joins_and_two_sandboxes_live_side_by_side(lab: Lab) -> None:
    one, two = await asyncio.gather(lab.up("one"), lab.up("two", lab.spec(name="bob", uid=UID + 1)))
    assert one.ip != two.ip
    await one.run("global name; name = 'one'")
    await two.run("global name; name = 'two'")
    assert (await lab.sandboxes.start("one", lab.spec(), {})).ip == one.ip
    assert (await one.run("return name"), await two.run("return name")) == ("one", "two")
    await lab.sandboxes.remove("one")
    assert await two.run("return name") == "two"


async def test_a_killed_shim_is_replaced_and_the_server_lives_on(lab: Lab) -> None:
    session = await lab.up()
    await session.run("global x; x = 42")
    old = lab.shim()
    assert old.kill(5)
    assert await session.run("return x") == 42
    status = await lab.again().status("one")
    assert (status.state, status.address) == ("running", session.ip)
    assert lab.shim() != old
    await lab.sandboxes.remove("one")
    await lab.idle()


async def test_many_calls_at_once_after_a_shim_was_killed_start_one_shim(lab: Lab) -> None:
    await lab.up()
    lab.shim().kill(5)
    states = await asyncio.gather(*(lab.again().status("one") for _ in range(8)))
    assert {status.state for status in states} == {"running"}
    await wait_for(lambda: lab.shims() == [lab.shim().pid])


async def test_end_of_a_sandbox_is_seen_without_its_shim(lab: Lab) -> None:
    await lab.up()
    lab.shim().kill(5)
    sentry = lab.room().sentry()
    assert sentry is not None
    os.kill(sentry.pid, signal.SIGKILL)
    await wait_for(lambda: not sentry.alive())
    assert (await lab.sandboxes.status("one")).state == "exited"
    await lab.sandboxes.remove("one")
    assert await lab.sandboxes.ids() == ()


async def test_failed_start_says_why_and_leaves_nothing(lab: Lab) -> None:
    broken = lab.spec()._replace(home=str(lab.state / "homes/nobody"))
    with pytest.raises(SandboxError) as caught:
        await lab.sandboxes.start("one", broken, {})
    assert caught.value.code == "start_failed"
    assert await lab.sandboxes.ids() == ()
    assert not lab.room().path.exists()


async def test_sandbox_and_shim_inherit_no_socket_of_the_hub(lab: Lab) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.set_inheritable(listener.fileno(), True)
        mine = os.readlink(f"/proc/self/fd/{listener.fileno()}")
        await lab.up()
        sentry = lab.room().sentry()
        assert sentry is not None
        for pid in (sentry.pid, lab.shim().pid):
            assert mine not in [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]


async def test_more_memory_than_allowed_ends_the_server_with_the_reason(lab: Lab) -> None:
    session = await lab.up(spec=lab.spec(memory_limit=256 << 20), megabytes=64)
    await session.run("global more; more = os.urandom(256 << 20)")
    while (await lab.sandboxes.status("one")).state != "exited":
        await asyncio.sleep(0.05)
    status = await lab.sandboxes.status("one")
    assert (status.reason, status.exit_code) == ("memory_limit", 137)


async def test_start_whose_shim_was_killed_midway_is_cleaned_up_by_the_next(lab: Lab, tmp_path: Path) -> None:
    hung = tmp_path / "hung"
    slow = tmp_path / "runsc"
    slow.write_text(f'#!/bin/sh\ncase "$*" in *" run "*) touch {hung}; while true; do sleep 0.1; done;; esac\nexec {runsc_path()} "$@"\n')
    slow.chmod(0o700)
    starting = asyncio.create_task(lab.again(runsc=slow).start("one", lab.spec(), {}))
    await wait_for(hung.exists)
    lab.shim().kill(5)
    with pytest.raises(SandboxError):
        await starting
    assert (await lab.sandboxes.status("one")).state == "absent"
    assert await lab.sandboxes.ids() == ("one",)
    session = await lab.up()
    assert await session.run("return 1") == 1


async def test_caller_that_stops_waiting_for_a_start_finds_nothing_left_after_removal(lab: Lab, tmp_path: Path) -> None:
    began, gate = tmp_path / "began", tmp_path / "gate"
    slow = tmp_path / "runsc"
    wait = f"touch {began}; while [ ! -e {gate} ]; do sleep 0.05; done"
    slow.write_text(f'#!/bin/sh\ncase "$*" in *" run "*) {wait};; esac\nexec {runsc_path()} "$@"\n')
    slow.chmod(0o700)
    lab.sandboxes = lab.again(runsc=slow)
    starting = asyncio.create_task(lab.sandboxes.start("one", lab.spec(), {}))
    await wait_for(began.exists)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    removing = asyncio.create_task(lab.sandboxes.remove("one"))
    gate.touch()
    await removing
    assert await lab.sandboxes.ids() == ()
    await lab.idle()


async def test_shim_comes_up_within_60_ms_of_processor_time() -> None:
    line = (
        "import sys; sys.path.insert(0, sys.argv[1]); from gke_workspaces_spawner.sandbox.shim import main; "
        "import resource as r; u = r.getrusage(0); print(u.ru_utime + u.ru_stime)"
    )
    root = str(Path(__file__).parents[2])
    times = [
        float(subprocess.run([sys.executable, "-I", "-S", "-c", line, root], check=True, capture_output=True, text=True).stdout)
        for _ in range(5)
    ]
    assert min(times) < 0.060, times


def test_state_folder_that_others_can_replace_is_refused(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o777)
    with pytest.raises(SandboxError) as caught:
        Sandboxes(tmp_path / "state", runsc=runsc_path(), network=None, mac_key=b"k" * 32)
    assert caught.value.code == "state_unsafe"
    os.chmod(tmp_path, 0o700)
    (tmp_path / "state").rmdir()
    Sandboxes(tmp_path / "state", runsc=runsc_path(), network=None, mac_key=b"k" * 32)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


async def test_runsc_that_others_can_write_or_that_was_replaced_is_refused(lab: Lab, tmp_path: Path) -> None:
    loose = tmp_path / "runsc"
    loose.write_text(f'#!/bin/sh\nexec {runsc_path()} "$@"\n')
    os.chmod(loose, 0o757)
    with pytest.raises(SandboxError) as caught:
        await lab.again(runsc=loose).start("one", lab.spec(), {})
    assert caught.value.code == "state_unsafe"
    await lab.up()
    await lab.pause()
    (copy,) = (lab.state / "runsc-bin").glob("*/runsc")
    os.chmod(copy, 0o700)
    with copy.open("ab") as file:
        file.write(b"!")
    with pytest.raises(SandboxError) as caught:
        await lab.again().restore("one", lab.spec(), "s1")
    assert caught.value.code == "runsc_unusable"
    assert await lab.sandboxes.snapshots() == ("s1",)


def test_probe_accepts_this_runsc_and_explains_what_is_wrong_with_others(tmp_path: Path) -> None:
    assert probe(runsc_path()) is None
    assert "not an executable" in str(probe(tmp_path / "none"))
    old = tmp_path / "runsc"
    old.write_text("#!/bin/sh\necho '  -platform string'\n")
    old.chmod(0o755)
    assert "too old" in str(probe(old))
    broken = tmp_path / "broken"
    broken.write_text(f'#!/bin/sh\ncase "$*" in *help*|*flags*) exec {runsc_path()} "$@";; esac\necho no luck here >&2; exit 1\n')
    broken.chmod(0o755)
    assert "no luck here" in str(probe(broken))
