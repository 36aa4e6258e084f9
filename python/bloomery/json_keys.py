"""Keys as JSON, on the way to a server and there (docs/http.md).

| key | JSON |
|---|---|
| str, int | string, integer |
| tuple | array |
| bytes | `{"base64": "AP8="}`, or a string where the request says `"encoding": "base64"` |
| UUID | `{"uuid": "6f1c…"}` |
| datetime | `{"datetime": "2026-01-31T12:00:00+00:00"}`, ISO 8601 as Python writes it |
"""

from __future__ import annotations

import base64
import operator
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import bloomery._native as _native
from bloomery import errors

_DEEPEST = 64  # tuples in tuples, as a local filter has it
_MOST_PARTS = 4096  # of an array that is a key, those of arrays in it too


def encode_keys(keys: Sequence[Any]) -> list[Any]:
    """Keys as JSON has them; NullKey says in which row a None is."""
    # Most batches are of one of the two that need no change: telling takes 15 ns a key.
    if set(map(type, keys)) <= {str, int}:
        return list(keys)
    values = []
    for row, key in enumerate(keys):
        if key is None:
            raise errors.NullKey(f"row {row} is null: pass nulls='skip' to leave nulls out")
        values.append(encode_key(key))
    return values


def encode_key(key: Any, depth: int = 0) -> Any:
    """A key as JSON has it."""
    # Subclasses by the base's own methods: an Enum's `str` is another text than its value.
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(_native.canonical(key)[1:]).decode()}
    if isinstance(key, tuple):
        if depth > _DEEPEST:
            raise errors.InvalidKey(f"tuples within tuples, more than {_DEEPEST} deep")
        return [encode_key(part, depth + 1) for part in key]
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


# What an object can name as its form: how that is read, and an example of it.
_FORMS: dict[str, tuple[Callable[[str], Any], str]] = {
    "base64": (lambda text: base64.b64decode(text, validate=True), "AP8="),
    "uuid": (UUID, "12345678-1234-5678-1234-567812345678"),
    "datetime": (datetime.fromisoformat, "2026-01-31T12:00:00+00:00"),
}


def decode_key(value: Any, *, encoded: bool = False) -> Any:
    """The key that a JSON value stands for; `encoded`: its strings are base64."""
    kind = type(value)
    if kind is str:
        return _decode_form("base64", value) if encoded else value
    if kind is int:
        return value
    if kind is list:
        try:
            return _tuple(value, encoded, [_MOST_PARTS], _DEEPEST)
        except RecursionError:
            raise errors.InvalidKey("a key is nested too deeply") from None
    if kind is dict:
        return _decode_object(value)
    if value is None:
        raise errors.NullKey("null is no key: leave it out")
    raise errors.UnsupportedKey(
        f"{'a number with a fraction' if kind is float else 'true or false'} is no key: a string, "
        "an integer, an array of these, or an object that names its form is"
    )


def _tuple(value: list[Any], encoded: bool, left: list[int], deeper: int) -> tuple[Any, ...]:
    """An array's key; `left`: how many parts it may still have, `deeper`: arrays in arrays."""
    left[0] -= len(value) + 1
    if left[0] < 0:
        raise errors.InvalidKey(f"a key has more than {_MOST_PARTS:,} parts")
    if deeper == 0:
        raise errors.InvalidKey(f"a key is nested more than {_DEEPEST} deep")
    return tuple(
        _tuple(part, encoded, left, deeper - 1)
        if type(part) is list
        else decode_key(part, encoded=encoded)
        for part in value
    )


def _decode_object(value: dict[str, Any]) -> Any:
    if len(value) == 1:
        ((form, text),) = value.items()
        if form in _FORMS and isinstance(text, str):
            return _decode_form(form, text)
    raise errors.UnsupportedKey(
        'an object is a key only as {"base64": "…"}, {"uuid": "…"} or {"datetime": "…"}'
    )


def _decode_form(form: str, text: str) -> Any:
    read, example = _FORMS[form]
    try:
        return read(text)
    except ValueError:  # binascii.Error is one
        raise errors.InvalidKey(f"a key is not {form}, as {example} is") from None
