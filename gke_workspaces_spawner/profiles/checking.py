"""A whole profile list: what each choice becomes, everything that is wrong, and what nobody can start.

A choice of an option that goes with no choice of the others is wrong; one that goes with some is told (a start with the others is refused).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .catalogue import Catalogue
from .entries import Choice, choices, chosen_of, has_ours, listed_profiles, said, unlisted_settings
from .findings import Finding, State
from .rules import Context
from .schema import Settings, parse
from .validation import validate
from .validation_home import shared_homes
from .words import Row, row


@dataclass(frozen=True, slots=True)
class Report:
    """What is known of a profile list."""

    rows: tuple[Row, ...] = ()
    findings: tuple[Finding, ...] = ()
    hidden: tuple[tuple[int, str, str], ...] = ()
    """(profile, option, choice) that cannot be started; option and choice are empty for a whole profile."""

    @property
    def refusals(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.state is State.REFUSED)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.state is State.WARNING)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a user has chosen, read."""

    choice: Choice
    settings: Settings
    findings: tuple[Finding, ...]

    @property
    def refusals(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.state is State.REFUSED)


def check(profile_list: Any, catalogue: Catalogue, context: Context) -> Report:
    """All findings over the profiles that have a ``gke`` key; the others are KubeSpawner's own affair."""
    looked = [_look(choice, catalogue, context) for choice in choices(profile_list)]
    findings: list[Finding] = []
    hidden: list[tuple[int, str, str]] = []
    for number in dict.fromkeys(one.choice.profile for one in looked):
        of_one = [one for one in looked if one.choice.profile == number]
        hidden += _hidden(number, of_one)
        findings += _once(of_one)
    good = [one for one in looked if not one.refusals]
    findings += shared_homes([(one.choice, one.settings) for one in good], catalogue, context)
    findings += _misplaced(profile_list)
    rows = tuple(row(one.choice, one.settings, catalogue, context) for one in good)
    return Report(rows, tuple(findings), tuple(hidden))


def chosen(profile: Mapping[str, Any], user_options: Mapping[str, Any], catalogue: Catalogue, context: Context) -> Chosen | None:
    """What a start of that profile with those options is; None for a profile without a ``gke`` key."""
    if not has_ours(profile):
        return None
    options = chosen_of(profile, user_options)
    gke, override = said(profile, options)
    override |= dict.fromkeys(unlisted_settings(profile, user_options), _as_typed)
    words = [
        f"profile {str(profile.get('display_name') or profile.get('slug'))!r}",
        *(f"{name} {each!r}" for name, each in options.items()),
    ]
    return _look(Choice(0, ", ".join(words), options, gke, override), catalogue, context)


def _as_typed() -> None:
    """Stands for what a user types, as a function stands for what only the hub can tell: it is looked at once it is set."""


def usable(profile_list: Any, report: Report) -> list[Any]:
    """The list without what nobody can start; profiles are copied where something of them goes, and never changed."""
    kept = []
    for number, profile in enumerate(listed_profiles(profile_list)):
        gone = [(option, choice) for profile_number, option, choice in report.hidden if profile_number == number]
        if ("", "") in gone:
            continue
        for option, choice in gone:
            of_all = profile["profile_options"]
            left = {name: each for name, each in of_all[option]["choices"].items() if name != choice}
            profile = {**profile, "profile_options": {**of_all, option: {**of_all[option], "choices": left}}}
        kept.append(profile)
    return kept


def for_groups(profile_list: list[Any], groups: Collection[str]) -> list[Any]:
    """The list without what is for other groups; profiles are copied where something of them goes."""
    kept = []
    for profile in profile_list:
        if not _is_for(profile, groups):
            continue
        options = profile.get("profile_options") if isinstance(profile, Mapping) else None
        for name, option in list(options.items()) if isinstance(options, Mapping) else ():
            of_all = option.get("choices") if isinstance(option, Mapping) else None
            if not isinstance(of_all, Mapping) or all(_is_for(choice, groups) for choice in of_all.values()):
                continue
            left = {key: choice for key, choice in of_all.items() if _is_for(choice, groups)}
            profile = {**profile, "profile_options": {**profile["profile_options"], name: {**option, "choices": left}}}
            if not left:
                break
        else:
            kept.append(profile)
    return kept


def _is_for(node: Any, groups: Collection[str]) -> bool:
    gke = node.get("gke") if isinstance(node, Mapping) else None
    wanted = gke.get("groups") if isinstance(gke, Mapping) else None
    return wanted is None or (isinstance(wanted, (list, tuple)) and any(group in groups for group in wanted))


def _look(choice: Choice, catalogue: Catalogue, context: Context) -> Chosen:
    settings, found = parse(choice.name, choice.gke)
    return Chosen(choice, settings, (*found, *validate(choice, settings, catalogue, context)))


def _goes_with_something(option: str, choice: str, looked: list[Chosen]) -> bool:
    return any(not one.refusals for one in looked if one.choice.options.get(option) == choice)


def _hidden(number: int, looked: list[Chosen]) -> list[tuple[int, str, str]]:
    if looked[0].refusals:  # its defaults
        return [(number, "", "")]
    pairs = dict.fromkeys(pair for one in looked for pair in one.choice.options.items())
    return [(number, *pair) for pair in pairs if not _goes_with_something(*pair, looked)]


def _once(looked: list[Chosen]) -> list[Finding]:
    """Findings of one profile, each at the first choice that has it; a combination that has to be avoided is a warning."""
    seen: set[tuple[str, str, State]] = set()
    found = []
    for one in looked:
        alone = [pair for pair in one.choice.options.items() if not _goes_with_something(*pair, looked)]
        avoided = not one.choice.is_default and not alone and bool(one.refusals)
        for finding in one.findings:
            mark = (finding.key, finding.what, finding.state)
            if mark in seen:
                continue
            if not avoided:
                seen.add(mark)
            elif finding.state is State.REFUSED:
                finding = replace(finding.warning(), what=f"These do not go together, and a start with them is refused. {finding.what}")
            found.append(finding)
    return found


def _misplaced(profile_list: Any) -> list[Finding]:
    """A ``gke`` key where it does nothing."""
    found = []
    for number, profile in enumerate(listed_profiles(profile_list)):
        options = profile.get("profile_options") if isinstance(profile, Mapping) else None
        for name, option in options.items() if isinstance(options, Mapping) else ():
            entry = f"profile {str(profile.get('display_name') or number + 1)!r}, {name}"
            if isinstance(option, Mapping) and "gke" in option:
                found.append(
                    Finding(entry, "gke", "It does nothing there.", "Write it into the profile, or into one of the option's choices.")
                )
            unlisted = option.get("unlisted_choice") if isinstance(option, Mapping) else None
            if isinstance(unlisted, Mapping) and "gke" in unlisted:
                found.append(Finding(entry, "unlisted_choice.gke", "It does nothing there.", "Write it into the profile."))
    return found
