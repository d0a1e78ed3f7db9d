"""Many resumes beside other running servers, and a Hub's event loop meanwhile beside that of a stock Hub. Run by ``make bench`` only.

``BENCH_RESUMES`` (default 500) resumes of 0.25 GB, or as many as begin within ``BENCH_SECONDS``; the results say how many it were.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.bench.loopwatch import lateness, percentile
from tests.bench.test_speed import BARE_BYTES, pause, resume
from tests.hub.running import ROOT, RunningHub, running_hub, wait_for
from tests.sandbox import local_hub as local
from tests.sandbox.jupyter import Jupyter

RESUMES = int(os.environ.get("BENCH_RESUMES", "500"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "inf"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
OUT = Path(os.environ.get("BENCH_OUT", ROOT / "build" / "bench"))
HERE = Path(__file__).parent
MOST_SECONDS = 3.0
"""That any of the resumes may take."""
FILL = "import os, numpy, sklearn.linear_model; rows = bytearray(os.urandom({bytes}))"
OTHERS = ("bob", "eve")


@pytest.fixture(autouse=True)
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "CONFIG", HERE / "hub_config.py")


def results(name: str, value: object) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / name).write_text(json.dumps(value))


def private(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


def test_every_one_of_many_resumes_is_quick_beside_other_servers(tmp_path: Path) -> None:
    folder = private(tmp_path / "hub")
    with local.local_hub(folder) as hub:
        for other in OTHERS:
            hub.start_server(other)
            Jupyter(hub, other).run(Jupyter(hub, other).kernel(), "print(1)")
        hub.start_server("ann")
        jupyter = Jupyter(hub, "ann")
        kernel = jupyter.kernel()
        jupyter.run(kernel, FILL.format(bytes=max(0, int(250e6 - BARE_BYTES))))
        taken: list[float] = []
        paused: list[float] = []
        end = time.monotonic() + SECONDS
        while len(taken) < RESUMES and time.monotonic() < end:
            paused.append(pause(hub, folder)["seconds"])
            taken.append(resume(hub, jupyter, kernel, folder)["seconds"])
        for other in OTHERS:
            assert hub.model(other)["ready"]
        size = max(entry.stat().st_size for entry in (folder / "state" / "snapshots").glob("*/pages.img"))
    ordered = sorted(taken)
    said = {"resumes": len(taken), "bytes": size, "median": percentile(ordered, 0.5), "p99": percentile(ordered, 0.99), "max": ordered[-1]}
    results("many.json", {**said, "seconds": taken, "pauses": paused, "load": os.getloadavg()[0]})
    print(f"{said}, pauses median {percentile(sorted(paused), 0.5):.2f} max {max(paused):.2f}", flush=True)
    assert ordered[-1] < MOST_SECONDS


def stock_round(hub: RunningHub) -> tuple[float, float]:
    """A stop and a start; when it began and ended."""
    begin = time.time()
    assert hub.ask("DELETE", "ann")[0] in (202, 204)
    wait_for("a stopped server", lambda: not hub.model("ann").get("ready") and not hub.model("ann").get("pending"), 60)
    hub.start_server("ann")
    return begin, time.time()


def our_round(hub: RunningHub) -> tuple[float, float]:
    """A pause and a resume; when it began and ended."""
    begin = time.time()
    hub.pause("ann")
    hub.resume("ann")
    return begin, time.time()


def test_the_event_loop_is_no_later_than_a_stock_hubs(tmp_path: Path) -> None:
    """One after another in one run: pause and resume here, stop and start there, each asked after by the same client."""
    ours, stock = private(tmp_path / "ours"), private(tmp_path / "stock")
    with local.local_hub(ours) as hub, running_hub(stock, HERE / "stock_config.py") as other:
        windows: dict[Path, list[tuple[float, float]]] = {ours: [], stock: []}
        hub.start_server("ann")
        other.start_server("ann")
        our_round(hub)
        for _ in range(ROUNDS):
            windows[stock].append(stock_round(other))
            windows[ours].append(our_round(hub))
        late = {folder: lateness(folder / "ticks", windows[folder]) for folder in windows}
    said = {
        name: {
            "looks": len(late[folder]),
            "p50": percentile(late[folder], 0.5),
            "p99": percentile(late[folder], 0.99),
            "max": late[folder][-1],
        }
        for name, folder in (("ours", ours), ("stock", stock))
    }
    results("loop.json", {**said, "load": os.getloadavg()[0]})
    print(said, flush=True)
    assert said["ours"]["p99"] <= said["stock"]["p99"] + 0.001
