"""A Kubernetes client that leads nowhere, for what only renders manifests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from kubernetes_asyncio.client import Configuration
from kubespawner import spawner


@contextlib.contextmanager
def no_cluster() -> Iterator[None]:
    """Within it KubeSpawner looks for no cluster, and finds none."""
    before = Configuration.get_default_copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spawner, "load_config", lambda **_settings: None)
        Configuration.set_default(Configuration(host="http://127.0.0.1:9"))
        try:
            yield
        finally:
            Configuration.set_default(before)
