"""Keys as JSON: what each of Python's keys becomes on the way to a server (docs/http.md)."""

from __future__ import annotations

import base64
import operator
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import bloomery._native as _native
from bloomery import errors

__all__ = ["dumped", "form", "forms", "lines", "loaded"]

_DEEPEST = 64


@lru_cache
def _encoder(between: str) -> Callable[[Any], str]:
    """What writes JSON. Made once: `json.dumps` would make one for each key."""
    import json  # not before it is needed: `bloomery dedup` starts without it

    return json.JSONEncoder(ensure_ascii=False, separators=(between, ":")).encode


def dumped(value: Any, between: str = ",") -> bytes:
    """JSON bytes; InvalidKey for a string that has no UTF-8."""
    try:
        return _encoder(between)(value).encode()
    except UnicodeEncodeError:
        raise errors.InvalidKey("a str with a lone surrogate has no UTF-8 and is no key") from None


def loaded(content: bytes) -> Any:
    """The value of JSON bytes."""
    import json

    return json.loads(content)


def lines(keys: list[Any]) -> bytes:
    """Strings and ints, each as a line of JSON."""
    return dumped(keys, "\n")[1:-1] + b"\n"


def forms(keys: Sequence[Any]) -> list[Any]:
    """Keys as JSON has them; NullKey says in which row a None is."""
    # Most batches are of one of the two that need no change: telling takes 15 ns a key.
    if set(map(type, keys)) <= {str, int}:
        return list(keys)
    made = []
    for row, key in enumerate(keys):
        if key is None:
            raise errors.NullKey(f"row {row} is null: pass nulls='skip' to leave nulls out")
        made.append(form(key))
    return made


def form(key: Any, depth: int = 0) -> Any:
    """A key as JSON has it."""
    # Subclasses by the base's own methods: an Enum's `str` is another text than its value.
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(_native.canonical(key)[1:]).decode()}
    if isinstance(key, tuple):
        if depth > _DEEPEST:
            raise errors.InvalidKey(f"tuples within tuples, more than {_DEEPEST} deep")
        return [form(part, depth + 1) for part in key]
    if isinstance(key, UUID):
        return {"uuid": str(key)}
    if isinstance(key, datetime):
        if type(key) is not datetime:
            _native.canonical(key)  # raises at what `isoformat` leaves out: nanoseconds, NaT
        return {"datetime": datetime.isoformat(key)}
    if isinstance(key, int):
        return int.__index__(key)
    # NumPy's bool says that it is no int, its arrays that they are.
    dtype = getattr(key, "dtype", None)
    try:
        if type(key).__name__ != "ndarray":
            return int(key) if getattr(dtype, "kind", "") == "b" else int(operator.index(key))
    except TypeError:
        pass
    raise errors.UnsupportedKey(
        f"{type(key).__name__} cannot be a key: str, bytes, int, UUID, datetime and tuples of "
        "these can; turn it into one of them"
    )
