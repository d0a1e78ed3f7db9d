"""``gke-workspaces profiles``: what each choice of a profile list becomes, and all that is wrong with it; as a table or as JSON."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from .say import say

if TYPE_CHECKING:
    from ..profiles import Finding, Report, Row

NOT_LOOKED = 2
"""Exit code when there was no list to look at."""
WIDEST = 140
COLUMN = 14


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for."""

    file: Path
    json: bool = False


def profiles(options: Options) -> int:
    """Print rows and findings: 0 without a refusal, 1 with one, 2 when there was no list."""
    if find_spec("yaml") is None:
        return _not_looked("Values need PyYAML: pip install 'gke-workspaces-spawner[hub]'.")
    from ..kube.doctor.examine import read_values
    from ..kube.doctor.findings import Unread
    from ..profiles import Context, Report, catalogue_with, check

    hub = read_values(options.file)
    if isinstance(hub, Unread):
        return _not_looked(hub.sentence)
    found = hub.traits.get("profile_list")
    if not isinstance(found, (list, tuple, dict)):
        return _not_looked(f"{options.file} has no profile list that can be read without running it.")
    catalogue, against = catalogue_with(hub.traits.get("catalogue") or {})
    report = check(found, catalogue, Context(hub.traits))
    report = Report(report.rows, (*against, *report.findings), report.hidden)
    if options.json:
        rows, findings = [row.as_json() for row in report.rows], [one.as_json() for one in report.findings]
        say(json.dumps({"choices": rows, "findings": findings}, indent=2))
    else:
        for line in table(report, min(shutil.get_terminal_size().columns, WIDEST)):
            say(line)
    return int(bool(report.refusals))


def _not_looked(sentence: str) -> int:
    print(f"gke-workspaces: {sentence}", file=sys.stderr)
    return NOT_LOOKED


def table(report: Report, width: int) -> Iterator[str]:
    """For people: a paragraph for each choice, then what is wrong."""
    for row in report.rows:
        yield row.name
        for name, value in _cells(row):
            yield from textwrap.wrap(
                value, max(width, 50), initial_indent=f"  {name:<{COLUMN}}", subsequent_indent=" " * (COLUMN + 2), break_on_hyphens=False
            )
        yield ""
    for finding in report.findings:
        yield from _finding(finding, width)
    counts = f"{len(report.refusals)} refused, {len(report.warnings)} {'warning' if len(report.warnings) == 1 else 'warnings'}"
    yield f"{len(report.rows)} {'choice' if len(report.rows) == 1 else 'choices'} with a gke key can be started; {counts}."


def _cells(row: Row) -> Iterator[tuple[str, str]]:
    yield from {
        "machine": row.machine,
        "accelerator": row.accelerator,
        "capacity": row.capacity,
        "home": row.home,
        "pausable": row.pausable,
        "longest wait": row.longest_wait,
    }.items()
    if row.needs:
        yield "needs GKE", row.needs
    selector = row.traits.get("node_selector", {})
    if selector:
        yield "selector", ", ".join(f"{label}={value}" for label, value in selector.items())
    tolerations = row.traits.get("tolerations", ())
    if tolerations:
        yield "tolerations", ", ".join(each["key"] for each in tolerations)


def _finding(finding: Finding, width: int) -> Iterator[str]:
    yield from textwrap.wrap(
        f"{finding.state.value:<{COLUMN}}{finding.sentence}", max(width, 50), subsequent_indent=" " * COLUMN, break_on_hyphens=False
    )
