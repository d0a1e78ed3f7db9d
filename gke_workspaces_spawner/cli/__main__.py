"""``python -m gke_workspaces_spawner.cli``: the same as the ``gke-workspaces`` command."""

from __future__ import annotations

import sys

from . import main

sys.exit(main())
