"""Choices of a profile's options: each over the profile, all combinations looked at, what nobody can start hidden."""

from __future__ import annotations

from typing import Any

import pytest

from gke_workspaces_spawner.profiles import Context, Report, State, built_in, check, chosen, for_groups, usable

HARDWARE = {"l4": {"gke": {"gpu": {"type": "l4"}}}, "v4": {"gke": {"tpu": {"type": "v4", "topology": "2x2x1"}}}}
CAPACITY = {"now": {"gke": {"capacity": "on-demand"}}, "flex": {"gke": {"capacity": "flex-start"}}}


def profile(name: str = "one", gke: Any = None, **options: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "display_name": name,
        "slug": name,
        "profile_options": {key: {"choices": value} for key, value in options.items()},
    }
    return made if gke is None else {**made, "gke": gke}


def look(*profiles: Any) -> Report:
    return check(list(profiles), built_in(), Context({}))


def test_a_list_without_our_key_is_kubespawners_own_affair() -> None:
    odd = [{"display_name": "a", "kubespawner_override": {"memLimit": 1}}, None, 3, {"profile_options": []}]
    assert look(*odd) == Report()
    assert check(None, built_in(), Context({})) == Report()
    assert check({"b": profile("b"), "a": odd[0]}, built_in(), Context({})) == Report()


def test_every_combination_is_looked_at_with_the_defaults_first() -> None:
    rows = look(profile(hardware=HARDWARE, capacity=CAPACITY)).rows
    assert [row.name for row in rows] == ["profile 'one'", "profile 'one', capacity 'flex'", "profile 'one', hardware 'v4'"]


def test_a_choice_is_over_the_profile_key_by_key_and_the_parts_of_hardware_with_it() -> None:
    counts = {"one": {"gke": {"gpu": {"count": 1}}}, "four": {"gke": {"gpu": {"count": 4}, "capacity": None}}}
    rows = look(profile(gke={"gpu": {"type": "l4", "count": 2}, "capacity": "spot"}, count=counts)).rows
    assert [row.accelerator for row in rows] == ["L4 24 GB", "4 x L4 24 GB"]
    assert ["gke-spot" in str(row.traits["node_selector"]) for row in rows] == [True, False]


def test_a_capacity_of_a_choice_replaces_the_profiles() -> None:
    flex = {"gke": {"capacity": {"flex-start": {"max_run": 3600}}, "home": {"size": None}}}
    one = profile(gke={"gpu": {"type": "l4"}, "capacity": {"reservation": "team"}, "home": {"size": "1Gi"}}, how={"team": {}, "flex": flex})
    first, second = look(one).rows
    assert (first.capacity, second.capacity) == ("reserved (team)", "flex-start: waits for a machine, ends after 60 min")
    assert ("storage_capacity" in first.traits, "storage_capacity" in second.traits) == (True, False)


def test_a_choice_marked_as_default_is_the_default() -> None:
    marked = {"l4": HARDWARE["l4"], "v4": {**HARDWARE["v4"], "default": True}}
    assert [row.accelerator for row in look(profile(hardware=marked)).rows] == ["TPU v4 2x2x1: 4 chips", "L4 24 GB"]


def test_choices_that_do_not_go_together_are_told_and_both_stay() -> None:
    report = look(profile(hardware=HARDWARE, capacity=CAPACITY))
    (one,) = report.findings
    assert one.state is State.WARNING
    assert one.entry == "profile 'one', hardware 'v4', capacity 'flex'"
    assert one.what.startswith("These do not go together")
    assert not report.hidden


def test_a_choice_that_goes_with_nothing_is_refused_and_hidden_alone() -> None:
    bad = {**HARDWARE, "l5": {"gke": {"gpu": {"type": "l5"}}}}
    one = profile(hardware=bad, capacity=CAPACITY)
    report = look(one)
    assert [(each.entry, each.key) for each in report.refusals] == [("profile 'one', hardware 'l5'", "gke.gpu.type")]
    assert report.hidden == ((0, "hardware", "l5"),)
    (left,) = usable([one], report)
    assert list(left["profile_options"]["hardware"]["choices"]) == ["l4", "v4"]
    assert list(one["profile_options"]["hardware"]["choices"]) == ["l4", "v4", "l5"], "what comes in is never changed"


def test_a_profile_whose_defaults_cannot_start_is_hidden_and_the_others_are_not() -> None:
    good, bad, plain = profile("good", gke={}), profile("bad", gke={"gpu": {"type": "l5"}}), profile("plain")
    report = look(bad, good, plain)
    assert usable([bad, good, plain], report) == [good, plain]


def test_what_is_wrong_with_a_profile_is_said_once_and_not_for_each_choice() -> None:
    assert len(look(profile(gke={"gpu": {"type": "l4"}, "zones": "a"}, capacity=CAPACITY)).findings) == 1


def test_many_options_are_looked_at_one_by_one() -> None:
    options = {f"o{number}": {str(each): {"gke": {"priority_class": f"p{each}"}} for each in range(4)} for number in range(5)}
    assert len(look(profile(**options)).rows) == 1 + 5 * 3


def test_a_key_where_it_does_nothing_is_refused() -> None:
    misplaced = profile(gke={}, hardware=HARDWARE)
    misplaced["profile_options"]["hardware"] |= {"gke": {}, "unlisted_choice": {"enabled": True, "gke": {}}}
    assert {one.key for one in look(misplaced).refusals} == {"gke", "unlisted_choice.gke"}


@pytest.mark.parametrize(
    ("options", "accelerator"),
    [({}, "l4"), ({"hardware": "v4"}, "v4"), ({"hardware": "none"}, "l4"), ({"hardware": ["v4"]}, "l4")],
)
def test_what_a_user_has_chosen_is_what_is_read(options: dict[str, Any], accelerator: str) -> None:
    found = chosen(profile(hardware=HARDWARE), options, built_in(), Context({}))
    assert found is not None
    assert (found.settings.gpu or found.settings.tpu).type == accelerator
    assert not found.refusals


def test_a_plain_profile_is_not_ours() -> None:
    assert chosen(profile(size={"a": {"kubespawner_override": {}}}), {}, built_in(), Context({})) is None


def test_profiles_and_choices_are_for_their_groups() -> None:
    team = profile("team", gke={"groups": ["team", "lab"]})
    choice = profile("choice", hardware={"l4": HARDWARE["l4"], "v4": {"gke": {**HARDWARE["v4"]["gke"], "groups": ["lab"]}}})
    only = profile("only", hardware={"v4": {"gke": {"groups": ["lab"]}}})
    every = [team, choice, only, profile("plain")]
    assert for_groups(every, {"lab"}) == every
    assert [each["slug"] for each in for_groups(every, {"team"})] == ["team", "choice", "plain"]
    left = for_groups(every, set())
    assert [each["slug"] for each in left] == ["choice", "plain"]
    assert list(left[0]["profile_options"]["hardware"]["choices"]) == ["l4"]
    assert for_groups([profile(gke={"groups": "team"})], {"team", "t"}) == [], "a wrong list of groups lets nobody in"
