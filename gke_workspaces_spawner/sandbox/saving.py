"""The save: freeze, write, make durable, and go on as if nothing had happened when any of it fails.

Order, tried with faults (docs): ``runsc pause``; ``runsc checkpoint --direct --leave-running`` (without ``--leave-running``
a failed save loses the session); files signed, fsynced and renamed; then the caller removes the sandbox. Whatever goes
wrong, and when the wall clock says so, ``runsc resume``: the server goes on and nothing of the save is left.

``save.json`` in the room says where a save stands, so that another shim can take over after a crash.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from . import kept
from .diskroom import memory_bytes, release, reserved
from .errors import SandboxError
from .files import write_json
from .journal import note, note_error
from .keeper import Keeper
from .processes import Process, Result, run
from .room import Room
from .runsc import Runsc
from .snapshots import PAGES, Shelf, digest_of
from .spec import Json, check_id

THAW_SECONDS = 30.0
"""How long ``runsc resume`` is tried."""


class Nothing(NamedTuple):
    """No save of that pause is known."""

    state: Literal["nothing"] = "nothing"


class Saving(NamedTuple):
    """Under way; ``fraction`` of the bytes where known."""

    frozen_at: float | None = None
    fraction: float | None = None
    state: Literal["saving"] = "saving"


class Saved(NamedTuple):
    """Complete and durable; the server stands frozen until ``frozen_until`` (wall clock)."""

    bytes: int
    frozen_at: float
    durable_at: float
    frozen_until: float
    digest: str
    state: Literal["saved"] = "saved"


class Failed(NamedTuple):
    """Given up; ``alive`` says whether the server goes on."""

    reason: str
    detail: str
    alive: bool
    state: Literal["failed"] = "failed"


SaveResult: TypeAlias = "Nothing | Saving | Saved | Failed"


class _Stopped(Exception):
    """The save is to be given up."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


class Saver:
    """The saves of one sandbox, one at a time; lives in its shim. Thread-safe."""

    def __init__(self, state: Path, room: Room, runsc: Runsc, key: bytes) -> None:
        self._state = state
        self._room = room
        self._runsc = runsc
        self._shelf = Shelf(state, key)
        self._store = kept.Store(state)
        self.keeper = Keeper(room, self._store)
        self._lock = threading.RLock()
        self._cancel = threading.Event()
        self._worker: threading.Thread | None = None
        self._closed = False
        self._record: dict[str, Json] = room.save() or {}

    # ------------------------------------------------------------ calls

    def start(self, request: Mapping[str, Json]) -> None:
        """Begin, or join the save of the same pause. Raises SandboxError ``busy`` while another one is under way."""
        with self._lock:
            if self._closed:
                raise SandboxError("sandbox_gone", "the sandbox is being removed")
            if self._record.get("pause_id") == request["pause_id"]:
                return
            if self._record.get("phase") in ("saving", "saved", "thawing"):
                raise SandboxError("busy", f"pause {self._record['pause_id']} is under way")
            check_id("snapshot", request["snapshot_id"])
            self._cancel.clear()
            self._write({"pause_id": request["pause_id"], "snapshot_id": request["snapshot_id"], "phase": "saving", "frozen_at": None})
            self._worker = threading.Thread(target=self._work, args=(dict(request),), name="save")
            self._worker.start()

    def unbroken(self, pause_id: str, seconds: float) -> bool:
        """Whether nothing of the user's ran since that save; if so, nothing will for ``seconds`` more."""
        with self._lock:
            if self._record.get("pause_id") != pause_id or self._record.get("phase") != "saved":
                return False
            now = time.time()
            if self._alive() and now >= self._record["frozen_until"]:
                return False
            self._write({**self._record, "frozen_until": max(self._record["frozen_until"], now + seconds)})
            return True

    def thaw(self, pause_id: str | None, reason: str = "save_cancelled", detail: str = "the pause was given up") -> None:
        """End that pause's save, also a finished one, with everything it wrote; the server goes on. May be repeated."""
        with self._lock:
            if self._closed or (pause_id is not None and self._record.get("pause_id") != pause_id):
                return
            self._cancel.set()
            worker = self._worker
        if worker is not None:
            worker.join()
        with self._lock:
            if not self._closed and self._record.get("phase") == "saved":
                self._give_up(reason, detail)

    def tick(self) -> None:
        """Thaw by wall clock; called twice a second."""
        with self._lock:
            saved = not self._closed and self._record.get("phase") == "saved"
            late = saved and time.time() >= self._record["frozen_until"] and self._alive()
            pause_id = self._record.get("pause_id")
        if late:
            self.thaw(pause_id, "frozen_too_long", "the pause was not finished in time, the server goes on")

    def close(self) -> str | None:
        """No more saves or thaws: the sandbox will be removed. Returns the snapshot that was saved from it, if any."""
        with self._lock:
            self._closed = True
            self._cancel.set()
            self.keeper.end()
            worker = self._worker
        if worker is not None:
            worker.join()
        with self._lock:
            return self._record["snapshot_id"] if self._record.get("phase") == "saved" else None

    def recover(self) -> None:
        """After a takeover: give up what a dead shim was doing. Finished saves stay as they are."""
        with self._lock:
            if self._record.get("phase") in ("saving", "thawing"):
                self._give_up("save_interrupted", "the process that saved was killed")
                release(self._state, self._room.id)

    # ------------------------------------------------------------ work

    def _work(self, request: dict[str, Json]) -> None:
        reason, detail = "save_failed", "unknown"
        try:
            self._save(request)
            return
        except _Stopped as stopped:
            reason, detail = stopped.reason, stopped.detail
        except SandboxError as error:
            reason, detail = error.code, error.detail
        except OSError as error:
            reason, detail = ("disk_full" if error.errno == 28 else "save_failed"), str(error)
        except Exception as error:  # noqa: BLE001
            # Boundary of a thread: whatever it is, the server must be thawed, and the cause must be found in the log.
            note_error(f"save of {self._room.id}")
            reason, detail = "save_failed", repr(error)
        with self._lock:
            self._give_up(reason, detail)

    def _save(self, request: dict[str, Json]) -> None:
        snapshot_id, deadline = request["snapshot_id"], request["deadline"]
        meta = self._room.meta()
        if meta is None:
            raise SandboxError("sandbox_gone", "the sandbox has not started")
        sentry = meta["sentry"][0]
        readonly = [*meta["spec"]["readonly"], *meta["etc"]]
        spec = self._room.spec()
        assert spec is not None
        partial = self._shelf.partial(snapshot_id)
        self._shelf.delete(snapshot_id)
        reservation = reserved(self._state, self._room.id, memory_bytes(sentry), partial)
        with reservation, self._store.in_use(), self.keeper.stands_aside():
            partial.mkdir(mode=0o700)
            self._store.keep_early(kept.held_files(sentry), readonly)
            self._check(deadline)
            frozen_at = time.time()
            self._write({**self._record, "frozen_at": frozen_at, "expected": memory_bytes(sentry)})
            self._command(deadline, "pause", self._room.id)
            self._command(deadline, "checkpoint", "--direct", "--leave-running", "-image-path", str(partial), self._room.id)
            held = kept.held_files(sentry)
            write_json(partial / "kept.json", {"files": self._store.keep(held, readonly)})
            write_json(partial / "spec.json", {"spec": meta["spec"], "etc": meta["etc"], "runsc": self._runsc.digest})
            size = sum(entry.stat().st_size for entry in partial.iterdir())
            manifest = {**request["manifest"], "created": frozen_at, "bytes": size, "open_files": kept.in_home(held, spec)}
            write_json(partial / "manifest.json", manifest)
            self._check(deadline)
            self._shelf.publish(snapshot_id)
        durable_at = time.time()
        with self._lock:
            if self._cancel.is_set():
                raise _Stopped("save_cancelled", "the pause was given up")
            until = durable_at + request["frozen_for"]
            result = {"phase": "saved", "bytes": size, "durable_at": durable_at, "frozen_until": until, "digest": digest_of(manifest)}
            self._write({**self._record, **result})

    def _check(self, deadline: float) -> None:
        if self._cancel.is_set():
            raise _Stopped("save_cancelled", "the pause was given up")
        if time.time() >= deadline:
            raise _Stopped("save_timeout", "the save took longer than it may")

    def _command(self, deadline: float, verb: str, *arguments: str) -> None:
        self._check(deadline)
        result = self._runsc_run(deadline, verb, *arguments, cancellable=True)
        if result.ended == "cancelled":
            raise _Stopped("save_cancelled", "the pause was given up")
        if result.ended == "deadline":
            raise _Stopped("save_timeout", f"runsc {verb} did not end in time")
        if result.code != 0:
            # The sentence comes first; a failure inside the sandbox is followed by pages of a Go stack trace.
            text = result.output.partition("\ngoroutine ")[0].strip()[:500]
            full = "no space left on device" in text.lower()
            raise _Stopped("disk_full" if full else "save_failed", f"runsc {verb} ended with {result.code}: {text}")

    def _runsc_run(self, deadline: float, verb: str, *arguments: str, cancellable: bool = False) -> Result:
        return run(
            self._runsc.command(verb, *arguments),
            log=str(self._room.path / f"runsc-{verb}.log"),
            deadline=deadline,
            cancelled=self._cancel.is_set if cancellable else lambda: False,
        )

    def _give_up(self, reason: str, detail: str) -> None:
        """Thaw, remove what was written, say why. The lock is held.

        Written down first: from here on nobody may take the snapshot for the server's, whatever kills us.
        """
        self._write({**self._record, "phase": "thawing", "reason": reason, "detail": detail})
        alive = self._unfreeze() if self._record.get("frozen_at") and not self._closed else self._alive()
        self._shelf.abandon(self._record["snapshot_id"])
        self._write({**self._record, "phase": "failed", "frozen_at": None, "alive": alive})
        note(f"save of {self._room.id} given up: {reason} ({detail}), the server {'goes on' if alive else 'is gone'}")

    def _unfreeze(self) -> bool:
        """``runsc resume``; when runsc believes that the server runs (its client was killed), pause once more before."""
        deadline = time.time() + THAW_SECONDS
        while self._alive() and time.time() < deadline:
            if self._runsc_run(min(deadline, time.time() + 10), "resume", self._room.id).code == 0:
                return self._alive()
            self._runsc_run(min(deadline, time.time() + 10), "pause", self._room.id)
        return False

    def _alive(self) -> bool:
        sentry = self._room.sentry()
        return sentry is not None and sentry.alive()

    def _write(self, record: dict[str, Json]) -> None:
        self._record = record
        write_json(self._room.path / "save.json", record)


def result_of(record: Mapping[str, Json] | None, pause_id: str, sentry: Process | None, shelf: Path) -> SaveResult:
    """What ``save.json`` says of that pause."""
    if not record or record.get("pause_id") != pause_id:
        return Nothing()
    if record["phase"] == "failed":
        return Failed(record["reason"], record["detail"], record["alive"] and sentry is not None and sentry.alive())
    if record["phase"] == "saved":
        return Saved(*(record[name] for name in ("bytes", "frozen_at", "durable_at", "frozen_until", "digest")))
    if sentry is None or not sentry.alive():
        return Failed("sandbox_gone", "the server ended during the save", False)
    fraction = None
    if record.get("expected"):
        try:
            written = (shelf / f".partial-{record['snapshot_id']}" / PAGES).stat().st_size
            fraction = min(1.0, written / record["expected"])
        except FileNotFoundError:
            fraction = 0.0
    return Saving(record["frozen_at"], fraction)
