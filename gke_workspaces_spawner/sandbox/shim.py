"""The shim: one small process per sandbox, alive from before its start until after its removal.

It is in a session of its own, so that a Hub that is killed with its process group leaves it alone; it starts or restores the
sandbox detached and adopts it (subreaper: one that comes later adopts nothing), so that the end is seen with its exit code
and a removal takes 0.3 s. It serves one unix socket in the room, JSON lines, one request a connection. If it is killed the
sandbox lives on, and the next call starts another one that takes over: it cannot reap, and gives up a save that was under
way.

Started by :mod:`.api` as ``python -I -S -c ...`` with a JSON object on standard input (it holds the key for MACs and the
secret environment: no command line, no file); answers one JSON line on standard output when the sandbox runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import kept
from .bundle import secret_text, write_bundle
from .diskroom import memory_available, memory_bytes
from .errors import SandboxError
from .files import read_json, remove_tree, write_json
from .journal import note, note_error
from .patched import PATCH_FAILED
from .places import free_places, hold_places
from .processes import Process, become_subreaper, command_lines, readable, reap, reap_leftovers, run
from .removal import remove_container
from .room import PATCHED, SOCKET, START_SECONDS, Room
from .runsc import Runsc
from .saving import Saver
from .snapshots import Shelf
from .spec import Json, SandboxSpec
from .verifying import Verification

LOG_LIMIT = 16 << 20
"""Bytes of output of a sandbox that are kept; beyond it the log starts anew."""
_TICK = 0.5
_SEAL_AFTER = 1.0
"""Seconds for which the disk belongs to the end of the pause, before the snapshot is read once more."""
_PATIENCE = 3
"""Ticks that a sandbox may be above its memory limit."""


class Shim:
    """Holds one room."""

    def __init__(self, config: Mapping[str, Json]) -> None:
        self.state = Path(config["state"])
        self.key = bytes.fromhex(config["key"])
        self.runsc = Runsc(*config["runsc"])
        self.room = Room(self.state, config["id"])
        self.shelf = Shelf(self.state, self.key)
        self.network: dict[str, Json] = config["network"]
        self.saver: Saver | None = None
        self._verification: Verification | None = None
        self._verifying = threading.Lock()
        self._removing = threading.Lock()
        self._gone = threading.Event()
        self._wake = os.pipe()
        self._saved: str | None = None
        self._limit: tuple[Process, int] | None = None
        self._over = 0

    # ------------------------------------------------------------ beginnings

    def start(self, spec: SandboxSpec, secret_env: Mapping[str, str]) -> str:
        """Cold start; returns the address."""
        secret = os.memfd_create("environment", os.MFD_CLOEXEC)
        try:
            os.write(secret, secret_text(secret_env))
            os.lseek(secret, 0, os.SEEK_SET)
            etc = write_bundle(self.room.path, spec, **self.network)
            self._launch("start_failed", [], self.runsc.command("run", *self._where(), self.room.id), stdin=secret)
        finally:
            os.close(secret)
        return self._started(spec, etc, None)

    def restore(self, spec: SandboxSpec, snapshot_id: str) -> str:
        """Load a snapshot; returns the address once ``runsc restore`` has returned (pages may still be loading)."""
        self.shelf.check(snapshot_id)
        image = self.shelf.path(snapshot_id)
        made, held = read_json(image / "spec.json"), read_json(image / "kept.json")
        manifest = read_json(image / "manifest.json")
        if made is None or held is None or manifest is None or made["runsc"] != self.runsc.digest:
            raise SandboxError("snapshot_changed", "spec.json and kept.json do not fit")
        if memory_available() < manifest["bytes"]:
            raise SandboxError("not_enough_memory", f"the server needs {manifest['bytes']:,} bytes, {memory_available():,} are free")
        refuse_other_mounts(spec, SandboxSpec.from_json(made["spec"]))
        readonly = [*spec.readonly, *made["etc"]]
        patches = kept.patches(held["files"], readonly, kept.Store(self.state), self.room.path)
        sources = {patch.bind: patch.target if len(patch.layers) > 1 else patch.layers[0] for patch in patches}
        write_bundle(self.room.path, spec, **self.network, etc=made["etc"], sources=sources)
        options = ("--background", "--direct", "-image-path", str(image))
        hold_places(self.room.path, spec, manifest["open_files"])
        write_json(self.room.path / PATCHED, {"files": sorted(name for patch in patches for name in patch.names)})
        # runsc takes a mount for another one when its source is on overlayfs at one time and not at another: we have checked.
        self._verification = Verification(self.shelf, snapshot_id)
        command = self.runsc.command("restore", *options, *self._where(), self.room.id, flags=("--restore-spec-validation=ignore",))
        self._launch("restore_failed", patches, command)
        return self._started(spec, made["etc"], snapshot_id)

    def _where(self) -> tuple[str, ...]:
        return "-detach", "-bundle", str(self.room.path), "-pid-file", str(self.room.path / "pid")

    def _launch(self, code: str, patches: list[kept.Patched], command: list[str], stdin: int | None = None) -> None:
        overlays = [(patch.layers, patch.target) for patch in patches if len(patch.layers) > 1]
        if overlays:
            here = str(Path(__file__).resolve().parents[2])
            code_line = f"import sys; sys.path.insert(0, {here!r}); from gke_workspaces_spawner.sandbox.patched import main; main()"
            command = [sys.executable, "-I", "-S", "-c", code_line, json.dumps(overlays), *command]
        result = run(command, log=self.room.log, deadline=time.time() + START_SECONDS, stdin=stdin)
        if result.code == PATCH_FAILED and overlays:
            names = ", ".join(patch.bind for patch in patches)
            raise SandboxError("files_changed", f"files below {names} have changed and cannot be put back: {result.output.strip()[-300:]}")
        if result.code != 0:
            said = "no answer in time" if result.ended else result.output.strip()[:500]
            raise SandboxError(code, f"runsc {command[-1]} ended with {result.code}: {said}")

    def _started(self, spec: SandboxSpec, etc: list[str], restored_from: str | None) -> str:
        pid = int((self.room.path / "pid").read_text(encoding="ascii"))
        sentry = Process.of(pid)
        if sentry is None:
            reap(pid)
            raise SandboxError("restore_failed" if restored_from else "start_failed", "the sandbox ended at once: " + self._log_tail())
        self.room.write_meta(
            {
                "spec": spec.to_json(),
                "etc": etc,
                "sentry": sentry,
                "ip": self.network["ip"],
                "restored_from": restored_from,
                "started": time.time(),
                "runsc": self.runsc.digest,
            }
        )
        self.saver = Saver(self.state, self.room, self.runsc, self.key)
        self._watch(sentry)
        self.saver.keeper.begin(sentry.pid, [*spec.readonly, *etc])
        return str(self.network["ip"])

    def take_over(self) -> None:
        """Go on for a shim that was killed."""
        for pid, words in command_lines():
            if self.runsc.owns(words) == self.room.id and not {"boot", "gofer"} & set(words):
                process = Process.of(pid)
                if process is not None:
                    process.kill(5)
        self.saver = Saver(self.state, self.room, self.runsc, self.key)
        self.saver.recover()
        sentry = self.room.sentry()
        meta = self.room.meta()
        if sentry is not None and meta is not None and self.room.exit() is None:
            self._watch(sentry)
            self.saver.keeper.begin(sentry.pid, [*meta["spec"]["readonly"], *meta["etc"]])

    def _log_tail(self) -> str:
        with open(self.room.log, errors="replace", encoding="utf-8") as file:
            return file.read()[-500:].strip()

    # ------------------------------------------------------------ the end

    def _watch(self, sentry: Process) -> None:
        spec = self.room.spec()
        if spec is not None and spec.memory_limit is not None:
            self._limit = (sentry, spec.memory_limit)
        threading.Thread(target=self._await_end, args=(sentry,), name="watch", daemon=True).start()

    def _await_end(self, sentry: Process) -> None:
        fd = sentry.open()
        if fd is not None:
            readable(fd, None)
            os.close(fd)
        code = reap(sentry.pid)
        with self._removing:
            if not self._gone.is_set():
                self.room.write_exit(code, time.time())

    def remove(self) -> None:
        """End the sandbox and leave nothing of it but its snapshots; returns when it is gone. May be repeated."""
        with self._removing:
            if self._gone.is_set():
                return
            if self.saver is not None:
                self._saved = self.saver.close()
            remove_container(self.runsc, self.room.id)
            free_places(self.room.path)
            remove_tree(self.room.path)
            self._gone.set()
            os.write(self._wake[1], b"!")

    # ------------------------------------------------------------ calls

    def serve(self, listener: socket.socket) -> None:
        """Answer calls until the sandbox has been removed; then seal the snapshot that was saved from it."""
        assert self.saver is not None
        selector = selectors.DefaultSelector()
        selector.register(listener, selectors.EVENT_READ)
        selector.register(self._wake[0], selectors.EVENT_READ)
        while not self._gone.is_set():
            if any(key.fileobj is listener for key, _ in selector.select(_TICK)):
                connection = listener.accept()[0]
                threading.Thread(target=self._answer, args=(connection,)).start()
            self.saver.tick()
            self._bound_log()
            self._bound_memory()
        listener.close()
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        self.saver.keeper.join()
        reap_leftovers()
        if self._saved is not None:
            os.nice(10)
            time.sleep(_SEAL_AFTER)
            self.shelf.seal_at_leisure(self._saved)

    def _bound_log(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if os.stat(self.room.log).st_size > LOG_LIMIT:
                os.truncate(self.room.log, 0)

    def _bound_memory(self) -> None:
        """End a sandbox that has taken more memory than it may for some seconds; works where there are no cgroups.

        Memory that was freed inside is given back a moment later, hence the patience.
        """
        if self._limit is None or self.room.exit() is not None:
            return
        sentry, limit = self._limit
        try:
            over = memory_bytes(sentry.pid) > limit
        except SandboxError:
            return
        self._over = self._over + 1 if over else 0
        if self._over >= _PATIENCE:
            note(f"{self.room.id} took more than {limit:,} bytes of memory and is ended")
            self.room.write_reason("memory_limit")
            sentry.kill(5)

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                request = json.loads(connection.makefile("rb").readline())
                answer: dict[str, Json] = {"result": self._call(request)}
            except SandboxError as error:
                answer = {"error": error.code, "detail": error.detail}
            except Exception as error:  # noqa: BLE001
                # Boundary of a connection: the caller gets a code, the log gets the cause, the shim must live on.
                note_error(f"call to the shim of {self.room.id}")
                answer = {"error": "shim_unreachable", "detail": repr(error)}
            with contextlib.suppress(OSError):
                connection.sendall(json.dumps(answer).encode() + b"\n")

    def _call(self, request: Mapping[str, Json]) -> Json:
        saver = self.saver
        if saver is None:
            raise SandboxError("sandbox_gone", "the sandbox has not started")
        calls: dict[str, Callable[[], Any]] = {
            "ping": lambda: True,
            "save": lambda: saver.start(request["save"]),
            "unbroken": lambda: saver.unbroken(request["pause_id"], request["seconds"]),
            "thaw": lambda: saver.thaw(request["pause_id"]),
            "verified": self.verified,
            "remove": self.remove,
        }
        return calls[request["call"]]()

    def verified(self) -> None:
        """Wait until every byte of what the sandbox was restored from has been compared; nothing to do for a cold start.

        Raises SandboxError as :meth:`.verifying.Verification.outcome`. A shim that took over looks anew.
        """
        with self._verifying:
            meta = self.room.meta()
            if self._verification is None and meta is not None and meta["restored_from"] is not None:
                self._verification = Verification(self.shelf, meta["restored_from"])
            verification = self._verification
        if verification is not None:
            verification.outcome()


def refuse_other_mounts(today: SandboxSpec, saved: SandboxSpec) -> None:
    """Raise SandboxError ``restore_failed`` when a sandbox of today's spec would have other mounts or another user."""
    for name in ("readonly", "home_inside", "uid", "gid"):
        one, other = getattr(today, name), getattr(saved, name)
        if name == "readonly":
            one, other = sorted(one), sorted(other)
        if one != other:
            raise SandboxError("restore_failed", f"{name} is {one}, the saved server had {other}")


def main() -> None:
    """Entry point; see the module's docstring."""
    config = json.loads(sys.stdin.buffer.read())
    if os.fork():
        os._exit(0)
    os.setsid()
    os.umask(0o077)
    room = Room(Path(config["state"]), config["id"])
    if config["action"] != "takeover":
        room.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = room.lock()
    if lock is None:
        _report({"error": "busy", "detail": "another shim has this sandbox"})
        return
    os.chdir(room.path)
    _errors_to(room.path / "shim.log")
    become_subreaper()
    shim = Shim(config)
    try:
        if config["action"] == "takeover":
            shim.take_over()
            answer: dict[str, Json] = {"result": None}
        elif config["action"] == "restore":
            answer = {"result": shim.restore(SandboxSpec.from_json(config["spec"]), config["snapshot_id"])}
        else:
            answer = {"result": shim.start(SandboxSpec.from_json(config["spec"]), config["secret"])}
        listener = _listen()
    except Exception as error:  # noqa: BLE001
        # Boundary of the process: nothing half made may stay, and the caller must learn why.
        note_error(f"{config['action']} of {room.id}")
        if config["action"] == "takeover":
            _report({"error": "shim_unreachable", "detail": repr(error)})
            return
        shim.remove()
        told = error if isinstance(error, SandboxError) else SandboxError(f"{config['action']}_failed", repr(error))
        _report({"error": told.code, "detail": told.detail})
        return
    _report(answer)
    shim.serve(listener)


def _listen() -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET)
    listener.bind(SOCKET)
    listener.listen(64)
    return listener


def _errors_to(path: Path) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fd, 2)
    os.close(fd)


def _report(answer: Mapping[str, Json]) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
