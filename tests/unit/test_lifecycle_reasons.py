"""Every code that anything may raise or record has words, and the words are for people."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import gke_workspaces_spawner
from gke_workspaces_spawner.lifecycle.phases import CALLS, Phase
from gke_workspaces_spawner.lifecycle.reasons import Reason, reason, table

ROOT = Path(gke_workspaces_spawner.__file__).parent
CONSTANTS = {"CODES", "UNREACHABLE", "ONLY_FRESH"}
"""Module constants that hold codes."""
RAISED = {"Refused", "Conflict", "TryLater", "Lost", "Broken", "SandboxError", "reason"}


def codes_in(path: Path) -> Iterator[str]:
    """Codes written out in calls of the five errors, of ``reason``, and where a step gives up."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and {getattr(t, "id", "") for t in node.targets} & CONSTANTS:
            yield from (v.value for v in ast.walk(node.value) if isinstance(v, ast.Constant) and isinstance(v.value, str))
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        place = {"give_up": 2, "back_to_paused": 1, "_paused_again": 2, "explained": 1, "Failed": 0}.get(
            name, 0 if name in RAISED else None
        )
        if place is not None and len(node.args) > place:
            argument = node.args[place]
            values = [argument.body, argument.orelse] if isinstance(argument, ast.IfExp) else [argument]
            yield from (v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str))


def test_every_code_in_the_source_has_words() -> None:
    found = {code for path in ROOT.rglob("*.py") for code in codes_in(path)}
    assert {"guest_unreachable", "wrong_pause", "save_timeout", "hub_restarted"} <= found, "the search finds nothing"
    assert found - set(table()) == set()


def test_every_refusal_of_the_table_of_calls_has_words() -> None:
    assert {answer.reason for row in CALLS.values() for answer in row.values() if answer.reason} <= set(table())


def test_every_phase_has_words() -> None:
    assert {f"phase_{phase.value}" for phase in Phase} <= set(table())


@pytest.mark.parametrize("row", table().values(), ids=table())
def test_words_are_sentences_for_people(row: Reason) -> None:
    for text in filter(None, (row.sentence, row.advice)):
        assert text[0].isupper(), text
        assert text.endswith("."), text
        assert len(text) < 200
        assert not {"pod", "checkpoint", "spawner", "None", "null"} & set(text.replace(".", " ").split())
    assert row.status in {202, 400, 403, 404, 409, 410, 429, 500, 503, 507}
    assert row.counts_as_hub_failure == (row.status == 500)


def test_a_code_of_another_version_has_words_too() -> None:
    unknown = reason("of_tomorrow")
    assert unknown.code == "of_tomorrow"
    assert unknown.sentence
    assert unknown.status == 409
