"""The emulated save comes to its end whatever is deleted meanwhile: what it tests against is never the thing that falls over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.emulator.matching import NodeFacts
from tests.emulator.saves import Plan, Save, Tools

POLICY = {"metadata": {"name": "p"}, "spec": {"triggerConfig": {"type": "manual"}, "storageConfigName": "c"}}
TRIGGER = {"metadata": {"name": "t", "namespace": "hub", "uid": "u"}, "spec": {"targetPod": "jupyter-ann"}}


class Everything:
    """The API server, the node's agent, the pod and the bucket, of which the PodSnapshot goes away in the middle of the checkpoint."""

    uid, name, namespace, node = "u", "jupyter-ann", "hub", "n"

    def __init__(self) -> None:
        self.pod = {"metadata": {"name": self.name}, "spec": {"containers": [{"name": "notebook", "image": "i"}]}}
        self.instance = self
        self.made: dict[str, Any] = {}
        self.there = False
        self.files: set[str] = set()
        self.said: list[str] = []

    async def insist(self, call: Callable[[], Awaitable[Any]]) -> Any:
        return await call()

    async def create(self, item: Any) -> Any:
        self.there = True
        return item

    async def patch(self, *_: Any, **__: Any) -> Any:
        return {"metadata": {}} if self.there else None

    def tell(self, *_: Any) -> None: ...

    def look(self, *_: Any) -> None: ...

    take = look

    async def freeze(self) -> None: ...

    async def checkpoint(self, folder: Path) -> None:
        (folder / "pages.img").write_bytes(b"x")
        self.there = False
        self.made.clear()

    async def ended(self) -> None:
        await asyncio.Event().wait()

    async def go_on(self, word: str) -> None:
        self.said.append(word)

    async def upload(self, bucket: str, prefix: str, folder: Path) -> None:
        self.files.add(prefix)

    async def remove(self, bucket: str, prefix: str) -> None:
        self.files.discard(prefix.rstrip("/"))


async def test_a_snapshot_deleted_in_the_middle_of_its_checkpoint_lets_the_pod_go_on_and_leaves_no_files(tmp_path: Path) -> None:
    world: Any = Everything()
    plan = Plan(TRIGGER, world, POLICY, {}, NodeFacts("n2", "amd64", "1", "", "", "x"), "bucket", "hub/")
    told: list[tuple[str, str]] = []

    async def tell_trigger(_trigger: Any, status: str, reason: str, _message: str, _name: str = "") -> None:
        told.append((status, reason))

    async def keep_newest(*_: Any) -> None:
        raise AssertionError("it is not there")

    await Save(Tools(world, world, world, world, world.made, tmp_path), plan, tell_trigger, keep_newest).run()
    assert world.said == ["resume"]
    assert told == [("True", "Complete")]
    assert not world.files
    assert not list(tmp_path.iterdir())
