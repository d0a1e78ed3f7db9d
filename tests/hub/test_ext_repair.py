"""What the server does when it comes back: told by the sandbox's file (here a named pipe with its reading side) or by the Hub."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from jupyterhub.httpclient import JupyterHubHTTPClient

from jupyter_pause_ext import extension
from jupyter_pause_ext.repair import EACH_SECONDS, drop_google_credentials
from jupyter_pause_ext.signal import Watcher

from .checkpoint_file import CheckpointFile
from .ext_server import Server, in_its_own_home, read, running


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[CheckpointFile]:
    with CheckpointFile.made(tmp_path / "checkpoint") as made:
        yield made


@pytest_asyncio.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: CheckpointFile) -> AsyncIterator[Server]:
    in_its_own_home(tmp_path, monkeypatch)
    culling = {"cull_idle_timeout": 3600, "cull_interval": 1800, "cull_connected": True}
    async with running(
        tmp_path, checkpoint_file=str(checkpoint.path), MappingKernelManager=culling, TerminalManager={"cull_inactive_timeout": 3600}
    ) as running_server:
        yield running_server


async def status(server: Server) -> dict[str, Any]:
    """Waits until clients are let in."""
    while (answer := await server.tab("jupyter-pause/v1/status")).code == 503:
        pass
    return read(answer)


async def two_days_pass(server: Server) -> str:
    """A kernel and a terminal, a prepared pause, and everything was last used two days ago; the kernel's id."""
    kernel_id = await server.kernel()
    await server.tab("api/terminals", "POST")
    await server.prepare("p1", seconds=60)
    long_ago = datetime.now(timezone.utc) - timedelta(days=2)
    server.app.kernel_manager.get_kernel(kernel_id).last_activity = long_ago  # type: ignore[attr-defined]
    for terminal in server.app.web_app.settings["terminal_manager"].terminals.values():
        terminal.last_activity = long_ago
    server.app.web_app.settings["api_last_activity"] = long_ago
    return kernel_id


async def nothing_is_culled(server: Server, kernel_id: str) -> None:
    kernels: Any = server.app.kernel_manager
    terminals = server.app.web_app.settings["terminal_manager"]
    assert kernels._culler_callback.is_running()
    assert terminals._culler_callback.is_running()
    await kernels.cull_kernels()
    await terminals._cull_terminals()
    assert kernel_id in kernels
    assert len(terminals.terminals) == 1
    assert abs((server.app.web_app.last_activity() - datetime.now(timezone.utc)).total_seconds()) < 60  # type: ignore[no-untyped-call]


async def test_cullers_stand_still_while_a_pause_is_prepared(server: Server) -> None:
    await two_days_pass(server)
    assert not server.app.kernel_manager._culler_callback.is_running()  # type: ignore[union-attr]
    assert not server.app.web_app.settings["terminal_manager"]._culler_callback.is_running()


async def test_after_a_restore_nobody_counts_as_idle_though_the_hub_never_calls(server: Server, checkpoint: CheckpointFile) -> None:
    kernel_id = await two_days_pass(server)
    await asyncio.to_thread(checkpoint.say, "restore")
    found = await status(server)
    assert found["paused_count"] == 1
    assert found["restored"]["pause_id"] == "p1"
    await nothing_is_culled(server, kernel_id)


async def test_the_hubs_call_repairs_once_and_tells_what_the_sandbox_said(server: Server, checkpoint: CheckpointFile) -> None:
    kernel_id = await two_days_pass(server)
    before = read(await server.hub("identity"))["identity"]
    saying = asyncio.create_task(asyncio.to_thread(checkpoint.say, "restore"))
    answer = read(await server.hub("restored", {"pause_id": "p1"}))
    await saying
    assert answer["checkpoint_said"] == "restore"
    assert answer["identity"] == before
    assert answer["repaired"]["activity"] == {"kernels": 1, "terminals": 1}
    assert answer["repaired"]["openssl"] is True
    assert read(await server.hub("restored", {"pause_id": "p1"})) == answer
    assert (await status(server))["paused_count"] == 1
    await nothing_is_culled(server, kernel_id)


@contextlib.contextmanager
def stuck_hub_client() -> Iterator[None]:
    """A connection to the Hub that belongs to the loop of a thread which does not get round to anything."""
    there, may_go_on = threading.Event(), threading.Event()

    async def hold() -> None:
        client = JupyterHubHTTPClient.loop_instance()
        assert not client._session.closed
        there.set()
        may_go_on.wait()
        await asyncio.sleep(0)
        await client.close()

    thread = threading.Thread(target=lambda: asyncio.run(hold()))
    thread.start()
    try:
        assert there.wait(20)
        yield
    finally:
        may_go_on.set()
        thread.join()


async def test_a_repair_that_does_not_end_keeps_nobody_waiting_and_the_others_are_done(server: Server, checkpoint: CheckpointFile) -> None:
    kernel_id = await two_days_pass(server)
    with stuck_hub_client():
        saying = asyncio.create_task(asyncio.to_thread(checkpoint.say, "restore"))
        answer = read(await asyncio.wait_for(server.hub("restored", {"pause_id": "p1"}), 4 * EACH_SECONDS))
        await saying
    assert answer["repaired"]["hub_connections"] is None
    assert answer["repaired"]["activity"] == {"kernels": 1, "terminals": 1}
    assert answer["repaired"]["cloud_credentials"] == 0
    await nothing_is_culled(server, kernel_id)


async def test_without_a_word_of_the_sandbox_the_hubs_call_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_its_own_home(tmp_path, monkeypatch)
    async with running(tmp_path) as silent:
        await silent.prepare("p1")
        answer = read(await silent.hub("restored", {"pause_id": "p1"}))
        assert answer["checkpoint_said"] is None
        assert (await silent.tab("jupyter-pause/v1/status")).code == 200
        await silent.prepare("p2")
        await silent.hub("restored", {"pause_id": "p2"})
        found = read(await silent.tab("jupyter-pause/v1/status"))
        assert (found["paused_count"], found["restored"]["pause_id"]) == (2, "p2")


async def test_a_restore_that_nobody_prepared_is_claimed_by_the_hubs_call(server: Server, checkpoint: CheckpointFile) -> None:
    await asyncio.to_thread(checkpoint.say, "restore")
    while (found := await status(server))["paused_count"] == 0:
        pass
    assert found["restored"]["pause_id"] is None
    await server.hub("restored", {"pause_id": "p7"})
    found = await status(server)
    assert (found["paused_count"], found["restored"]["pause_id"]) == (1, "p7")


async def test_an_older_word_of_the_sandbox_is_not_taken_for_the_new_one(server: Server, checkpoint: CheckpointFile) -> None:
    """A pause that failed after its save, then a restore that nobody prepared."""
    await asyncio.to_thread(checkpoint.say, "resume")
    while server.ext._said is None:
        await asyncio.sleep(0)
    saying = asyncio.create_task(asyncio.to_thread(checkpoint.say, "restore"))
    answer = read(await server.hub("restored", {"pause_id": "p1"}))
    await saying
    assert answer["checkpoint_said"] == "restore"
    assert (await status(server))["paused_count"] == 1


async def test_the_original_stays_prepared_after_a_save_and_goes_on_after_an_error(server: Server, checkpoint: CheckpointFile) -> None:
    await server.prepare("p1")
    await asyncio.to_thread(checkpoint.say, "resume")
    while server.ext._said is None:
        await asyncio.sleep(0)
    assert (await server.tab("jupyter-pause/v1/status")).code == 503
    await asyncio.to_thread(checkpoint.say, "error")
    assert (await status(server))["paused_count"] == 0


async def test_a_restore_days_later_finds_the_lease_over(server: Server, checkpoint: CheckpointFile) -> None:
    kernel_id = await two_days_pass(server)
    server.clock.ahead += 2 * 86400
    assert (await server.tab("jupyter-pause/v1/status")).code == 200
    await nothing_is_culled(server, kernel_id)
    await asyncio.to_thread(checkpoint.say, "restore")
    while (found := await status(server))["paused_count"] == 0:
        pass
    assert found["restored"]["pause_id"] == "p1"


def test_the_watcher_hears_each_word_and_ends_when_asked(checkpoint: CheckpointFile) -> None:
    heard: list[str] = []
    watcher = Watcher.start(heard.append, str(checkpoint.path))
    assert watcher is not None
    for count, word in enumerate(("resume", "restore"), 1):
        checkpoint.say(word)
        while len(heard) < count:
            pass
    watcher.close()
    assert heard == ["resume", "restore"]
    assert Watcher.start(heard.append, str(checkpoint.path) + ".absent") is None


def test_openssl_is_reseeded_where_it_is_loaded_and_not_loaded_for_that() -> None:
    """That two restores then differ is tried at the sandbox level."""
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("r", {str(Path(extension.__file__).parent / "reseed.py")!r})
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
print(module.reseed_openssl(), "ssl" in sys.modules)
import ssl
print(module.reseed_openssl())
"""
    said = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert said == ["False False", "True"]


@pytest.fixture
def start_up_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    before = tmp_path / "mine.py"
    before.write_text("mine = 41\n")
    for name in ("JUPYTER_PAUSE_STARTUP_NEXT", "JUPYTER_PAUSE_EXT_DIR"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PYTHONSTARTUP", str(before))
    return before


async def test_kernels_wait_for_the_signal_and_keep_the_users_own_start_up_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_up_environment: Path
) -> None:
    in_its_own_home(tmp_path, monkeypatch)
    extension.reach_kernels()
    extension.reach_kernels()
    assert os.environ["JUPYTER_PAUSE_STARTUP_NEXT"] == str(start_up_environment)
    async with running(tmp_path) as server:
        channel = await server.channels(await server.kernel())
        assert await channel.run("print(mine, sorted(n for n in globals() if 'pause' in n.lower()))") == "41 []\n"
        named = f"import sys; print('_jupyter_pause_signal' in sys.modules, {str(Path(extension.__file__).parent)!r} in sys.path)"
        assert await channel.run(named) == "False False\n"


def test_google_credentials_fetch_a_new_token(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    class Credentials:
        token: str | None = "old"
        expiry: str | None = "later"

    module = types.ModuleType("google.auth.credentials")
    module.Credentials = Credentials  # type: ignore[attr-defined]
    assert drop_google_credentials() == 0
    held = Credentials()
    monkeypatch.setitem(sys.modules, "google.auth.credentials", module)
    assert drop_google_credentials() == 1
    assert (held.token, held.expiry) == (None, None)


def test_the_single_user_entry_uses_poll() -> None:
    code = """
from jupyter_pause_ext.singleuser import use_poll
use_poll()
import asyncio
print(type(asyncio.new_event_loop()._selector).__name__)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == selectors.PollSelector.__name__ + "\n"
