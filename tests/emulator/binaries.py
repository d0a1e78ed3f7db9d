"""The programs of a control plane: from ``KUBEBUILDER_ASSETS``, else built once from their pinned Go modules into the cache.

``go/kubernetes`` and ``go/etcd`` are the modules; their ``go.mod`` says the version and their ``go.sum`` every byte that goes in.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gke_workspaces_spawner.cli import bring, checks
from gke_workspaces_spawner.cli.places import cache
from gke_workspaces_spawner.cli.say import Stopped, say, step

GO = Path(__file__).with_name("go")
KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
BUILD_BYTES = 5 << 30
"""Free space that building Kubernetes needs at its peak: sources and build cache, removed again."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """Folders of programs; all of Kubernetes comes from one, so that its parts are of one version."""

    kubernetes: Path
    etcd: Path

    def path(self, program: str) -> str:
        """Where that program is."""
        return str((self.etcd if program == "etcd" else self.kubernetes) / program)


def binaries() -> Binaries:
    """Find them, or build what is missing (four minutes on two cores, once). Raises Stopped."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    given = Path(assets) if assets else None
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    with bring.alone(folder):
        return Binaries(
            kubernetes=given if given and _has(given, KUBERNETES) else _built(folder, "kubernetes", "k8s.io/kubernetes", KUBERNETES),
            etcd=given if given and _has(given, ("etcd",)) else _built(folder, "etcd", "go.etcd.io/etcd/server/v3", ("etcd",)),
        )


def version_of(module: str, name: str) -> str:
    """The version of ``module`` that the ``go.mod`` in ``go/NAME`` requires."""
    match = re.search(rf"^(?:require )?\s*{re.escape(module)} (v\S+)", (GO / name / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None, f"{module} is not in go.mod"
    return match[1]


def _has(folder: Path, programs: tuple[str, ...]) -> bool:
    return all(os.access(folder / program, os.X_OK) for program in programs)


def _built(folder: Path, name: str, module: str, programs: tuple[str, ...]) -> Path:
    version = version_of(module, name)
    place = folder / f"{name}-{version}"
    if _has(place, programs):
        return place
    checks.disk(folder, BUILD_BYTES, f"building {name}", "free some, or set KUBEBUILDER_ASSETS to a folder that has the programs")
    major, minor = version.removeprefix("v").split(".")[:2]
    said = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in said.items())])
    packages = [module] if name == "etcd" else [f"{module}/cmd/{program}" for program in programs]
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as work_name:
        work = Path(work_name)
        go = bring.go_toolchain(work)
        # A copy, since Go would write next to go.mod what it finds missing.
        source = shutil.copytree(GO / name, work / "source")
        environment = {
            "CGO_ENABLED": "0",
            "GOCACHE": str(work / "cache"),
            "GOMODCACHE": str(work / "modules"),
            "GOPATH": str(work / "path"),
            "GOFLAGS": "-modcacherw -trimpath -mod=readonly",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
        }
        with step(f"building {name} {version} (minutes, once)"), bring.made_whole(place) as new:
            # A folder as target: one program for each package, by its last name.
            target = new / "etcd" if name == "etcd" else new
            output = f"{target}" if name == "etcd" else f"{target}/"
            bring.run(["nice", str(go), "build", "-ldflags", flags, "-o", output, *packages], environment, cwd=source)
    return place


def main() -> int:
    """Bring them and print where they are."""
    try:
        found = binaries()
    except Stopped as error:
        say(str(error))
        return 1
    for program in ("etcd", *KUBERNETES):
        say(found.path(program))
    return 0


if __name__ == "__main__":
    sys.exit(main())
