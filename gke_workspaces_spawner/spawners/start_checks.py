"""At the Hub's start: would the API server take the pods that the configuration makes? A typo is found by the admin, not by a user.

KubeSpawner accepts a misspelt setting of a profile without a word, and an API server takes a misspelt field of a pod with a warning that
nobody sees; pods of servers that can be paused are created strictly, so for them a typo would be an error at each start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..kube.client import POD, Cluster, Object
from ..kube.errors import Invalid, KubeError

Render = Callable[[Mapping[str, str]], Any]
"""The pausable pod (None for a server that would not be pausable) with those user options; awaitable."""


def options_of(profile_list: list[Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """What a user may choose, with words for it: each profile, and each choice of each of its options by itself."""
    if not profile_list:
        yield "the settings", {}
    for profile in profile_list:
        slug, name = profile["slug"], f"profile {profile['display_name']!r}"
        yield name, {"profile": slug}
        for option, settings in (profile.get("profile_options") or {}).items():
            for choice in settings.get("choices") or ():
                yield f"{name}, {option} {choice!r}", {"profile": slug, option: choice}


def unknown_settings(profile_list: list[Any], known: Callable[[str], bool]) -> Iterator[str]:
    """Overrides that no setting has that name of, which therefore do nothing."""
    for profile in profile_list:
        overrides = [(f"profile {profile['display_name']!r}", profile.get("kubespawner_override"))]
        for option, settings in (profile.get("profile_options") or {}).items():
            for choice, of_choice in (settings.get("choices") or {}).items():
                where = f"profile {profile['display_name']!r}, {option} {choice!r}"
                overrides.append((where, of_choice.get("kubespawner_override") if isinstance(of_choice, dict) else None))
        for where, override in overrides:
            for name in override or ():
                if not known(name):
                    yield f"{where}: kubespawner_override has {name!r}, which is no setting of KubeSpawner and does nothing"


async def check_pods(cluster: Cluster, namespace: str, profile_list: list[Any], render: Render, log: logging.Logger) -> None:
    """Ask the API server about each pod without creating it; what it says against one is an error in the log."""
    said: set[str] = set()
    for words, options in options_of(profile_list):
        try:
            pod: Object | None = await render(options)
        except Exception as error:  # noqa: BLE001 - whatever the configuration makes of it: at a start it would be a user's error
            log.error("A start with %s will fail: %r", words, error)
            continue
        if pod is None:
            continue
        try:
            await cluster.create(POD, namespace, pod, dry_run=True)
        except Invalid as error:
            if error.message not in said:
                said.add(error.message)
                log.error("A start with %s will be refused: %s", words, error.message)
        except KubeError as error:
            log.warning("The pods of the configuration could not be checked: %s", error)
            return
