"""Write requirements/ci.txt and requirements/ci-hub5.txt: the versions that CI installs, for JupyterHub 6 and 5.

Installs the package with its extras into a fresh environment each time and writes down what came; run it as ``make lock``, look
at the difference, run ``make test``, commit. The files name packages and versions only; where they come from is the machine's
own configuration.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {"ci.txt": ["jupyterhub>=6,<7"], "ci-hub5.txt": ["jupyterhub>=5,<6"]}
INSTALLERS = ("pip", "setuptools", "wheel")


def versions(wanted: list[str]) -> list[str]:
    """``name==version`` of everything that an installation with these requirements brings, sorted."""
    with tempfile.TemporaryDirectory(prefix="gke-workspaces-lock-") as folder:
        venv.create(folder, with_pip=True)
        pip = [str(Path(folder) / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", "--upgrade", "pip", "setuptools>=70"], check=True)
        subprocess.run([*pip, "install", "--quiet", "--editable", f"{ROOT}[hub,local,test]", *wanted], check=True)
        frozen = subprocess.run([*pip, "freeze", "--exclude-editable"], check=True, capture_output=True, text=True).stdout
    lines = [line for line in frozen.splitlines() if "==" in line and line.split("==")[0] not in INSTALLERS]
    return sorted(lines, key=str.lower)


def main() -> None:
    """Write both files."""
    folder = ROOT / "requirements"
    folder.mkdir(exist_ok=True)
    for name, wanted in LOCKS.items():
        print(f"resolving {name} with Python {sys.version_info.major}.{sys.version_info.minor} ...", flush=True)
        (folder / name).write_text("\n".join(["# Made by `make lock`.", *versions(wanted), ""]))


if __name__ == "__main__":
    main()
