"""What a start and a stop cost the Hub on Kubernetes, beside plain KubeSpawner under the same load. Run by ``make bench`` only.

Users arrive at a fixed rate, whatever the Hub makes of it; both Hubs take turns on one emulated cluster with pretend pods.
``BENCH_ROUNDS`` alternating pairs (5), ``BENCH_USERS`` a round (12), ``BENCH_RATE`` users a second (1).
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.loopwatch import percentile
from tests.bench.test_hub import processor_seconds
from tests.emulator.api import Api
from tests.emulator.hub import EmulatedHub, hub_account, shipped_policies
from tests.emulator.running import BUILD_SECONDS, RunningEmulator, eventually
from tests.hub.running import ROOT
from tests.kube.people import Person

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
USERS = int(os.environ.get("BENCH_USERS", "12"))
RATE = float(os.environ.get("BENCH_RATE", "1"))
OUT = Path(os.environ.get("BENCH_OUT", ROOT / "build" / "bench"))
PLAIN, OURS = "kubespawner.KubeSpawner", "gke-workspaces"
CPU_LIMIT, P95_LIMIT = 1.1, 1.3
"""Ours beside plain KubeSpawner: processor time of a pair, seconds of a start."""


async def arriving(what: list[Any], each: Any) -> list[float]:
    """Call ``each`` for one after another at the fixed rate; seconds that each took."""

    async def one(number: int, thing: Any) -> float:
        await asyncio.sleep(number / RATE)
        begin = time.monotonic()
        await each(thing)
        return time.monotonic() - begin

    return list(await asyncio.gather(*(one(number, thing) for number, thing in enumerate(what))))


async def one_round(hub: EmulatedHub, people: list[Person]) -> tuple[float, list[float]]:
    """Processor seconds of the Hub for a start and a stop, and how long each start took."""

    async def up(person: Person) -> None:
        assert await person.start() == 200
        await person.ready()

    async def down(person: Person) -> None:
        assert await person.status("DELETE", f"/users/{person.name}/server") == 200

        async def gone() -> bool:
            return "" not in (await hub.call("GET", f"/users/{person.name}"))["servers"]

        await eventually("a stopped server", gone, 60)

    before = processor_seconds(hub.hub.pid)
    taken = await arriving(people, up)
    await arriving(people, down)
    return (processor_seconds(hub.hub.pid) - before) / len(people), taken


async def measure(emulator: RunningEmulator, folder: Path) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {name: {"cpu": [], "starts": []} for name in (PLAIN, OURS)}
    async with Api(Path(emulator.facts["kubeconfig"])) as admin:
        await shipped_policies(admin)
        account = await hub_account(admin, folder / "hub.kubeconfig")
        set_ = {"KubeSpawner.mem_guarantee": "32M", "KubeSpawner.mem_limit": "64M"}
        hubs = {
            name: EmulatedHub(folder / name.rpartition(".")[2], account, spawner=name, homes=False, set_=set_) for name in (PLAIN, OURS)
        }
        try:
            for name, hub in hubs.items():
                people = [Person(hub, f"{name.rpartition('.')[2].lower()}{number}", admin) for number in range(USERS)]
                await hub.start()
                for person in people:
                    await person.made()
                found[name]["people"] = people
                await one_round(hub, people)  # what is loaded with the first server of a Hub
            for _ in range(ROUNDS):
                for name, hub in hubs.items():
                    cpu, taken = await one_round(hub, found[name]["people"])
                    found[name]["cpu"].append(cpu)
                    found[name]["starts"] += taken
        finally:
            for hub in hubs.values():
                await hub.close()
    return {name: {"cpu": values["cpu"], "starts": sorted(values["starts"])} for name, values in found.items()}


def test_a_start_and_a_stop_cost_the_hub_what_they_cost_with_plain_kubespawner(tmp_path: Path) -> None:
    emulator = RunningEmulator(tmp_path / "emulator", "--no-hub")
    (tmp_path / "emulator").mkdir(exist_ok=True)
    emulator.start(BUILD_SECONDS)
    try:
        found = asyncio.run(measure(emulator, tmp_path))
    finally:
        emulator.close()
    cpu = {name: median(values["cpu"]) for name, values in found.items()}
    p95 = {name: percentile(values["starts"], 0.95) for name, values in found.items()}
    said = {"cpu": cpu, "p95": p95, "cpu ratio": cpu[OURS] / cpu[PLAIN], "p95 ratio": p95[OURS] / p95[PLAIN], "load": os.getloadavg()[0]}
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "scale.json").write_text(json.dumps({**said, "rounds": found, "users": USERS, "rate": RATE}))
    print(said, flush=True)
    assert said["cpu ratio"] <= CPU_LIMIT, said
    assert said["p95 ratio"] <= P95_LIMIT, said
