"""Three people and a cluster do whatever comes to them, in random order: hub and cluster agree afterwards, and nobody saw a 500.

``GKE_WORKSPACES_WALKS`` says how many walks (a few where it is not set), ``GKE_WORKSPACES_WALKS_FROM`` the number of the first: the number
is the seed of its walk, and each can be walked again by its name.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from gke_workspaces_spawner.engines.gke_objects import pause_of_trigger
from tests.emulator.api import Api
from tests.emulator.cluster import NAMESPACE
from tests.emulator.hub import EmulatedHub
from tests.emulator.nodes import Nodes
from tests.emulator.running import eventually
from tests.kube.people import Person

WALKS = int(os.environ.get("GKE_WORKSPACES_WALKS", "4"))
FIRST = int(os.environ.get("GKE_WORKSPACES_WALKS_FROM", "1"))
PEOPLE = ("ann", "bob", "eve")
OF_A_PERSON = {"start": 6, "pause": 6, "stop": 2, "cancel": 2, "fresh": 1, "settle": 4, "use": 2}
OF_ALL = {"restart the hub": 1, "kill the hub": 1, "lose a node": 1}
"""What may happen next, and how often beside the rest."""
SETTLE_SECONDS = 90.0


def steps(number: int) -> Iterator[tuple[str, str]]:
    """The steps of the walk with that number, and whose they are (nobody's: "")."""
    chance = random.Random(number)
    what = {**OF_A_PERSON, **OF_ALL}
    for step in chance.choices(list(what), list(what.values()), k=chance.randint(8, 16)):
        yield step, chance.choice(PEOPLE) if step in OF_A_PERSON else ""


@dataclass
class Traveller:
    """What is known of one person's server."""

    person: Person
    life: str | None = None
    """The process that its memory belongs to, as long as nothing that may end it was asked for or has happened."""
    answers: list[tuple[str, int]] = field(default_factory=list)

    async def do(self, what: str) -> None:
        person = self.person
        if what == "start":
            self.note(what, await person.start())
        elif what == "pause":
            self.note(what, await person.status("POST", f"/users/{person.name}/server/pause"))
        elif what == "stop":
            self.life = None if (await person.workspace())["phase"] == "running" else self.life
            self.note(what, await person.status("DELETE", f"/users/{person.name}/server"))
        elif what in ("cancel", "fresh"):
            await self._of_the_pause(what)
        elif what == "settle":
            await self.at_rest()
        elif what == "use":
            await self.use()

    async def _of_the_pause(self, verb: str) -> None:
        pause = (await self.person.workspace()).get("pause")
        if pause is None:
            return
        status = await self.person.status("POST", f"/users/{self.person.name}/server/pause/{pause['id']}/{verb}")
        if verb == "fresh" and status < 300:
            self.life = None
        self.note(verb, status)

    def note(self, what: str, status: int) -> None:
        self.answers.append((what, status))
        assert status < 500, f"{what} of {self.person.name}: {status}"

    async def model(self) -> dict[str, Any]:
        """The hub's word on the server; empty when it is stopped."""
        found: dict[str, Any] = (await self.person.hub.call("GET", f"/users/{self.person.name}"))["servers"].get("", {})
        return found

    async def runs(self) -> bool:
        """Whether it has a pod that has not ended."""
        return any(pod["status"]["phase"] not in ("Failed", "Succeeded") for pod in await self.person.pods())

    async def at_rest(self) -> dict[str, Any]:
        """The workspace once neither it nor the hub has anything under way."""

        async def look() -> dict[str, Any] | None:
            seen = await self.person.at_rest(SETTLE_SECONDS)
            model = await self.model()
            calm = not model.get("pending") and (seen["phase"] != "running" or bool(model.get("ready")) == await self.runs())
            return seen if calm else None

        return await eventually(f"{self.person.name} at rest", look, SETTLE_SECONDS)

    async def use(self) -> None:
        """Work in the server, where it is up: it is the process that it was."""
        try:
            now = await self.person.count()
        except aiohttp.ClientResponseError:
            return  # stopped, paused, or on its way
        if not isinstance(now, dict):
            return  # a page of the hub that says so
        assert self.life in (None, now["boot_id"])
        self.life = now["boot_id"]

    async def check(self) -> None:
        """Hub and cluster agree on this server."""
        seen = await self.at_rest()
        if seen["phase"] == "paused":
            assert not await self.person.pods()
            assert seen["snapshot"] is not None, seen
            assert (await self.person.resume(SETTLE_SECONDS))["phase"] == "running"
            await self.person.ready()
        elif not await self.runs():
            return
        await eventually("an answer", self.person.answers)
        await self.use()
        assert len(await self.person.pods()) == 1


class World:
    """Hub, cluster and people of a walk."""

    def __init__(self, hub: EmulatedHub, admin: Api, nodes: Nodes) -> None:
        self.hub, self.admin, self.nodes = hub, admin, nodes
        self.people = {name: Traveller(Person(hub, name, admin)) for name in PEOPLE}
        self.lost: set[str] = set()
        """Pods of the machine that died last."""
        self.seen: dict[str, list[str]] = {}
        """What :meth:`agree` compared last; a failure shows it."""

    async def walk(self, number: int) -> None:
        for traveller in self.people.values():
            await traveller.person.made()
        for what, who in steps(number):
            if who:
                await self.people[who].do(what)
            elif what == "lose a node":
                await self.lose_a_node()
            else:
                await (self.hub.hub.kill() if what == "kill the hub" else self.hub.hub.stop(15))
                await self.hub.start()
        for traveller in self.people.values():
            await traveller.check()
        await eventually("records and cluster that hold the same snapshots", self.agree)

    async def lose_a_node(self) -> None:
        """The machine of the first server that has one dies; everything on it is gone, and Kubernetes finds out by its lease."""
        for traveller in self.people.values():
            for pod in await traveller.person.pods():
                if name := pod["spec"].get("nodeName"):
                    on_it = [p for p in await self.admin.list("Pod", NAMESPACE) if p["spec"].get("nodeName") == name]
                    await self.nodes.kill(name)
                    for other in self.people.values():
                        if other.person.pod_name in {p["metadata"]["name"] for p in on_it}:
                            other.life = None
                    await self.nodes.revive(name)
                    self.lost = {p["metadata"]["uid"] for p in on_it}
                    await eventually("the end of what ran there", self.lost_have_ended)
                    return

    async def lost_have_ended(self) -> bool:
        pods = await self.admin.list("Pod", NAMESPACE)
        return not any(p["metadata"]["uid"] in self.lost and p["status"]["phase"] == "Running" for p in pods)

    async def names(self, kind: str) -> list[str]:
        return [item["metadata"]["name"] for item in await self.admin.list(kind, NAMESPACE)]

    async def agree(self) -> bool:
        """Each pause of which the cluster has anything is on somebody's shelf, and the other way round, with one PodSnapshot each."""
        shelves = [(await traveller.person.workspace())["snapshots"] for traveller in self.people.values()]
        known = sorted(snapshot["pause_id"] for shelf in shelves for snapshot in shelf)
        triggers = sorted(pause_of_trigger(name) or name for name in await self.names("PodSnapshotManualTrigger"))
        self.seen = {"records": known, "triggers": triggers, "PodSnapshots": await self.names("PodSnapshot")}
        return known == triggers and len(self.seen["PodSnapshots"]) == len(known)


@pytest.mark.parametrize("number", range(FIRST, FIRST + WALKS))
async def test_after_any_walk_hub_and_cluster_agree(hub: EmulatedHub, admin: Api, nodes: Nodes, number: int) -> None:
    print("walk:", "; ".join(f"{who} {what}".strip() for what, who in steps(number)))
    await World(hub, admin, nodes).walk(number)
