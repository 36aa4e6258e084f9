"""Keys as JSON has them: what Python's key a value stands for.

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
import binascii
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from bloomery import errors

__all__ = ["decoded", "key_of"]

_MOST_DEEP = 64  # as the library has it
MOST_PARTS = 4096  # of an array that is a key, those of arrays in it too


def decoded(text: str) -> bytes:
    """Bytes that came as base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _not("base64") from None


def _not(form: str) -> errors.InvalidKey:
    return errors.InvalidKey(f"a key is not {form}, as {_EXAMPLES[form]} is")


_EXAMPLES = {
    "base64": "AP8=",
    "uuid": "12345678-1234-5678-1234-567812345678",
    "datetime": "2026-01-31T12:00:00+00:00",
}
_FORMS: dict[str, Callable[[str], Any]] = {
    "base64": decoded,
    "uuid": UUID,
    "datetime": datetime.fromisoformat,
}


def key_of(value: Any, *, encoded: bool = False) -> Any:
    """The key that a JSON value stands for; `encoded`: its strings are base64."""
    kind = type(value)
    if kind is str:
        return decoded(value) if encoded else value
    if kind is int:
        return value
    if kind is list:
        try:
            return _tuple(value, encoded, [MOST_PARTS], _MOST_DEEP)
        except RecursionError:
            raise errors.InvalidKey("a key is nested too deeply") from None
    if kind is dict:
        return _of_form(value)
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
        raise errors.InvalidKey(f"a key has more than {MOST_PARTS:,} parts")
    if deeper == 0:
        raise errors.InvalidKey(f"a key is nested more than {_MOST_DEEP} deep")
    return tuple(
        _tuple(part, encoded, left, deeper - 1)
        if type(part) is list
        else key_of(part, encoded=encoded)
        for part in value
    )


def _of_form(value: dict[str, Any]) -> Any:
    if len(value) == 1:
        ((form, text),) = value.items()
        read = _FORMS.get(form)
        if read is not None and isinstance(text, str):
            try:
                return read(text)
            except ValueError:
                raise _not(form) from None
    raise errors.UnsupportedKey(
        'an object is a key only as {"base64": "…"}, {"uuid": "…"} or {"datetime": "…"}'
    )
