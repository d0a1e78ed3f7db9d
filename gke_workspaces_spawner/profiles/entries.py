"""What can be chosen from a profile list, and what a choice says: the entry's ``gke`` and ``kubespawner_override``, and its options'.

A list is somebody's file: nothing in it is taken to have the right form, and what is not ours to judge is passed over.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

KEY = "gke"
OVERRIDE = "kubespawner_override"
MERGED = ("gpu", "tpu", "machine", "home", "image", "idle")
"""Keys of ``gke`` of which an option's choice may give a part; of the others it gives all."""
MOST = 256
"""Combinations of one profile's options that are looked at; beyond them each choice by itself."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing that a user can choose: a profile, and a choice for each of its options that matter here."""

    profile: int
    """Which entry of the list."""
    name: str
    """In words."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Option to choice."""
    gke: Any = None
    override: Mapping[str, Any] = field(default_factory=dict)
    is_default: bool = True
    """Whether it is what one gets who chooses the profile alone."""


def listed_profiles(profile_list: Any) -> list[Any]:
    """The list as KubeSpawner orders it; nothing for what is no list."""
    if isinstance(profile_list, Mapping):
        try:
            return [profile_list[key] for key in sorted(profile_list)]
        except TypeError:
            return list(profile_list.values())
    return list(profile_list) if isinstance(profile_list, (list, tuple)) else []


def has_ours(profile: Any) -> bool:
    """Whether a profile has a ``gke`` key, in itself or in a choice of an option."""
    if not isinstance(profile, Mapping):
        return False
    return _says(profile) or any(_says(choice) for choices in _options(profile).values() for choice in choices.values())


def choices(profile_list: Any) -> Iterator[Choice]:
    """Everything that can be chosen of the profiles that have a ``gke`` key; of each profile its defaults first."""
    for number, profile in enumerate(listed_profiles(profile_list)):
        if has_ours(profile):
            yield from _choices(number, profile)


def _choices(number: int, profile: Mapping[str, Any]) -> Iterator[Choice]:
    options = {
        name: choices
        for name, choices in _options(profile).items()
        if any(_says(choice) or (isinstance(choice, Mapping) and choice.get(OVERRIDE)) for choice in choices.values())
    }
    default = {name: default_choice(choices) for name, choices in options.items()}
    count = 1
    for of_one in options.values():
        count *= len(of_one)
    if count <= MOST:
        all_of_them = (dict(zip(options, names, strict=True)) for names in itertools.product(*options.values()))
    else:
        all_of_them = ({**default, name: choice} for name, of_one in options.items() for choice in of_one)
    yield _choice(number, profile, default, default)
    seen = [default]
    for chosen in all_of_them:
        if chosen not in seen:
            seen.append(chosen)
            yield _choice(number, profile, chosen, default)


def _choice(number: int, profile: Mapping[str, Any], chosen: Mapping[str, str], default: Mapping[str, str]) -> Choice:
    gke, override = said(profile, chosen)
    name = f"profile {str(profile.get('display_name') or profile.get('slug') or number + 1)!r}"
    words = [f"{option} {choice!r}" for option, choice in chosen.items() if choice != default[option]]
    return Choice(number, ", ".join([name, *words]), dict(chosen), gke, override, not words)


def said(profile: Mapping[str, Any], chosen: Mapping[str, str]) -> tuple[Any, dict[str, Any]]:
    """(``gke``, ``kubespawner_override``) of a profile with those choices, each over what stands before it."""
    gke, override = profile.get(KEY), _override(profile)
    for option, choices in _options(profile).items():
        choice = choices.get(chosen[option]) if option in chosen else None
        if isinstance(choice, Mapping):
            gke = _over(gke, choice.get(KEY))
            override = _merge(override, _override(choice))
    return gke, override


def chosen_of(profile: Mapping[str, Any], user_options: Mapping[str, Any]) -> dict[str, Any]:
    """The choices that a user's options name, the default where they name none."""
    found: dict[str, Any] = {}
    for option, choices in _options(profile).items():
        if user_options.get(f"{option}--unlisted-choice"):
            continue
        wanted = user_options.get(option)
        found[option] = wanted if isinstance(wanted, Hashable) and wanted in choices else default_choice(choices)
    return found


def unlisted_settings(profile: Mapping[str, Any], user_options: Mapping[str, Any]) -> list[str]:
    """Settings of KubeSpawner that get what the user has typed in place of a choice."""
    options, found = profile.get("profile_options"), []
    for name, option in options.items() if isinstance(options, Mapping) else ():
        unlisted = option.get("unlisted_choice") if isinstance(option, Mapping) else None
        if user_options.get(f"{name}--unlisted-choice") and isinstance(unlisted, Mapping):
            found += list(_override(unlisted))
    return found


def default_choice(choices: Mapping[str, Any]) -> str:
    """The choice that is marked as the default, else the first."""
    marked = (name for name, choice in choices.items() if isinstance(choice, Mapping) and choice.get("default"))
    return next(marked, next(iter(choices)))


def _says(node: Any) -> bool:
    return isinstance(node, Mapping) and KEY in node


def _options(profile: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Options that have choices."""
    options = profile.get("profile_options")
    if not isinstance(options, Mapping):
        return {}
    found = {name: option.get("choices") for name, option in options.items() if isinstance(option, Mapping)}
    return {name: choices for name, choices in found.items() if isinstance(choices, Mapping) and choices}


def _override(node: Mapping[str, Any]) -> dict[str, Any]:
    override = node.get(OVERRIDE)
    return dict(override) if isinstance(override, Mapping) else {}


def _over(below: Any, above: Any) -> Any:
    """A choice's ``gke`` over the profile's. None takes a key away."""
    if above is None:
        return below
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    found = dict(below)
    for key, value in above.items():
        before = found.pop(key, None)
        if key in MERGED and isinstance(before, Mapping) and isinstance(value, Mapping):
            value = {**before, **value}  # None there is as if it were not written
        if value is not None:
            found[key] = value
    return found


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """As KubeSpawner applies one override after the other, except that a key that is taken away stays as None: it may hit a global one."""
    found = dict(below)
    for key, value in above.items():
        before = found.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        found[key] = _merge(before, value) if both and before is not None else value
    return found
