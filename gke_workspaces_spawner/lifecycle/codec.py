"""Dataclasses to JSON and back, for records that outlive the program that wrote them.

Unknown fields are ignored and missing ones take their default; a value of the wrong kind, a missing field without a default, a
number that is not finite, or a nesting too deep is ``Broken('record_unreadable')``: never half a record, never another error.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from .reasons import Broken

DEPTH_LIMIT = 60


def unreadable(detail: str) -> Broken:
    """The one error of this module."""
    return Broken("record_unreadable", detail)


def parse(text: str | bytes) -> Any:
    """JSON of an unknown hand as Python values."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unreadable(f"not JSON: {type(error).__name__}") from error


def encode(value: Any) -> Any:
    """A dataclass (or what is in it) as what ``json.dumps`` takes and :func:`decode` reads; fields at their default are left out.

    What no JSON text can hold (a lone surrogate, a number that is not finite) is replaced, so that what user code said can never
    make a record unreadable.
    """
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        given = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: encode(v) for f, v in given if v != f.default or isinstance(v, (Enum, bool))}
    if isinstance(value, Mapping):
        return {encode(str(k)): encode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def decode(kind: Any, value: Any, where: str = "record") -> Any:
    """``value`` as ``kind``: a dataclass, an enum, a plain type, a tuple, a mapping, or a union with ``None``."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        (kind,) = (a for a in typing.get_args(kind) if a is not type(None))
        return decode(kind, value, where)
    if kind is Any:
        return plain(value, where)
    if is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise unreadable(f"{where}: no list")
        return tuple(decode(typing.get_args(kind)[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise unreadable(f"{where}: no object")
        return plain(value, where)
    return _decode_scalar(kind, value, where)


def plain(value: Any, where: str, depth: int = DEPTH_LIMIT) -> Any:
    """JSON of any shape: finite numbers, texts that can be written, and not too deep."""
    if depth <= 0:
        raise unreadable(f"{where}: too deep")
    if isinstance(value, dict):
        return {_decode_scalar(str, k, where): plain(v, where, depth - 1) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v, where, depth - 1) for v in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float, str)):
        return _decode_scalar(type(value), value, where)
    raise unreadable(f"{where}: no JSON value")


@cache
def _kinds(kind: type) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _decode_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise unreadable(f"{where}: no object")
    given = {}
    for field in fields(kind):
        if field.name in value:
            given[field.name] = decode(_kinds(kind)[field.name], value[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise unreadable(f"{where}.{field.name} is missing")
    return kind(**given)


def _decode_scalar(kind: Any, value: Any, where: str) -> Any:
    if issubclass(kind, Enum):
        try:
            return kind(value)
        except ValueError:
            raise unreadable(f"{where}: unknown value") from None
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            raise unreadable(f"{where}: too big") from None
        if math.isfinite(number):
            return number
    elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)) and _writable(value):
        return value
    raise unreadable(f"{where}: not {kind.__name__}")


def _writable(value: Any) -> bool:
    """Whether databases and JSON of other programs take it: 64-bit integers, texts without lone surrogates."""
    if isinstance(value, int):
        return abs(value) < 2**63
    return not (isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value))
