"""The extension loads in any Jupyter server, quickly, and takes its secret out of the environment."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_pause_ext
from jupyter_pause_ext.extension import SECRET_ENV

from .ext_server import SECRET, in_its_own_home

ROOT = Path(jupyter_pause_ext.__file__).parent

LOAD = """
import asyncio, json, os, sys, time
from jupyter_server.serverapp import ServerApp

async def main():
    app = ServerApp(allow_root=True, open_browser=False, port=0, port_retries=0)
    app.initialize(argv=[], find_extensions=False, new_httpserver=False)
    before = set(sys.modules)
    start = time.process_time()
    import jupyter_pause_ext
    jupyter_pause_ext._load_jupyter_server_extension(app)
    seconds = time.process_time() - start
    ext = app.web_app.settings["jupyter_pause"]
    print(json.dumps({"seconds": seconds, "secret": "GKE_WORKSPACES_GUEST_SECRET" in os.environ, "verifier": ext.verifier is not None,
                      "available": ext.available, "new": sorted(set(sys.modules) - before)}))
    ext.close()

asyncio.run(main())
"""


def load() -> dict[str, object]:
    said = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, object] = json.loads(said.stdout.splitlines()[-1])
    return found


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_its_own_home(tmp_path, monkeypatch)


def test_the_secret_is_taken_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_ENV, SECRET)
    found = load()
    assert (found["secret"], found["verifier"], found["available"]) == (False, True, False)


@pytest.mark.parametrize("text", ["", "short"])
def test_a_server_without_a_usable_secret_loads_all_the_same(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(SECRET_ENV, text)
    found = load()
    assert (found["secret"], found["verifier"]) == (False, False)


def test_loading_takes_less_than_a_tenth_of_a_second() -> None:
    """Import and load beyond the server's own; in processor time, since others use this machine as well."""
    assert float(str(load()["seconds"])) <= 0.1


def test_the_labextension_is_small() -> None:
    """Everything that a browser may fetch of it, as it is sent."""
    scripts = list((ROOT / "labextension" / "static").iterdir())
    assert any(script.name.startswith("remoteEntry.") for script in scripts)
    assert sum(len(gzip.compress(script.read_bytes())) for script in scripts) <= 60_000


def test_importing_the_package_brings_nothing_with_it() -> None:
    code = "import sys; before = set(sys.modules); import jupyter_pause_ext; print(sorted(set(sys.modules) - before))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "jupyter_server" not in said
    assert "tornado" not in said


def test_the_enabling_file_names_this_extension() -> None:
    enabled = json.loads((ROOT / "jupyter-config/jupyter_server_config.d/jupyter_pause_ext.json").read_text())
    assert enabled == {"ServerApp": {"jpserver_extensions": {"jupyter_pause_ext": True}}}
    assert jupyter_pause_ext._jupyter_server_extension_points() == [{"module": "jupyter_pause_ext"}]
    assert jupyter_pause_ext._jupyter_labextension_paths() == [{"src": "labextension", "dest": "@gke-workspaces/jupyterlab-pause"}]
    assert SECRET_ENV not in os.environ
