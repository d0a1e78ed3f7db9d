"""A record outlives the program that wrote it: old ones are read for ever, hostile ones are set aside, none breaks the Hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gke_workspaces_spawner.lifecycle.model import (
    RECORD_LIMIT,
    Attempt,
    Clocks,
    Identity,
    Intent,
    KernelProcess,
    Key,
    Owner,
    Pause,
    SnapshotManifest,
    SnapshotRef,
    SnapshotState,
    Workspace,
    from_json,
    manifest_from_json,
    manifest_to_json,
    to_json,
)
from gke_workspaces_spawner.lifecycle.phases import Phase
from gke_workspaces_spawner.lifecycle.reasons import Broken

RECORDS = Path(__file__).parents[1] / "records" / "v1"
WORKSPACES = sorted(RECORDS.glob("workspace-*.json"))

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
integers = st.integers(-(2**62), 2**62)
plain = st.recursive(
    st.none() | st.booleans() | integers | numbers | texts, lambda c: st.lists(c, max_size=3) | st.dictionaries(texts, c, max_size=3)
)
objects = st.dictionaries(texts, plain, max_size=4)
kernels = st.builds(KernelProcess, texts, integers, numbers, texts)
identities = st.builds(Identity, texts, integers, st.lists(kernels, max_size=3).map(tuple))
clocks = st.builds(Clocks, **{name: st.none() | numbers for name in Clocks.__dataclass_fields__})
snapshots = st.builds(
    SnapshotRef, texts, texts, st.sampled_from(SnapshotState), integers, numbers, st.none() | numbers, st.none() | texts, texts
)
pauses = st.builds(
    Pause,
    texts,
    clocks,
    st.none() | identities,
    st.none() | st.builds(Attempt, texts, numbers, st.none() | texts),
    st.none() | texts,
    texts,
    st.none() | texts,
    st.none() | objects,
    st.none() | objects,
)
owners = st.builds(Owner, integers, texts)
keys = st.builds(Key, texts, texts)
workspaces = st.builds(
    Workspace,
    keys,
    owners,
    st.sampled_from(Phase),
    integers,
    st.sampled_from(Intent),
    pauses,
    st.lists(snapshots, max_size=3).map(tuple),
    numbers,
)
manifests = st.builds(
    SnapshotManifest,
    texts,
    texts,
    keys,
    owners,
    texts,
    numbers,
    integers,
    objects,
    st.lists(objects, max_size=3).map(tuple),
    st.none() | identities,
)


@pytest.mark.parametrize("path", WORKSPACES, ids=lambda p: p.stem)
def test_records_of_version_1_are_read_for_ever(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    workspace = from_json(data)
    assert workspace.phase.value in path.stem
    assert to_json(workspace) == data
    assert from_json(path.read_bytes()) == workspace


def test_a_record_of_every_phase_is_kept_as_an_example() -> None:
    assert {p.stem.split("-")[1] for p in WORKSPACES} == {phase.value for phase in Phase}


def test_manifests_of_version_1_are_read_for_ever() -> None:
    data = json.loads((RECORDS / "manifest.json").read_text(encoding="utf-8"))
    manifest = manifest_from_json(data)
    assert manifest.open_files
    assert manifest.launch
    assert manifest.identity
    assert manifest_to_json(manifest) == data


@given(workspaces)
@settings(max_examples=30)
def test_a_workspace_comes_back_from_its_json(workspace: Workspace) -> None:
    assert from_json(json.loads(json.dumps(to_json(workspace)))) == workspace


@given(manifests)
@settings(max_examples=30)
def test_a_manifest_comes_back_from_its_json(manifest: SnapshotManifest) -> None:
    assert manifest_from_json(json.dumps(manifest_to_json(manifest))) == manifest


@given(workspaces, st.dictionaries(texts.map(lambda t: f"new_{t}"), plain, max_size=3))
@settings(max_examples=30)
def test_fields_of_a_later_version_are_ignored(workspace: Workspace, extra: dict[str, Any]) -> None:
    data = to_json(workspace)
    data.update(extra)
    data["pause"].update(extra)
    data["owner"].update(extra)
    assert from_json(data) == workspace


def test_missing_fields_take_their_default() -> None:
    workspace = from_json({"version": 1, "key": {"user": "ann"}, "owner": {"user_id": 1, "lineage": "x"}})
    assert workspace == Workspace(Key("ann"), Owner(1, "x"))


def unreadable(read: Callable[[Any], Any], value: Any) -> None:
    """Either it is a record or it is set aside; nothing else ever comes out."""
    try:
        read(value)
    except Broken as error:
        code = error.code
    else:
        code = "record_unreadable"
    assert code == "record_unreadable"


@given(plain | st.binary(max_size=40) | texts)
def test_anything_at_all_is_read_or_set_aside(value: Any) -> None:
    unreadable(from_json, value)
    unreadable(manifest_from_json, value)


EXAMPLE = json.loads((RECORDS / "workspace-restoring.json").read_text(encoding="utf-8"))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for k, v in inner for p in places(v, (*path, k)))]


@given(st.sampled_from(places(EXAMPLE)[1:]), plain | st.just(float("nan")) | st.just(float("inf")) | st.just(10**400) | st.just("\ud800"))
def test_a_record_with_any_value_replaced_is_read_or_set_aside(path: tuple[Any, ...], value: Any) -> None:
    data = json.loads(json.dumps(EXAMPLE))
    parent = data
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    unreadable(from_json, data)
    unreadable(from_json, json.dumps(data))


@given(st.integers(0, len(json.dumps(EXAMPLE)) - 1))
def test_a_record_that_was_cut_off_is_set_aside(end: int) -> None:
    with pytest.raises(Broken, match="record_unreadable"):
        from_json(json.dumps(EXAMPLE)[:end])


@pytest.mark.parametrize("version", [0, -1, 2, 99, "1", 1.0, True, None])
def test_a_record_of_a_newer_or_no_version_is_set_aside(version: Any) -> None:
    for read, name in ((from_json, "workspace-paused"), (manifest_from_json, "manifest")):
        data = {**json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8")), "version": version}
        with pytest.raises(Broken, match="record_unreadable"):
            read(data)


def test_a_record_nested_without_end_is_set_aside() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(Broken, match="record_unreadable"):
        from_json({**EXAMPLE, "pause": {**EXAMPLE["pause"], "facts": deep}})
    with pytest.raises(Broken, match="record_unreadable"):
        from_json("[" * 100_000)


def test_an_open_phase_without_a_pause_is_set_aside() -> None:
    with pytest.raises(Broken, match="record_unreadable"):
        from_json({key: value for key, value in EXAMPLE.items() if key != "pause"})


def test_a_record_stays_small_whatever_user_code_said() -> None:
    bulk = {f"fact {i}": ["x" * 200] * 50 for i in range(50)}
    identity = Identity("boot", 7, tuple(KernelProcess("k" * 256, i, 1.0, "n" * 256) for i in range(200)))
    receipt = {"resumed": True, "bytes": 5, "repaired": bulk, "before": bulk}
    shelf = tuple(SnapshotRef(f"s-p{i}", f"p{i}", SnapshotState.CURRENT, 2**40, 1e9, 2e9, "s-p0", "d" * 64) for i in range(20))
    workspace = Workspace(
        Key("a" * 255, "s" * 255),
        Owner(1, "ab" * 16),
        Phase.PAUSED,
        pause=Pause("p1", identity=identity, facts=bulk, receipt=receipt, detail="d" * 500, reason="disk_full", snapshot_id="s-p1"),
        shelf=shelf,
    )
    data = to_json(workspace)
    assert len(json.dumps(data)) < RECORD_LIMIT
    again = from_json(data)
    assert again.shelf == shelf
    assert again.pause is not None
    assert again.pause.identity is not None
    assert again.pause.identity.boot_id == "boot"
    assert again.pause.receipt is not None
    assert again.pause.receipt["resumed"] is True, "the receipt's own words stay"
    assert again.pause.clocks == Clocks()
    assert again.pause.reason == "disk_full"


def test_what_no_text_can_hold_never_makes_a_record_unreadable() -> None:
    facts = {"na\ud800me": "\udfff", "n": float("nan"), "i": [float("inf")]}
    workspace = Workspace(Key("ann"), Owner(1, "x"), Phase.PAUSED, pause=Pause("p1", facts=facts, detail="\ud800"))
    assert from_json(json.dumps(to_json(workspace))).phase is Phase.PAUSED


def test_progress_is_not_kept() -> None:
    assert "progress" not in to_json(Workspace(Key("ann"), Owner(1, "x"), progress=0.5))
