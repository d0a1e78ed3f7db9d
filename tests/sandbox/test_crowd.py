"""Many sandboxes restored at the same moment (report 57 of the bank), small enough for every run."""

from __future__ import annotations

import asyncio
import time

from .conftest import Lab, Session

CROWD = 20
MEGABYTES = 16
LATE_SECONDS = 20


async def test_57_twenty_come_back_at_once_while_another_one_starts_fresh(lab: Lab) -> None:
    names = [f"s{number}" for number in range(CROWD)]
    digests: dict[str, str] = {}
    for name in names:
        session = await lab.up(name, lab.spec(name=name), MEGABYTES)
        digests[name] = await session.run("return hashlib.sha256(data).hexdigest()")
        await lab.pause(name, f"p-{name}", f"x-{name}")
    assert len(set(digests.values())) == CROWD

    async def late() -> float:
        begin = time.monotonic()
        await lab.up("late", lab.spec(name="late"), 1)
        return time.monotonic() - begin

    *sessions, took = await asyncio.gather(*(lab.resume(name, f"x-{name}") for name in names), late())
    assert took < LATE_SECONDS
    assert len({session.ip for session in sessions if isinstance(session, Session)}) == CROWD
    for name, session in zip(names, sessions, strict=True):
        assert isinstance(session, Session)
        assert await session.run("return hashlib.sha256(data).hexdigest()") == digests[name]
