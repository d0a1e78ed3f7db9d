"""The ``runsc`` binary: a copy of our own, kept by digest, and what it can do."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from .errors import SandboxError
from .files import refuse_steerable, sha256_file, sync_folder
from .runsc import Runsc

_NEEDED = {
    "checkpoint": ("direct", "leave-running", "image-path"),
    "restore": ("background", "direct", "detach", "image-path", "pid-file"),
    "run": ("detach", "pid-file"),
    "delete": ("force",),
    "flags": ("platform", "overlay2", "net-disconnect-ok", "ignore-cgroups", "network", "root"),
}


def install(source: Path, state: Path) -> Runsc:
    """Copy ``source`` into the state folder under its digest (once) and return the copy; checks the copy's bytes.

    A snapshot can only be restored by the runsc that made it, and what runs as root must not change under us.
    Raises SandboxError ``runsc_unusable`` or ``state_unsafe``.
    """
    found = shutil.which(os.fspath(source)) or os.fspath(source)
    real = Path(os.path.realpath(found))
    if not real.is_file():
        raise SandboxError("runsc_unusable", f"{source} is not a file: build it or name another with --runsc")
    refuse_steerable(real)
    digest = sha256_file(real)
    copy = state / "runsc-bin" / digest / "runsc"
    if not copy.exists():
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, temporary = tempfile.mkstemp(dir=copy.parent)
        try:
            with open(fd, "wb") as target, open(real, "rb") as origin:
                shutil.copyfileobj(origin, target, 1 << 20)
                os.fchmod(target.fileno(), 0o500)
                target.flush()
                os.fsync(target.fileno())
            os.replace(temporary, copy)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        for folder in (copy.parent, copy.parent.parent):
            sync_folder(folder)
    return installed(digest, state)


def installed(digest: str, state: Path) -> Runsc:
    """The kept copy of that digest, its bytes checked. Raises SandboxError ``runsc_unusable``."""
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise SandboxError("runsc_unusable", "the record names no runsc")
    copy = state / "runsc-bin" / digest / "runsc"
    if not copy.is_file():
        raise SandboxError("runsc_unusable", f"the runsc that made this ({digest[:12]}) is no longer in {copy.parent.parent}")
    if sha256_file(copy) != digest:
        raise SandboxError("runsc_unusable", f"{copy} is not what was kept there: remove it and start again")
    root = state / "runsc"
    root.mkdir(mode=0o700, exist_ok=True)
    return Runsc(str(copy), digest, str(root))


def probe(runsc: Path) -> str | None:
    """``None`` when this runsc can do here what is needed, else one sentence with the way out.

    Looks for the flags that are used, then runs ``true`` in a sandbox (0.3 s).
    """
    path = shutil.which(os.fspath(runsc))
    if path is None:
        return f"{runsc} is not an executable file: let 'make demo' build runsc, or name yours with --runsc."
    for verb, flags in _NEEDED.items():
        text = _output([path, "flags"] if verb == "flags" else [path, "help", verb])
        if isinstance(text, OSError):
            return f"{path} does not run on this machine ({text.strerror}): let 'make demo' build runsc."
        missing = [flag for flag in flags if not re.search(rf"^\s+-{re.escape(flag)}\b", text, re.MULTILINE)]
        if missing:
            return f"{path} is too old or not runsc: '{verb}' has no -{missing[0]}; let 'make demo' build the pinned version."
    return _try_run(path)


def _output(argv: list[str]) -> str | OSError:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=30, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        return error
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout + done.stderr


def _try_run(path: str) -> str | None:
    with tempfile.TemporaryDirectory(prefix="runsc-probe-") as name:
        folder = Path(name)
        root = folder / "rootfs"
        for inside in ("usr", "proc"):
            (root / inside).mkdir(parents=True)
        for link in ("bin", "lib", "lib64"):
            (root / link).symlink_to(f"usr/{link}")
        config = {
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": 65534, "gid": 65534}, "args": ["/bin/true"], "cwd": "/", "noNewPrivileges": True},
            "root": {"path": str(root), "readonly": True},
            "mounts": [{"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")]},
        }
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        runsc = Runsc(path, "", str(folder / "state"))
        container = f"probe-{os.getpid()}-{os.urandom(3).hex()}"
        log = folder / "log"
        command = runsc.command("run", "-bundle", str(folder), container)
        command[command.index("--network=sandbox")] = "--network=none"
        try:
            with log.open("wb") as out:
                code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=30, check=False).returncode
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(runsc.command("delete", "--force", container), capture_output=True, timeout=30, check=False)
        if code == 0:
            return None
        said = log.read_text(errors="replace").strip().splitlines()
        return f"runsc cannot start a sandbox on this machine ({said[-1][:200] if said else 'no answer in 30 seconds'})."
