"""The bundle of a sandbox: a skeleton root file system and the OCI ``config.json``.

The root is a small folder of our own, never ``/``: gVisor's gofer binds the root onto itself, mounts made below ``/`` are
lost and missing mount points would be created on the host. Everything of the host comes in by read-only binds that the
spec names; the home is the only writable one. The root and ``/tmp`` are in memory and part of a snapshot.

A restore must present the same mounts at the same places (runsc compares everything but the sources).
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from .spec import Json, SandboxSpec, is_below

LAUNCHER = ("/bin/sh", "-c", 'eval "$(cat)"; exec "$@" </dev/null', "sh")
"""Reads the secret part of the environment from standard input (an unnamed file that exists in memory only)."""

_NAMESPACES = ("pid", "mount", "ipc", "uts")
_CAPABILITIES = ("bounding", "effective", "permitted", "inheritable", "ambient")
_HOST_ETC = ("ssl/certs", "localtime", "timezone", "mime.types", "ld.so.cache", "ld.so.conf", "fonts", "alternatives", "nsswitch.conf")
"""Files and folders of the host's /etc that every account may read and that programs look for."""


def secret_text(secret_env: Mapping[str, str]) -> bytes:
    """What the launcher reads. Raises ``ValueError`` for a name that a shell cannot export or a value with NUL."""
    lines = []
    for name, value in secret_env.items():
        if not name.isidentifier() or not name.isascii() or "\0" in value:
            raise ValueError(f"environment variable {name!r} cannot be handed over")
        lines.append(f"export {name}={shlex.quote(value)}\n")
    return "".join(lines).encode()


def write_bundle(
    room: Path,
    spec: SandboxSpec,
    *,
    netns: str | None,
    ip: str,
    resolv_conf: str,
    etc: Sequence[str] | None = None,
    sources: Mapping[str, str] | None = None,
) -> list[str]:
    """Make ``rootfs``, ``checkpoint`` and ``config.json`` in ``room``; returns the binds of the host's /etc.

    At a restore ``etc`` is what the first start returned (the mounts must be the same), and ``sources`` gives another
    source for the read-only bind of a path (see :mod:`.kept`). Nothing here is durable: no sandbox outlives the machine.
    """
    spec.check()
    rootfs = room / "rootfs"
    previous = os.umask(0o022)
    try:
        _skeleton(rootfs)
        binds = _host_etc(rootfs, spec) if etc is None else list(etc)
        for path in (*spec.readonly, *binds):
            _mount_point(rootfs, path, folder=os.path.isdir((sources or {}).get(path, path)))
        _mount_point(rootfs, spec.home_inside, folder=True)
        _etc(rootfs, spec, ip, resolv_conf)
    finally:
        os.umask(previous)
    checkpoint = room / "checkpoint"
    checkpoint.mkdir(mode=0o700, exist_ok=True)
    for left in checkpoint.iterdir():
        left.unlink()
    config = _config(spec, rootfs, checkpoint, netns, [*spec.readonly, *binds], sources or {})
    (room / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return binds


def _config(
    spec: SandboxSpec, rootfs: Path, checkpoint: Path, netns: str | None, readonly: list[str], sources: Mapping[str, str]
) -> dict[str, Json]:
    mounts: list[dict[str, Json]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro", "nosuid", "nodev", "noexec"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]},
    ]
    mounts += [
        {"destination": path, "type": "bind", "source": sources.get(path, path), "options": ["rbind", "ro", "nosuid", "nodev"]}
        for path in sorted(readonly)
    ]
    mounts.append({"destination": spec.home_inside, "type": "bind", "source": spec.home, "options": ["rbind", "rw", "nosuid", "nodev"]})
    environment = {"HOME": spec.home_inside, "USER": spec.user, **spec.env}
    resources = {"memory": {"limit": spec.memory_limit}} if spec.memory_limit else {}
    network: dict[str, str] = {"type": "network"} if netns is None else {"type": "network", "path": netns}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": spec.uid, "gid": spec.gid},
            "args": [*LAUNCHER, *spec.argv],
            "env": [f"{name}={value}" for name, value in environment.items()],
            "cwd": spec.home_inside,
            "noNewPrivileges": True,
            "capabilities": {name: [] for name in _CAPABILITIES},
        },
        "root": {"path": str(rootfs), "readonly": False},
        "hostname": spec.hostname,
        "mounts": mounts,
        "linux": {"namespaces": [*({"type": kind} for kind in _NAMESPACES), network], "resources": resources},
        "annotations": {"dev.gvisor.internal.checkpoint.path": str(checkpoint)},
    }


def _skeleton(rootfs: Path) -> None:
    """The folders of every system, and ``/bin`` and its like as on the host (links into ``/usr``)."""
    rootfs.mkdir(mode=0o755, exist_ok=True)
    for inside in ("usr", "etc", "proc", "sys", "dev", "tmp", "home", "var/tmp", "run", "root"):
        (rootfs / inside).mkdir(mode=0o755, parents=True, exist_ok=True)
    os.chmod(rootfs / "root", 0o711)
    os.chmod(rootfs / "var/tmp", 0o1777)
    for link in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if os.path.islink(f"/{link}") and not os.path.lexists(rootfs / link):
            (rootfs / link).symlink_to(f"usr/{link}")


def _mount_point(rootfs: Path, path: str, *, folder: bool) -> None:
    inside = rootfs / path.lstrip("/")
    (inside if folder else inside.parent).mkdir(mode=0o755, parents=True, exist_ok=True)
    if not folder:
        inside.touch(mode=0o644)


def _host_etc(rootfs: Path, spec: SandboxSpec) -> list[str]:
    """Which of the host's /etc to bind; links are copied as links (they lead into ``/usr``)."""
    binds = []
    for name in _HOST_ETC:
        path = f"/etc/{name}"
        if not os.path.exists(path) or any(is_below(path, given) for given in spec.readonly):
            continue
        if os.path.islink(path):
            link = rootfs / path.lstrip("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(link):
                link.symlink_to(os.readlink(path))
        else:
            binds.append(path)
    return binds


def _etc(rootfs: Path, spec: SandboxSpec, ip: str, resolv_conf: str) -> None:
    texts = {
        "passwd": f"root:x:0:0:root:/root:/usr/sbin/nologin\n{spec.user}:x:{spec.uid}:{spec.gid}:{spec.user}:{spec.home_inside}:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"root:x:0:\n{spec.user}:x:{spec.gid}:\nnogroup:x:65534:\n",
        "hosts": f"127.0.0.1 localhost\n::1 localhost\n{ip or '127.0.1.1'} {spec.hostname}\n",
        "hostname": f"{spec.hostname}\n",
        "resolv.conf": resolv_conf,
        "shells": "/bin/sh\n/bin/bash\n",
    }
    for name, text in texts.items():
        (rootfs / "etc" / name).write_text(text, encoding="utf-8")
