"""Writes through a real contents manager: waited for, and refused while the user's processes stand."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.services.contents.filemanager import AsyncFileContentsManager, FileContentsManager
from tornado.web import HTTPError

from jupyter_pause_ext import freeze
from jupyter_pause_ext.quiet import Writes

TEXT = {"type": "file", "format": "text", "content": "x"}


class Slow(AsyncFileContentsManager):
    """A file that takes until it is let go, as one on a slow disk does."""

    async def _save_file(self, *args: Any, **kwargs: Any) -> Any:
        await self.go.wait()
        return await super()._save_file(*args, **kwargs)


async def test_a_write_under_way_is_waited_for_though_its_client_has_gone(tmp_path: Path) -> None:
    manager = Slow(root_dir=str(tmp_path))
    manager.go = asyncio.Event()
    writes = Writes(manager)
    saving = asyncio.ensure_future(manager.save(TEXT, "a.txt"))
    await asyncio.sleep(0)
    assert not await writes.finish(0.001)
    manager.go.set()
    assert await writes.finish(10)
    assert saving.done() or (tmp_path / "a.txt").read_text() == "x"
    await saving


@pytest.mark.parametrize("kind", [AsyncFileContentsManager, FileContentsManager])
async def test_nothing_is_written_while_closed_and_everything_afterwards(tmp_path: Path, kind: type[Any]) -> None:
    manager = kind(root_dir=str(tmp_path))
    writes = Writes(manager)

    async def call(name: str, *args: Any) -> Any:
        result = getattr(manager, name)(*args)
        return await result if asyncio.iscoroutine(result) else result

    await call("save", TEXT, "a.txt")
    writes.closed = True
    before = sorted(path.name for path in tmp_path.rglob("*"))
    calls: list[tuple[Any, ...]] = [("save", TEXT, "b.txt"), ("delete", "a.txt"), ("rename", "a.txt", "c.txt"), ("copy", "a.txt")]
    for wanted in [*calls, ("new_untitled", "", "notebook"), ("create_checkpoint", "a.txt")]:
        with pytest.raises(HTTPError) as refused:
            await call(*wanted)
        assert refused.value.status_code == 503
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    assert (await call("get", "a.txt"))["content"] == "x"
    writes.closed = False
    with pytest.raises(HTTPError):
        await call("save", {"type": "nonsense"}, "b.txt")
    await call("save", TEXT, "b.txt")
    assert await writes.finish(0.001)


@pytest.mark.parametrize(("link", "expected"), [("pid:[4026531836]", False), ("pid:[5]", True), (None, False)])
def test_a_machine_is_no_container(monkeypatch: pytest.MonkeyPatch, link: str | None, expected: bool) -> None:
    def readlink(path: str) -> str:
        if link is None:
            raise PermissionError(path)
        return link

    monkeypatch.setattr(os, "readlink", readlink)
    assert freeze.in_container() is expected
