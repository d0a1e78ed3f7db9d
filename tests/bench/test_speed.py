"""How long a pause and a resume take, beside the save protocol by hand and beside stop + cold start + loading again.

Run by ``make bench`` only. ``BENCH_SIZES`` (GiB, default ``0.1 0.5 2``; add 6 for the large one) and ``BENCH_ROUNDS`` (default 5) say how
much; ``BENCH_AGAIN=0`` fills the memory at once in place of loading it, for sizes whose loading takes minutes. Results go to
``build/bench/speed-SIZE.json`` and, as a table, to standard output. Each round measures everything once, one after another on the same
machine, so that what else runs on it hits all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench import spans
from tests.hub.running import ROOT, RunningHub, wait_for
from tests.sandbox import local_hub as local
from tests.sandbox.jupyter import Jupyter

SIZES = [float(size) for size in os.environ.get("BENCH_SIZES", "0.1 0.5 2").split()]
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
AGAIN = os.environ.get("BENCH_AGAIN", "1") == "1"
OUT = Path(os.environ.get("BENCH_OUT", ROOT / "build" / "bench"))
BLOCK_BYTES = 5.7e6
"""What one block of the CSV file holds in memory: its text and its numbers."""
BARE_BYTES = 225e6
"""A server with a kernel that has imported numpy and scikit-learn: the smallest size that this can measure."""

MAKE = """
import numpy as np
block = "\\n".join(",".join(f"{value:.6f}" for value in row) for row in np.random.default_rng(0).normal(size=(20000, 16))) + "\\n"
with open("data.csv", "w") as file:
    for _ in range({blocks}):
        file.write(block)
"""
LOAD = """
import numpy as np
from sklearn.linear_model import LinearRegression
text = open("data.csv").read()
rows = np.loadtxt("data.csv", delimiter=",", max_rows=None) if text else np.zeros((1, 16))
model = LinearRegression().fit(rows[:200000, :-1], rows[:200000, -1]) if text else None
print(len(rows))
"""
"""The loading cell: reads, parses and fits. It makes nothing up, so to run it again is what a person would have to do."""

FILL = "import os, numpy, sklearn.linear_model; rows = [os.urandom(1 << 20) for _ in range({megabytes})]; print(len(rows))"
"""In its place, where loading again is not measured."""


@contextlib.contextmanager
def by_hand(state: Path, folder: Path) -> Iterator[Any]:
    """A function that asks the process of ``raw.py``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.raw", str(state), str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(**what: str) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(what) + "\n")
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(process.stdout.readline())
        return answer

    try:
        yield ask
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


def pause(hub: RunningHub, folder: Path) -> dict[str, Any]:
    """Request to released; seen in the Hub's database, so that nobody's questions slow the Hub down."""
    begin = time.time()
    status, answer = hub.ask("POST", "ann", path="/pause", body={})
    assert status == 202, answer
    wait_for("the pause", lambda: hub.record("ann")["phase"] == "paused", 120)
    clocks = hub.record("ann")["pause"]["clocks"]
    return {"seconds": clocks["freed"] - begin, "spans": spans.read(folder / "spans.jsonl", begin, clocks["freed"]), "begin": begin}


def resume(hub: RunningHub, jupyter: Jupyter, kernel: str, folder: Path) -> dict[str, Any]:
    """Request to the result of the next cell."""
    begin = time.time()
    status, answer = hub.ask("POST", "ann")
    assert status in (201, 202), answer
    if status == 202:
        wait_for("the resume", lambda: hub.record("ann")["phase"] == "running", 120)
    back = time.time()
    jupyter.run(kernel, "print(len(rows))")
    end = time.time()
    view = hub.workspace("ann")
    assert view["phase"] == "running", view
    assert view["receipt"]["resumed"], view
    return {"seconds": end - begin, "ready": back - begin, "spans": spans.read(folder / "spans.jsonl", begin, end), "begin": begin}


def forget_pages(folder: Path) -> None:
    """Take a snapshot's files out of the page cache."""
    for entry in folder.iterdir():
        if entry.is_file():
            with entry.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sealed(state: Path, snapshot: str) -> None:
    """Until the snapshot's pages have been hashed, which happens after a pause and would disturb what comes next."""
    wait_for("the seal", lambda: (state / "snapshots" / snapshot / "pages.json").exists(), 120)


@pytest.mark.parametrize("size", SIZES)
def test_speed(size: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "CONFIG", Path(__file__).with_name("hub_config.py"))
    folder = tmp_path / "hub"
    folder.mkdir(mode=0o700)
    state = folder / "state"
    OUT.mkdir(parents=True, exist_ok=True)
    blocks = max(0, round((size * 2**30 - BARE_BYTES) / BLOCK_BYTES))
    results: dict[str, Any] = {"size": size, "load": os.getloadavg(), "rounds": []}
    with local.local_hub(folder) as hub, by_hand_later(state, tmp_path / "raw") as ask:
        hub.start_server("ann")
        jupyter = Jupyter(hub, "ann")
        kernel = jupyter.kernel()
        if AGAIN:
            jupyter.run(kernel, MAKE.replace("{blocks}", str(blocks)))
        else:
            jupyter.run(kernel, FILL.replace("{megabytes}", str(int(blocks * BLOCK_BYTES / 2**20))))
        for number in range(ROUNDS + 1):
            cold_start = time.time()
            if AGAIN and number < 2:  # the first time files of the machine are kept, once; the second is measured
                if number:
                    assert hub.ask("DELETE", "ann")[0] in (202, 204)
                    wait_for("a stopped server", lambda: not hub.model("ann").get("pid") and not hub.model("ann").get("ready"), 60)
                    hub.start_server("ann")
                    kernel = jupyter.kernel()
                jupyter.run(kernel, LOAD)
                again = time.time() - cold_start
            one: dict[str, Any] = {"again": again if AGAIN and number == 1 else None, "pause": pause(hub, folder)}
            snapshot = hub.record("ann")["pause"]["snapshot_id"]
            sealed(state, snapshot)
            one["bytes"] = (state / "snapshots" / snapshot / "pages.img").stat().st_size
            cold = number % 2 == 0
            if cold:
                forget_pages(state / "snapshots" / snapshot)
            one["raw restore"] = ask(do="restore", snapshot=snapshot)
            one["raw pause"] = ask(do="pause")
            if cold:
                forget_pages(state / "snapshots" / snapshot)
            one["cold"] = cold
            one["resume"] = resume(hub, jupyter, kernel, folder)
            one["load"] = os.getloadavg()[0]
            results["rounds"].append(one)
            (OUT / f"speed-{size}.json").write_text(json.dumps(results))  # a run that is ended early leaves what it measured
            print(
                f"{size} GiB round {number}: pause {one['pause']['seconds']:.2f} by hand {one['raw pause']['seconds']:.2f}, "
                f"resume {one['resume']['seconds']:.2f} by hand {one['raw restore']['seconds']:.2f}, "
                f"again {one['again']}, load {one['load']:.1f}",
                flush=True,
            )
    assert len(results["rounds"]) == ROUNDS + 1


@contextlib.contextmanager
def by_hand_later(state: Path, folder: Path) -> Iterator[Any]:
    """As :func:`by_hand`, started at the first question: the Hub copies ``runsc`` at its first start of a server."""
    with contextlib.ExitStack() as stack:
        asked: list[Any] = []

        def ask(**what: str) -> dict[str, Any]:
            if not asked:
                asked.append(stack.enter_context(by_hand(state, folder)))
            answer: dict[str, Any] = asked[0](**what)
            return answer

        yield ask
