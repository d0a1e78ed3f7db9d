"""A run in CI fails when a test did not run, or when something is left behind; on a developer's machine it does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SKIPPED = "import pytest\n@pytest.mark.skip(reason='no time')\ndef test_skipped(): pass\ndef test_good(): pass\n"
SKIPPED_AT_IMPORT = "import pytest\npytest.importorskip('a_module_that_is_not_there')\n"
EXPECTED_TO_FAIL = "import pytest\n@pytest.mark.xfail(reason='some day')\ndef test_bad(): assert False\n"
GOOD = "def test_good(): pass\n"
LEAVES_A_PROCESS = """
import pathlib, subprocess, sys
def test_leaves():
    command = [sys.executable, '-c', "import signal; print('up', flush=True); signal.pause()"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    child.stdout.readline()
    pathlib.Path(__file__).with_name('pid').write_text(str(child.pid))
"""


def run(folder: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(text)
    kept = {name: value for name, value in os.environ.items() if name not in {"CI", "GKE_WORKSPACES_NO_SKIPS", "GKE_WORKSPACES_TEST_RUN"}}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tests.conftest",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(folder),
            "-c",
            os.devnull,
            "test_it.py",
        ],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("switch", ["CI", "GKE_WORKSPACES_NO_SKIPS"])
@pytest.mark.parametrize("text", [SKIPPED, SKIPPED_AT_IMPORT, EXPECTED_TO_FAIL], ids=["skip", "skip at import", "xfail"])
def test_a_strict_run_fails_for_a_test_that_did_not_run(tmp_path: Path, text: str, switch: str):
    result = run(tmp_path, text, **{switch: "1"})
    assert result.returncode == 1, result.stdout
    assert "not run: test_it.py" in result.stdout


def test_a_developer_may_skip(tmp_path: Path):
    assert run(tmp_path, SKIPPED).returncode == 0


def test_a_strict_run_of_good_tests_passes(tmp_path: Path):
    result = run(tmp_path, GOOD, CI="1")
    assert result.returncode == 0, result.stdout


def test_a_strict_run_fails_for_a_process_left_behind(tmp_path: Path):
    result = run(tmp_path, LEAVES_A_PROCESS, CI="1", GKE_WORKSPACES_SETTLE_SECONDS="0")
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    assert result.returncode == 1, result.stdout
    assert f"left behind: processes: {pid} " in result.stdout
