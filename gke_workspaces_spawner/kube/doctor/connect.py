"""A client of the API server for a command at a terminal: from a kubeconfig, or from within a pod."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.config.incluster_config import SERVICE_TOKEN_FILENAME

from ..client import Cluster
from .findings import one_line
from .seen import NoCluster

LOGIN_SECONDS = 30.0
"""Seconds for a log-in helper of a kubeconfig (gke-gcloud-auth-plugin)."""
CALL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Place:
    """Which cluster is looked at."""

    url: str
    namespace: str
    """The context's own, or the pod's."""


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path | None, context: str | None) -> AsyncIterator[tuple[Cluster, Place]]:
    """The cluster of a kubeconfig, else of the pod that we run in. Raises NoCluster where there is neither."""
    settings = Configuration()
    try:
        namespace = await asyncio.wait_for(_load(settings, kubeconfig, context), LOGIN_SECONDS)
    except asyncio.TimeoutError as error:
        raise NoCluster(f"The kubeconfig's log-in helper did not answer within {LOGIN_SECONDS:.0f} s: log in again.") from error
    except (config.ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise NoCluster(f"The kubeconfig cannot be used: {one_line(error)}. Name one with --kubeconfig and --context.") from error
    async with ApiClient(configuration=settings) as api:
        yield Cluster(api, CALL_SECONDS), Place(str(settings.host), namespace)


async def _load(settings: Configuration, kubeconfig: Path | None, context: str | None) -> str:
    """Fill the settings; the namespace that goes with them."""
    inside = kubeconfig is None and "KUBECONFIG" not in os.environ and not _there(Path.home() / ".kube" / "config")
    if inside and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        return _read(Path(SERVICE_TOKEN_FILENAME).with_name("namespace"))
    if inside:
        raise NoCluster(
            "There is no kubeconfig, and this is no pod: gcloud container clusters get-credentials CLUSTER, or --kubeconfig FILE."
        )
    if kubeconfig is not None and not _there(kubeconfig):
        raise NoCluster(f"There is no file {kubeconfig}: name a kubeconfig with --kubeconfig.")
    loader = await config.load_kube_config(
        config_file=None if kubeconfig is None else str(kubeconfig), context=context, client_configuration=settings, persist_config=False
    )
    current = loader.current_context or {}
    return str((current.get("context") or {}).get("namespace") or "default")


def _there(file: Path) -> bool:
    return file.is_file()


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip()
