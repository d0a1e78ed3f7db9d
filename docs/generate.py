"""Write the reference pages that are made from the code: settings, calls and phases, reason codes.

``python docs/generate.py`` writes them, ``python docs/generate.py --check`` says which ones are not as the code is and exits 1.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from traitlets.config import Configurable

import gke_workspaces_spawner
from gke_workspaces_spawner.kube.doctor.findings import data as doctors_data
from gke_workspaces_spawner.lifecycle import phases, reasons

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = Path(__file__).resolve().parent
EMULATOR = DOCS.parent / "tests" / "emulator"
PACKAGE = gke_workspaces_spawner.__name__
NOTE = "<!-- Made from the code by `python docs/generate.py`: change it there. -->"


def configurables() -> list[type[Configurable]]:
    """Our classes that have settings of our own and that somebody can name in a config file, by name."""
    found = set()
    for module in pkgutil.walk_packages(gke_workspaces_spawner.__path__, f"{PACKAGE}."):
        if module.name.startswith(f"{PACKAGE}.cli") or module.name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Configurable) and value.__module__.startswith(PACKAGE):
                found.add(value)
    bases = {base for one in found for base in one.__mro__[1:]}
    return sorted((one for one in found - bases if list(own_traits(one))), key=lambda one: one.__name__)


def own_traits(owner: type[Configurable]) -> Iterator[tuple[str, Any]]:
    """The settings that classes of this package add, in the order of their names; JupyterHub documents its own."""
    for name, trait in sorted(owner.class_traits(config=True).items()):
        definer = next(base for base in owner.__mro__ if name in vars(base))
        if definer.__module__.startswith(PACKAGE):
            yield name, trait


def default_of(owner: type[Configurable], name: str, trait: Any) -> str:
    """What applies when nothing is set, as somebody would write it in a config file."""
    if any(f"_{name}_default" in vars(base) for base in owner.__mro__) or owner._trait_default_generators.get(name):
        return "worked out when the Hub starts, see below"
    return f"`{trait.default_value_repr()}`"


def paragraphs(text: str) -> str:
    """Help text with its indentation taken off and hard line breaks inside of paragraphs kept out."""
    blocks = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(re.sub(r"\s*\n\s*", " ", block.strip()) for block in blocks)


def configuration() -> str:
    """The page of settings."""
    lines = [
        "# Configuration reference",
        "",
        NOTE,
        "",
        "Settings of this package, as they are written in `jupyterhub_config.py`. Everything that JupyterHub itself lets you set",
        "on a spawner keeps working; it is described in JupyterHub's own documentation. Units are named in each help text; a wrong",
        "value stops the Hub at its start with a sentence that names the setting.",
    ]
    for owner in configurables():
        lines += ["", f"## {owner.__name__}"]
        for name, trait in own_traits(owner):
            lines += ["", f"### `c.{owner.__name__}.{name}`", "", f"{trait.__class__.__name__}, default {default_of(owner, name, trait)}"]
            lines += ["", paragraphs(trait.help or "")]
    return "\n".join(lines) + "\n"


def reason_codes() -> str:
    """The page of reason codes."""
    lines = [
        "# Reason codes",
        "",
        NOTE,
        "",
        "Every refusal and every outcome that was not wished for has a stable code (`reason` in an answer), a sentence for the person",
        "in front of the screen, and advice. Programs should look at the code; sentences may be put better in a later version.",
        "",
        "| code | HTTP status | what people are told | advice |",
        "|---|---|---|---|",
    ]
    for code, row in sorted(reasons.table().items()):
        cells = [f"`{code}`", str(row.status), row.sentence, row.advice]
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def calls_and_phases() -> str:
    """The page with the two tables of the lifecycle."""
    lines = ["# Moves, calls and phases", "", NOTE, "", "## Moves", "", "| phase | may move to |", "|---|---|"]
    for start, ends in phases.MOVES.items():
        lines.append(f"| `{start.value}` | {', '.join(f'`{end.value}`' for end in phases.Phase if end in ends)} |")
    lines += [
        "",
        "## What each call is answered in each phase",
        "",
        "**do**: it happens. **join**: it is under way or done already; nothing is done twice. **remember**: it is kept and done as soon",
        "as it can be. **no**: refused with that [reason code](reasons.md); nothing changes.",
        "",
    ]
    return "\n".join(lines) + "\n" + phases.calls_markdown()


def emulator() -> str:
    """The page of what the emulator of GKE does, and how sure it is that GKE does the same."""
    lines = [
        "# What the emulator does, and whom it follows",
        "",
        NOTE,
        "",
        "`documented`: in Google's or Kubernetes' own pages. `reported`: somebody saw it on a cluster, or a program that drives it relies",
        "on it. `guessed`: nobody says so; the product must work whether it is so or not. [How to run it](emulator.md).",
    ]
    for title, name, first in (("Behaviour", "behaviours", "what"), ("Faults", "faults", "key of `emulator-faults`")):
        lines += ["", f"## {title}", "", f"| {first} | does | how sure | whom it follows |", "|---|---|---|---|"]
        for key, row in tomllib.loads((EMULATOR / f"{name}.toml").read_text(encoding="utf-8")).items():
            takes = f" Takes: {row['takes']}." if "takes" in row else ""
            cells = [f"`{key}`", row["does"] + takes, row["level"], row["source"]]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def doctor() -> str:
    """The page of the doctor's checks."""
    lines = [
        "# The doctor",
        "",
        NOTE,
        "",
        "`gke-workspaces doctor` looks at a cluster as its admin would, and says of each thing that pausing needs whether it is so.",
        "It writes nothing. It uses the kubeconfig as `kubectl` does, or runs in the hub's own pod. It needs",
        "`pip install 'gke-workspaces-spawner[hub]'`, and for the bucket `google-cloud-storage` with credentials",
        "(`gcloud auth application-default login`).",
        "",
        "| option | meaning |",
        "|---|---|",
        "| `--kubeconfig FILE`, `--context NAME` | which cluster; default: as `kubectl` does |",
        "| `--namespace NAME` | the hub's namespace; default: the context's |",
        "| `--values FILE` | the hub's values (YAML) or `jupyterhub_config.py`; read and never run, so only plain values are seen |",
        "| `--json` | `{where, findings: [{check, state, what, why, mend}]}` instead of a table |",
        "",
        "Exit code: 0 no fault (warnings and what is unknown do not count), 1 at least one fault, 2 nothing could be looked at. Each",
        "call of the API server may take 10 seconds, Cloud Storage 40 in all, everything together 180.",
        "",
        "States: `fault` pausing does not work or is not safe, `warning` it works and may surprise, `unknown` it could not be asked",
        "(or nobody says), `ok`. Words in capital letters in a command are for you to fill in.",
        "",
        "## Checks",
        "",
        "| check | looks at | why | what mends it |",
        "|---|---|---|---|",
    ]
    for key, row in doctors_data("checks").items():
        mend = row["mend"].format_map(_Capitals()) if row["mend"] else "see below"
        cells = [f"`{key}`", row["looks"], row["why"], mend]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines += [
        "",
        "## What nobody says of GKE",
        "",
        "Each is a line of the table, `unknown` on every cluster: our tests take it for granted, see",
        "[the emulator](emulator-behaviours.md).",
        "",
        "| check | taken for granted | how to find out |",
        "|---|---|---|",
    ]
    for key, row in doctors_data("guesses").items():
        lines.append(f"| `guess/{key}` | {row['does']} | {row['ask']} |")
    lines += [
        "",
        "## Going back: uninstall",
        "",
        "`gke-workspaces uninstall` lists what pausing has put into the namespace (triggers, PodSnapshots, Secrets, policies). It",
        "removes nothing unless it is called with `--yes` instead of `--dry-run`, the default. With `--hub-url URL` (the Hub's REST,",
        "`https://HOST/hub/api`) and an admin's token in `JUPYTERHUB_API_TOKEN` it also lists the Hub's records, and `--yes` discards",
        "each through the Hub first, with its tokens. Servers that can be paused have to be stopped before. Snapshots go first, and",
        "the policies last, when the snapshots' files are gone. What belongs to the cluster (storage config, admission policy,",
        "ClusterRole) and the roles stay: `kubectl delete -f` the files of helm-values.",
    ]
    return "\n".join(lines) + "\n"


class _Capitals(dict[str, str]):
    """Words in braces as a reader fills them in."""

    def __missing__(self, key: str) -> str:
        return key.upper()


PAGES = {
    "configuration.md": configuration,
    "reasons.md": reason_codes,
    "calls.md": calls_and_phases,
    "emulator-behaviours.md": emulator,
    "doctor.md": doctor,
}


def main(arguments: list[str] | None = None) -> int:
    """Write or check the pages; 1 when a check found one that is not as the code is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is not as the code is")
    check = parser.parse_args(arguments).check
    stale = []
    for name, make in PAGES.items():
        page, text = DOCS / name, make()
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                page.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"docs/{name}: {'not as the code is: run python docs/generate.py' if check else 'written'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
