"""Rules of the house that import-linter has no contract for."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gke_workspaces_spawner"
BACKPORTS = {"tomli"}
"""tomli is the standard library's tomllib for Python 3.10."""


def imported(file: Path) -> Iterator[str]:
    """Top-level names of the absolute imports of a file, wherever they stand in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("folder", ["lifecycle", "sandbox", "profiles"])
def test_only_the_standard_library_is_imported_by(folder: str):
    files = list((PACKAGE / folder).rglob("*.py"))
    assert files
    for file in files:
        foreign = set(imported(file)) - sys.stdlib_module_names - BACKPORTS - {PACKAGE.name}
        assert not foreign, f"{file.relative_to(ROOT)} imports {foreign}"


def test_the_lifecycle_does_no_input_or_output():
    reaching_out = {"os", "socket", "subprocess", "shutil", "pathlib", "http", "urllib", "sqlite3", "tempfile", "signal", "threading"}
    for file in (PACKAGE / "lifecycle").rglob("*.py"):
        assert not set(imported(file)) & reaching_out, file.relative_to(ROOT)


def test_the_locks_name_no_host_to_fetch_from():
    lock = (ROOT / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock
    for file in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "before", ["", "import gke_workspaces_spawner.configure; ", "from gke_workspaces_spawner.configure import configure; "]
)
def test_an_export_stays_itself_after_its_first_use_and_beside_a_module_of_its_name(before):
    code = "import gke_workspaces_spawner as package; first = package.configure; assert callable(first); assert package.configure is first"
    subprocess.run([sys.executable, "-c", before + code], check=True)
