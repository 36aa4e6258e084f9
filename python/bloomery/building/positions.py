"""A value of an ordering column as JSON, and back: the same value, of the same type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from bloomery.errors import CorruptData, InvalidSource

__all__ = ["decode", "encode"]

# Exact classes: a datetime is a date too. No floats: PostgreSQL writes a float4 as the shortest
# text that reads back as the same float4, and as a float8 that text may be larger: other rows of
# that very value would not be read, and be missing.
_TYPES: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    int: (str, int),
    str: (str, str),
    bytes: (bytes.hex, bytes.fromhex),
    UUID: (str, UUID),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    Decimal: (str, Decimal),
}
_NAMES = {cls.__name__: cls for cls in _TYPES}


def encode(column: str, value: Any) -> list[str]:
    """A value's type and text."""
    if type(value) not in _TYPES:
        raise InvalidSource(
            f"cannot order by the column {column!r}: its values come as {type(value).__name__}; "
            "order by whole numbers, decimals, text, UUIDs or times"
        )
    return [type(value).__name__, _TYPES[type(value)][0](value)]


def decode(position: Any) -> Any:
    """The value."""
    try:
        name, text = position
        return _TYPES[_NAMES[name]][1](text)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
        raise CorruptData("the position to go on from is damaged: begin anew") from None
