"""Build the wheel and check that what a pip user gets is whole: every data file of the packages, the labextension, the command.

``python tools/check_wheel.py``; prints what is missing and exits 1.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gke_workspaces_spawner", "jupyter_pause_ext")
SOURCES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")
INSTALLED_DATA = (
    "data/share/jupyter/labextensions/@gke-workspaces/jupyterlab-pause/package.json",
    "data/etc/jupyter/jupyter_server_config.d/jupyter_pause_ext.json",
)
"""Where JupyterLab and Jupyter Server look, below the wheel's data folder."""


def files_of_the_packages() -> set[str]:
    """Every file that lies in the packages' folders, as the wheel should name it."""
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*") if file.is_file())
    return {str(file.relative_to(ROOT)) for file in files if "__pycache__" not in file.parts}


def build(folder: Path) -> zipfile.ZipFile:
    """The wheel, open; built from a copy, so that neither an old build folder gets into it nor a new one stays behind."""
    source = folder / "source"
    source.mkdir()
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in SOURCES:
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(source)], check=True)
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)


def main() -> int:
    """Number of complaints, at most 1."""
    with tempfile.TemporaryDirectory(prefix="gke-workspaces-wheel-") as folder, build(Path(folder)) as wheel:
        names = set(wheel.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/entry_points.txt")]
        entry_points = wheel.read(metadata).decode()
    complaints = [f"missing: {name}" for name in sorted(files_of_the_packages() - names)]
    complaints += [f"missing: {end}" for end in INSTALLED_DATA if not any(name.endswith(f".data/{end}") for name in names)]
    complaints += [f"does not belong there: {name}" for name in sorted(names) if name.startswith(("tests/", "docs/", "tools/"))]
    complaints += [] if "gke-workspaces = " in entry_points else ["the command gke-workspaces is missing"]
    print("\n".join(complaints) or f"the wheel is whole: {len(names)} files")
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
