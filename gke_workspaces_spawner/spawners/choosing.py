"""The ``gke`` key of profiles, in KubeSpawner: checked at the Hub's start, hidden where it is wrong, made into settings at a start.

A list without such a key goes through untouched. What a profile has set is put back before the next start.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, ClassVar

from traitlets import Bool, Dict, HasTraits

from .. import profiles
from ..lifecycle.reasons import Refused

OF_THE_HUB = (
    *("mem_limit", "mem_guarantee", "cpu_limit", "cpu_guarantee", "image", "pausable", "start_timeout"),
    *("storage_class", "storage_pvc_ensure", "pvc_name_template", "volumes"),
)
"""Settings that the checks look at, as they are without a profile."""
REPORTS = 64
"""Checked profile lists that are kept: a function may give each user another one."""


class ChoosingMixin(HasTraits):
    """Mixed in before KubeSpawner."""

    strict_profiles = Bool(
        True,
        help="""
        Whether a wrong `gke` key in `profile_list` stops the Hub at its start, with all that is wrong.

        Otherwise, and always where `profile_list` is a function, what is wrong is hidden from users, with a warning in the Hub's log.
        """,
    ).tag(config=True)
    catalogue = Dict(
        help="""
        What you know of Google Cloud beyond the built-in tables, by table (`gpus`, `tpus`, `machines`, `disks`, `capacities`) and row.

        A row of a known name changes the fields that it gives; `{"disks": {"fast": {"disk": "hyperdisk"}}}` tells of a storage class.
        """,
    ).tag(config=True)

    log: Any
    _reports: ClassVar[OrderedDict[str, profiles.Report]] = OrderedDict()
    """Of all spawners, by digest of list and settings."""
    _profile_blocker: str | None = None
    """Why this choice's hardware speaks against pausing."""
    _bad_choice: ValueError | None = None
    _all_hidden = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._of_the_hub = {name: copy.deepcopy(getattr(self, name)) for name in OF_THE_HUB}
        self._before_profile: dict[str, Any] = {}
        self._catalogue, self._catalogue_findings = profiles.catalogue_with(self.catalogue) if self.catalogue else (profiles.built_in(), ())

    @property
    def _profile_context(self) -> profiles.Context:
        return profiles.Context(self._of_the_hub, frozenset(self.trait_names()))

    def _profile_report(self, profile_list: Any) -> profiles.Report:
        """What is wrong with a list, looked at once; its warnings are in the log once."""
        text = json.dumps([profile_list, self._of_the_hub, self.catalogue], default=_name, skipkeys=True)
        key = hashlib.sha256(text.encode()).hexdigest()
        report = self._reports.get(key)
        if report is None:
            report = self._reports[key] = profiles.check(profile_list, self._catalogue, self._profile_context)
            for finding in report.findings:
                tail = " Nobody can choose it." if finding.state is profiles.State.REFUSED else ""
                self.log.warning("profile_list: %s%s", finding.sentence, tail)
        self._reports.move_to_end(key)
        while len(self._reports) > REPORTS:
            self._reports.popitem(last=False)
        return report

    def check_profiles(self) -> None:
        """At the Hub's start: raises SystemExit, all findings said, where a static list is wrong and profiles are strict."""
        static: Any = self._sorted_dict_values(self.profile_list)  # type: ignore[attr-defined]
        report = profiles.Report() if callable(static) else self._profile_report(static)
        for finding in self._catalogue_findings:
            self.log.error("%s", finding.sentence)
        wrong = [*self._catalogue_findings, *report.refusals]
        if self.strict_profiles and wrong:
            said = "".join(f"\n  - {finding.sentence}" for finding in wrong)
            raise SystemExit(f"profile_list has faults, {len(wrong)} in all (c.GKEWorkspaceSpawner.strict_profiles):{said}")

    # ------------------------------------------------------------ what a user may choose

    def _get_initialized_profile_list(self, profile_list: Any) -> Any:
        self._all_hidden = False
        if isinstance(profile_list, (list, tuple)) and any(profiles.has_ours(profile) for profile in profile_list):
            profile_list = profiles.usable(profile_list, self._profile_report(list(profile_list)))
            groups = getattr(getattr(self, "user", None), "groups", None)
            if groups is not None:
                profile_list = profiles.for_groups(profile_list, {group.name for group in groups})
            self._all_hidden = not profile_list
        return super()._get_initialized_profile_list(profile_list)  # type: ignore[misc]

    def _validate_user_options(self, profile_list: Any) -> None:
        """KubeSpawner's, which does not look whether a choice is one of its option's."""
        try:
            if self._all_hidden:  # a server of no profile is not what anybody was offered
                raise ValueError("Nothing of the list of profiles can be started by you.")
            super()._validate_user_options(profile_list)  # type: ignore[misc]
            self._look_at_choices(profile_list)
        except ValueError as error:
            self._bad_choice = error
            raise

    def _look_at_choices(self, profile_list: Any) -> None:
        slug = (self.user_options or {}).get("profile")  # type: ignore[attr-defined]
        if not slug:
            return
        for name, option in (self._get_profile(slug, profile_list).get("profile_options") or {}).items():  # type: ignore[attr-defined]
            choice, choices = self.user_options.get(name), option.get("choices") or {}  # type: ignore[attr-defined]
            if self.user_options.get(f"{name}--unlisted-choice") or not choice:  # type: ignore[attr-defined]
                continue
            if not isinstance(choice, Hashable) or choice not in choices:
                raise ValueError(f"No such choice of {name}: {choice}. Options include: {', '.join(map(str, choices))}")

    async def load_choice(self) -> None:
        """``load_user_options``; what a user has chosen wrongly is the user's to mend. Raises Refused."""
        try:
            await self.load_user_options()  # type: ignore[attr-defined]
        except ValueError as error:
            if error is not self._bad_choice:
                raise
            raise Refused("choice_refused", str(error)) from error

    # ------------------------------------------------------------ what a choice sets

    def clear_state(self) -> None:
        """The Hub calls it before each start and after each stop: before hooks of the deployment change settings for the next one."""
        super().clear_state()  # type: ignore[misc]
        for name, value in self._before_profile.items():
            setattr(self, name, value)
        self._before_profile = {}
        self._profile_blocker = None

    def _load_profile(self, slug: str | None, profile_list: list[Any]) -> None:
        profile = self._get_profile(slug, profile_list)  # type: ignore[attr-defined]
        found = profiles.chosen(profile, self.user_options or {}, self._catalogue, self._profile_context)  # type: ignore[attr-defined]
        if found is None:
            super()._load_profile(slug, profile_list)  # type: ignore[misc]
            return
        if found.refusals:
            self._refuse_choice(" ".join(finding.sentence for finding in found.refusals))
        ours = profiles.kubespawner_traits(found.settings, self._catalogue, profiles.memory_limit(found.choice, self._profile_context))
        for name in (*ours, *found.choice.override, *profiles.ADDED):
            if self.has_trait(name) and name != "start_timeout":
                value = getattr(self, name)
                self._before_profile.setdefault(name, copy.deepcopy(value) if isinstance(value, (dict, list)) else value)
        tolerations = self._before_profile["tolerations"]
        self._apply_overrides({name: value for name, value in ours.items() if name not in profiles.ADDED})  # type: ignore[attr-defined]
        super()._load_profile(slug, profile_list)  # type: ignore[misc]
        there = {name: getattr(self, name) for name in profiles.ADDED}
        for name, value in profiles.additions(ours, there, tolerations).items():
            setattr(self, name, value)
        self._profile_blocker = profiles.why_not_pausable(found.settings, self._catalogue)
        if not profiles.approved(self.image, found.settings):  # type: ignore[attr-defined]
            self._refuse_choice(f"The image {self.image} is not approved for {found.choice.name}.")  # type: ignore[attr-defined]

    def _refuse_choice(self, sentence: str) -> None:
        self._bad_choice = ValueError(sentence)
        raise self._bad_choice

    def time_for_the_machine(self) -> None:
        """The Hub reads ``start_timeout`` before options are loaded; a list that is a function has told nothing by then."""
        static: Any = self._sorted_dict_values(self.profile_list)  # type: ignore[attr-defined]
        if callable(static) or not any(map(profiles.has_ours, static or ())):
            return
        try:
            offered = self._get_initialized_profile_list(static)
            profile = self._get_profile((self.user_options or {}).get("profile"), offered)  # type: ignore[attr-defined]
        except (ValueError, StopIteration):
            return  # told when the options are loaded
        found = profiles.chosen(profile, self.user_options or {}, self._catalogue, self._profile_context)  # type: ignore[attr-defined]
        if found is None or found.refusals:
            self.start_timeout = self._of_the_hub["start_timeout"]
        else:
            self.start_timeout = profiles.wait(found.choice, found.settings, self._catalogue, self._profile_context)


def _name(value: Any) -> str:
    """A function of a profile list, for the digest: lists that are made anew for each user are mostly the same."""
    return str(getattr(value, "__qualname__", None) or repr(value))
