"""Sizes as KubeSpawner and Kubernetes write them."""

from __future__ import annotations

from typing import Any

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_KUBERNETES = {**_BINARY, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_KUBESPAWNER = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def quantity(value: Any) -> int | None:
    """Bytes of a Kubernetes quantity such as ``10Gi``; None for what is none, or not positive."""
    return _bytes(value, _KUBERNETES)


def memory(value: Any) -> int | None:
    """Bytes of KubeSpawner's ``mem_limit``, whose ``G`` is 1024 cubed; None for what is none, or not positive."""
    return _bytes(value, _KUBESPAWNER)


def cores(value: Any) -> float | None:
    """KubeSpawner's ``cpu_limit``; None for what is none, or not positive."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if value > 0 else None


def _bytes(value: Any, units: dict[str, int]) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return int(value) if value > 0 and value != float("inf") else None
    if not isinstance(value, str):
        return None
    text = value.strip()
    unit = next((each for each in sorted(units, key=len, reverse=True) if text.endswith(each)), "")
    number = text[: len(text) - len(unit)]
    if not number.replace(".", "", 1).isdecimal() or not number.isascii():
        return None
    return int(float(number) * units.get(unit, 1)) or None


def binary(size: int) -> str:
    """Bytes as a Kubernetes quantity, in whole units."""
    for unit in ("Gi", "Mi", "Ki"):
        if size % _BINARY[unit] == 0:
            return f"{size // _BINARY[unit]}{unit}"
    return str(size)
