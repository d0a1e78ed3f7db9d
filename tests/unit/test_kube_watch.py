"""A watch never gives up: outages, versions that are too old and servers that end every watch at once leave it following again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gke_workspaces_spawner.kube import watch as module
from gke_workspaces_spawner.kube.client import POD, Cluster
from gke_workspaces_spawner.kube.errors import Forbidden, Gone, KubeError, Unavailable
from gke_workspaces_spawner.kube.watch import Watch


def pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"namespace": "hub", "name": name, "resourceVersion": str(version)}}


class Server(Cluster):
    """An API server with some pods that fails as told."""

    def __init__(self) -> None:
        self.pods = {"a": pod("a", 1)}
        self.version = 1
        self.lists = 0
        self.watched_from: list[str] = []
        self.failure: KubeError | None = None
        self.always: KubeError | None = None
        """What every watch ends with at once."""
        self.events: asyncio.Queue[tuple[str, dict[str, Any]] | Exception | None] = asyncio.Queue()

    def change(self, kind: str, name: str, *, told: bool = True) -> None:
        self.version += 1
        each = pod(name, self.version)
        if kind == "DELETED":
            self.pods.pop(name, None)
        else:
            self.pods[name] = each
        if told:
            self.events.put_nowait((kind, each))

    async def list(self, *_arguments: Any, **_more: Any) -> tuple[list[dict[str, Any]], str]:
        self.lists += 1
        if self.failure is not None:
            raise self.failure
        return list(self.pods.values()), str(self.version)

    async def watch(self, *_arguments: Any, **_more: Any) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        self.watched_from.append(str(_arguments[4]))
        if self.always is not None:
            raise self.always
        while True:
            event = await self.events.get()
            if event is None:
                return
            if isinstance(event, Exception):
                raise event
            yield event


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(module, "LONGEST_DELAY", 0.004)


@pytest.fixture
async def followed(server: Server) -> AsyncIterator[Watch]:
    watch = Watch(server, POD, "hub", logging.getLogger(__name__))
    await watch.loaded()
    yield watch
    await watch.stop()


async def names(watch: Watch, *expected: str) -> None:
    """Until it shows those and no others."""
    end = asyncio.get_running_loop().time() + 5
    while {key.partition("/")[2] for key in watch.objects} != set(expected) or not watch.fresh:
        assert asyncio.get_running_loop().time() < end, (watch.objects, watch.fresh)
        await asyncio.sleep(0.001)


async def test_what_is_there_and_what_changes_is_seen(followed: Watch, server: Server):
    await names(followed, "a")
    server.change("ADDED", "b")
    server.change("DELETED", "a")
    await names(followed, "b")
    assert followed.get("hub", "b") == server.pods["b"]
    assert server.lists == 1


async def test_a_watch_that_the_server_ends_goes_on_from_where_it_was(followed: Watch, server: Server):
    server.change("ADDED", "b")
    server.events.put_nowait(None)
    server.change("ADDED", "c")
    await names(followed, "a", "b", "c")
    assert server.lists == 1
    assert server.watched_from == ["1", "2"]


async def test_a_version_that_is_too_old_leads_to_a_new_picture(followed: Watch, server: Server):
    server.change("DELETED", "a", told=False)
    server.change("ADDED", "b", told=False)
    server.events.put_nowait(Gone(410, "too old resource version"))
    await names(followed, "b")
    assert server.lists == 2


async def test_an_outage_of_any_length_ends_in_the_truth(followed: Watch, server: Server):
    server.failure = Unavailable(0, "connection refused")
    server.events.put_nowait(server.failure)
    while server.lists < 60:  # with the real delays: five minutes
        await asyncio.sleep(0.001)
    assert not followed.fresh
    assert set(followed.objects) == {"hub/a"}
    server.change("DELETED", "a", told=False)
    server.change("ADDED", "b", told=False)
    server.failure = None
    await names(followed, "b")


async def test_a_right_that_is_missing_for_a_while_is_no_end(followed: Watch, server: Server):
    server.failure = Forbidden(403, "pods is forbidden")
    server.events.put_nowait(server.failure)
    while server.lists < 5:
        await asyncio.sleep(0.001)
    server.failure = None
    await names(followed, "a")


@pytest.mark.parametrize("error", [KeyError("resourceVersion"), RuntimeError("a bug")], ids=repr)
async def test_an_answer_of_another_shape_is_no_end(followed: Watch, server: Server, error: Exception):
    """The reflectors of KubeSpawner start it once: a task that dies would leave them with a dead picture for ever."""
    server.events.put_nowait(error)
    server.change("ADDED", "b", told=False)
    await names(followed, "a", "b")


@pytest.mark.parametrize("error", [Gone(410, "too old"), Forbidden(403, "may list, may not watch")], ids=repr)
async def test_a_server_that_lists_and_lets_nobody_watch_is_not_asked_in_a_loop(
    server: Server, error: KubeError, monkeypatch: pytest.MonkeyPatch
):
    waits: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await real(0)

    monkeypatch.setattr(module, "LONGEST_DELAY", 5.0)
    monkeypatch.setattr(module, "FIRST_DELAY", 0.1)
    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    server.always = error
    watch = Watch(server, POD, "hub", logging.getLogger(__name__))
    watch.start()
    while len(server.watched_from) < 12:
        await real(0)
    await watch.stop()
    assert sum(waits[:11]) > 20
    assert server.lists <= len(waits) + 1


async def test_the_picture_is_always_the_same_dict(followed: Watch, server: Server):
    """KubeSpawner holds on to it."""
    kept = followed.objects
    server.events.put_nowait(Gone(410, ""))
    server.change("ADDED", "b")
    await names(followed, "a", "b")
    assert followed.objects is kept


async def test_whoever_waits_for_a_change_is_woken(followed: Watch, server: Server):
    waiting = asyncio.ensure_future(followed.next_change(5))
    await asyncio.sleep(0)
    server.change("ADDED", "b")
    await asyncio.wait_for(waiting, 1)
    assert "hub/b" in followed.objects
