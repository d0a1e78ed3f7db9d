"""``gke-workspaces doctor``: whether a cluster is fit for pausing, as a table or as JSON."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from .say import say

if TYPE_CHECKING:
    from ..kube.doctor import Finding

NOT_LOOKED = 2
"""Exit code when there was nothing to look at."""
ALL_SECONDS = 180.0
"""For the whole examination."""
WIDEST = 120
COLUMN = 9


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for; None is what the kubeconfig says."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    values: Path | None = None
    json: bool = False


def doctor(options: Options) -> int:
    """Print the findings: 0 without a fault, 1 with one, 2 when no cluster could be looked at."""
    if find_spec("kubernetes_asyncio") is None or find_spec("yaml") is None:
        return _not_looked("The doctor needs the Kubernetes client: pip install 'gke-workspaces-spawner[hub]'.")
    if options.values is not None and not options.values.is_file():
        return _not_looked(f"There is no file {options.values}: name the hub's values with --values.")
    from ..kube.doctor import examine, exit_code
    from ..kube.doctor.seen import NoCluster

    try:
        where, findings = asyncio.run(
            asyncio.wait_for(examine(options.kubeconfig, options.context, options.namespace, options.values), ALL_SECONDS)
        )
    except NoCluster as error:
        return _not_looked(str(error))
    except asyncio.TimeoutError:
        return _not_looked(f"The cluster did not answer everything within {ALL_SECONDS:.0f} s: try again when it is less busy.")
    if options.json:
        say(json.dumps({"where": where, "findings": [one.as_json() for one in findings]}, indent=2))
    else:
        for line in table(where, findings, min(shutil.get_terminal_size().columns, WIDEST)):
            say(line)
    return exit_code(findings)


def _not_looked(sentence: str) -> int:
    print(f"gke-workspaces: {sentence}", file=sys.stderr)
    return NOT_LOOKED


def table(where: str, findings: Sequence[Finding], width: int) -> Iterator[str]:
    """The findings for people: one paragraph each, with why and what mends it where something is not well."""
    yield f"Looked at {where}."
    yield ""
    said = ""
    for one in findings:
        yield from _wrapped(f"{one.state.value:<{COLUMN}}", f"{one.check}: {one.what}", width)
        if one.why and one.why != said:
            yield from _wrapped(" " * COLUMN, one.why, width)
        said = one.why
        if one.mend:
            yield f"{' ' * COLUMN}> {one.mend}"  # in one piece, to be copied
    counts = Counter(one.state.value for one in findings)
    yield ""
    yield ", ".join(f"{counts[state]} {state}" for state in ("fault", "warning", "unknown", "ok"))


def _wrapped(first: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 40), initial_indent=first, subsequent_indent=" " * COLUMN, break_on_hyphens=False)
