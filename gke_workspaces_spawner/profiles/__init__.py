"""Profiles: what an admin writes under ``gke`` in ``profile_list``, checked, and made into settings of KubeSpawner.

A leaf: knows neither JupyterHub nor Kubernetes. What is known of Google Cloud's hardware lies in the data files beside the modules.
"""

from __future__ import annotations

from .catalogue import Catalogue, built_in, catalogue_with
from .checking import Chosen, Report, check, chosen, for_groups, usable
from .entries import has_ours
from .findings import Finding, State
from .mapping import ADDED, additions, kubespawner_traits
from .rules import Context, memory_limit, why_not_pausable
from .validation_pod import approved
from .words import Row, wait

__all__ = [
    "ADDED",
    "Catalogue",
    "Chosen",
    "Context",
    "Finding",
    "Report",
    "Row",
    "State",
    "additions",
    "approved",
    "built_in",
    "catalogue_with",
    "check",
    "chosen",
    "for_groups",
    "has_ours",
    "kubespawner_traits",
    "memory_limit",
    "usable",
    "wait",
    "why_not_pausable",
]
