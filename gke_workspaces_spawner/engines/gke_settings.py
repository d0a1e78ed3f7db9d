"""What the parts of the engine share: settings, and the cluster's errors in the lifecycle's words."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from ..kube.client import Object
from ..kube.errors import Forbidden, Invalid, KubeError, Lacking, NotFound, Unavailable
from ..kube.facts import LINEAGE
from ..lifecycle.reasons import Refused, TryLater

LOOK = 0.3
"""Seconds between two looks at something that is coming or going away."""
FORCE_AFTER = 20.0
"""Seconds after which a pod whose restore crashed, and which resists its deletion, is deleted without waiting for its node."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What an admin sets, and where the Hub's pods are."""

    namespace: str
    allow_unfrozen: bool = False
    grace: int = 1
    """Seconds between SIGTERM and SIGKILL of a pod that is removed; never 0, which would not wait for the node."""
    remove_seconds: float = 90.0
    finalizer_seconds: float = 300.0
    """Seconds to wait for a deleted PodSnapshot to be gone."""
    pause_seconds: float = 300.0


def lineage_of(each: Object) -> str:
    """The lineage that an object is of; empty for what is of none."""
    return str((each["metadata"].get("labels") or {}).get(LINEAGE) or "")


@contextlib.contextmanager
def in_our_words(code: str) -> Iterator[None]:
    """Turn the cluster's error into the lifecycle's: ``code`` is the reason where the same call would fail again."""
    try:
        yield
    except Unavailable as error:
        raise TryLater("cluster_unreachable", str(error), quota="exceeded quota" in error.message) from error
    except asyncio.TimeoutError as error:
        raise TryLater("cluster_unreachable", "no word from the API server yet") from error
    except Lacking as error:
        raise TryLater("cluster_unreachable", str(error)) from error
    except (Forbidden, Invalid, NotFound) as error:
        raise Refused(code, str(error)) from error
    except KubeError as error:
        raise TryLater("cluster_unreachable", str(error)) from error
