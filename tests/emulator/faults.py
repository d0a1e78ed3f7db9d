"""Faults, read from the ConfigMap whenever it changes; what each one does is in ``faults.toml``."""

from __future__ import annotations

import asyncio
import fnmatch
from collections import Counter
from pathlib import Path

from .api import Api, Informer, Object

NAMESPACE, NAME = "emulator", "emulator-faults"
TABLES = Path(__file__).parent
"""Where ``faults.toml`` and ``behaviours.toml`` are."""


class Fault:
    """One switched-on fault."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        words = [word for word in text.split() if word not in ("on", "true")]
        self._words = {name: value or "yes" for name, _, value in (word.partition("=") for word in words)}
        self._used: Counter[str] = Counter()

    def get(self, word: str, default: str = "") -> str:
        return self._words.get(word, default)

    def seconds(self, default: float = 0.0) -> float:
        return float(self.get("seconds", str(default)))

    def fits(self, pod: str, node: str) -> bool:
        return fnmatch.fnmatchcase(pod, self.get("pod", "*")) and fnmatch.fnmatchcase(node, self.get("node", "*"))

    def take(self, pod: str) -> bool:
        """Count one use; False when it was used as often as it may be."""
        if "times" in self._words and self._used[pod] >= int(self._words["times"]):
            return False
        self._used[pod] += 1
        return True


class Faults:
    """Those that are on now."""

    def __init__(self, informer: Informer) -> None:
        self.on: dict[str, Fault] = {}
        self._change = asyncio.Event()
        self.appeared: asyncio.Queue[Fault] = asyncio.Queue()
        """Faults that were switched on (or changed), in order."""
        informer.listen(self._read)

    def _read(self, _old: Object | None, new: Object | None) -> None:
        if new is None or (new["metadata"]["namespace"], new["metadata"]["name"]) != (NAMESPACE, NAME):
            return
        data = new.get("data") or {}
        before = self.on
        self.on = {name: before[name] if name in before and before[name].text == text else Fault(name, text) for name, text in data.items()}
        for name, fault in self.on.items():
            if before.get(name) is not fault:
                self.appeared.put_nowait(fault)
        self._change.set()
        self._change = asyncio.Event()

    def look(self, name: str, pod: str = "", node: str = "") -> Fault | None:
        """The fault if it is on and fits, without counting a use."""
        fault = self.on.get(name)
        return fault if fault is not None and fault.fits(pod, node) else None

    def take(self, name: str, pod: str = "", node: str = "") -> Fault | None:
        """The fault if it is on, fits and may be used once more."""
        fault = self.look(name, pod, node)
        return fault if fault is not None and fault.take(pod) else None

    async def next_change(self) -> None:
        """Wait until something is switched."""
        await self._change.wait()

    async def while_on(self, name: str, pod: str = "", node: str = "", seconds: float = float("inf")) -> None:
        """Return when that fault is off, or after ``seconds``."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self.look(name, pod, node) is not None and loop.time() < end:
            waiter = asyncio.ensure_future(self._change.wait())
            try:
                await asyncio.wait([waiter], timeout=None if seconds == float("inf") else end - loop.time())
            finally:
                waiter.cancel()


async def set_faults(api: Api, **faults: str | None) -> None:
    """Switch faults: underscores stand for hyphens, ``None`` switches one off."""
    data = {name.replace("_", "-"): text for name, text in faults.items()}
    await api.patch("ConfigMap", NAMESPACE, NAME, {"data": data})


async def clear_faults(api: Api) -> None:
    """Switch all off."""
    current = (await api.get("ConfigMap", NAMESPACE, NAME)).get("data") or {}
    await api.patch("ConfigMap", NAMESPACE, NAME, {"data": dict.fromkeys(current)})
