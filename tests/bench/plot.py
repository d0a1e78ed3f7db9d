"""Draw ``docs/images/speed.svg`` and print the tables of ``docs/benchmarks.md`` from ``build/bench``: ``python -m tests.bench.plot``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from tests.hub.running import ROOT

LINES = (
    ("again", "stop, start, load again", "#9aa0a6"),
    ("pause", "pause", "#4c78a8"),
    ("resume", "resume to next cell", "#54a24b"),
    ("cold resume", "the same, cold cache", "#eeca3b"),
)
STEPS: dict[str, dict[str, tuple[str, ...]]] = {
    "pause": {
        "prepare": ("GVisorEngine.estimate", "JupyterHubPort.unroute", "HubGuest.prepare", "JupyterHubPort.plain_launch"),
        "look at and keep held files": ("kept.held_files", "Store.keep_early", "Store.keep"),
        "freeze": ("runsc pause",),
        "save": ("runsc checkpoint",),
        "durable": ("Shelf.publish",),
        "remove": ("GVisorEngine.remove",),
        "records and tokens in the Hub's database": ("HubStore.commit", "JupyterHubPort.suspend_tokens"),
    },
    "resume": {
        "network": ("Launcher.attach",),
        "restore": ("Shim.restore",),
        "first answer and proof": ("HubGuest.restored",),
        "verify the pages (at the same time)": ("Shelf.verify",),
        "records in the Hub's database": ("HubStore.commit",),
        "route (the Hub's own check)": ("JupyterHubPort.routed",),
    },
}


def rounds(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Without the first, which keeps the machine's files once."""
    rest: list[dict[str, Any]] = result["rounds"][1:]
    return rest


def middle(result: dict[str, Any], name: str) -> float | None:
    """The median of a figure; of a resume with a warm cache or, with that word before it, with a cold one. None where not measured."""
    if name == "again":
        return _median(one["again"] for one in rounds(result) if one["again"] is not None)
    what = name.removeprefix("cold ")
    wanted = [one for one in rounds(result) if what == "pause" or "pause" in what or one["cold"] is (what != name)]
    return _median(one[what]["seconds"] for one in wanted)


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return median(found) if found else None


def _text(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def step(result: dict[str, Any], what: str, names: tuple[str, ...]) -> float:
    return _median(sum(end - start for name, start, end, _ in one[what]["spans"] if name in names) for one in rounds(result)) or 0.0


def size(result: dict[str, Any]) -> float:
    """GiB of pages, as saved."""
    return (_median(one["bytes"] for one in rounds(result)) or 0.0) / 2**30


def tables(results: list[dict[str, Any]]) -> str:
    text = [
        "| GiB saved | pause | by hand | ratio | resume, warm | by hand | more | resume, cold | by hand | more | load again | ratio, warm |"
    ]
    text.append("|---" * 12 + "|")
    for one in results:
        mine, raw, again = (middle(one, name) for name in ("pause", "raw pause", "again"))
        cells = [_text(size(one)), _text(mine), _text(raw), _text(mine / raw if mine and raw else None)]
        for cache in ("", "cold "):
            back, answer = middle(one, f"{cache}resume"), middle(one, f"{cache}raw restore")
            cells += [_text(back), _text(answer), _text(back - answer if back and answer else None)]
        warm = middle(one, "resume")
        cells += [_text(again, 1), _text(again / warm if again and warm else None, 1)]
        text.append("| " + " | ".join(cells) + " |")
    for what, steps in STEPS.items():
        text += ["", f"| {what} | " + " | ".join(f"{size(one):.2f} GiB" for one in results) + " |", "|---" * (len(results) + 1) + "|"]
        text += [f"| {label} | " + " | ".join(f"{step(one, what, names):.2f}" for one in results) + " |" for label, names in steps.items()]
    return "\n".join(text)


def svg(results: list[dict[str, Any]]) -> str:
    """Bars, drawn by hand: no library for one picture."""
    longest = max(middle(one, name) or 0.0 for one in results for name, _, _ in LINES)
    width = 420 / max(1.0, longest)
    parts, top = [], 40
    for one in results:
        parts.append(f'<text x="10" y="{top + 34}" font-weight="bold">{size(one):.2f} GiB</text>')
        measured = [(seconds, label, colour) for name, label, colour in LINES if (seconds := middle(one, name)) is not None]
        for number, (seconds, label, colour) in enumerate(measured):
            y = top + 24 * number
            parts.append(f'<rect x="250" y="{y}" width="{seconds * width:.1f}" height="16" fill="{colour}"/>')
            parts.append(f'<text x="242" y="{y + 13}" text-anchor="end">{label}</text>')
            parts.append(f'<text x="{256 + seconds * width:.1f}" y="{y + 13}">{seconds:.1f} s</text>')
        top += 24 * len(measured) + 24
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="740" height="{top}" font-family="sans-serif" font-size="12">'
    back = f'<rect width="740" height="{top}" fill="white"/><text x="10" y="22" font-size="14">Seconds, medians of one run</text>'
    return head + back + "".join(parts) + "</svg>\n"


def main() -> None:
    results = [json.loads(path.read_text()) for path in Path(ROOT, "build", "bench").glob("speed-*.json")]
    results.sort(key=size)
    (ROOT / "docs" / "images" / "speed.svg").write_text(svg(results))
    print(tables(results))


if __name__ == "__main__":
    main()
