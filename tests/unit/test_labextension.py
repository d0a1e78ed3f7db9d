"""What the labextension asks of the JupyterLab that loads it."""

from __future__ import annotations

import json
import re

from tests.conftest import ROOT

IMPORT = re.compile(r"^import (?!type )[^;]*?from '([^.'][^']*)'", re.MULTILINE)


def test_every_jupyterlab_that_the_package_names_loads_it_without_a_warning() -> None:
    """Without a word on it the build asks for the JupyterLab that it was built with, and an older one complains in the console."""
    package = json.loads((ROOT / "package.json").read_text())
    taken = {name for path in (ROOT / "labextension" / "src").iterdir() for name in IMPORT.findall(path.read_text())}
    asked = {name: shared["requiredVersion"] for name, shared in package["jupyterlab"]["sharedPackages"].items()}
    assert asked == {name: package["dependencies"][name] for name in taken}
