"""A value of Python as a Parquet column stores it: the bytes that its filters hash.

The rule: a value stands for the rows that Python would call equal to what the column shows for
them. What no row can be equal to (an int out of range, half a cent in a column of whole ones) is
stored in no way at all: the answer is a certain no. What has the wrong type is one error, not a no.
"""

from __future__ import annotations

import json
import math
import struct
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from numbers import Integral, Real
from typing import Any
from uuid import UUID

from bloomery.errors import InvalidParameter, NullKey, UnsupportedKey

_NANOSECONDS = {"milliseconds": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}
_WIDTHS = {"INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
# Decimals in byte arrays should have as few bytes as possible, and some writers' have more: 16 and
# 32 are Arrow's.
_LONGEST_DECIMAL = 32


def stored(column: Any, value: object) -> tuple[bytes, ...] | None:
    """All ways in which the column may store the value, none if no row can be equal to it; None if
    that cannot be told: a NaN has many, and two types of Parquet have no filters."""
    if value is None:
        raise NullKey(f"None is no value: filters say nothing of nulls in column {column.path!r}")
    if isinstance(value, Integral) and not hasattr(value, "__index__"):
        raise _wrong(column, value, "the like")  # NumPy has its timedelta64 among the integers
    if column.physical_type in ("BOOLEAN", "INT96"):
        return None
    logical = column.logical_type.type
    if logical == "DECIMAL":
        return _decimal(column, value)
    if logical in ("TIME", "TIMESTAMP") and _unit(column) is None:
        return None  # a unit of a later version of Parquet
    if logical in ("DATE", "TIME", "TIMESTAMP"):
        number = _SINCE[logical](column, value)
        return () if number is None else _integer(column, number)
    if logical == "UUID" and not isinstance(value, bytes):
        if not isinstance(value, UUID):
            raise _wrong(column, value, "a uuid.UUID")
        return (value.bytes,)
    if column.physical_type in ("FLOAT", "DOUBLE") or logical == "FLOAT16":
        return _floating(column, value)
    if column.physical_type in ("INT32", "INT64"):
        return _whole(column, value)
    if not isinstance(value, str | bytes | bytearray | memoryview):
        raise _wrong(column, value, "a str or bytes")
    try:
        data = value.encode() if isinstance(value, str) else bytes(value)
    except UnicodeEncodeError:  # half a surrogate pair, which UTF-8 does not have
        return ()
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY" and len(data) != column.length:
        return ()
    return (data,)


def _wrong(column: Any, value: object, right: str) -> UnsupportedKey:
    kind = column.logical_type.type
    shown = column.physical_type if kind in ("NONE", "UNKNOWN") else kind
    return UnsupportedKey(
        f"column {column.path!r} holds {shown}: pass {right}, not {type(value).__name__}"
    )


def _whole(column: Any, value: object) -> tuple[bytes, ...]:
    if isinstance(value, Integral):
        return _integer(column, int(value))
    if not isinstance(value, Real | Decimal):
        raise _wrong(column, value, "an int")
    number: Any = value
    if not math.isfinite(number) or abs(number) >= 2**64 or number != int(number):
        return ()
    return _integer(column, int(number))


def _integer(column: Any, number: int) -> tuple[bytes, ...]:
    """A number in a column of 32 or 64 bits."""
    about = json.loads(column.logical_type.to_json())
    signed = bool(about.get("isSigned", True))
    try:
        return (number.to_bytes(_WIDTHS[column.physical_type], "little", signed=signed),)
    except OverflowError:
        return ()


def _floating(column: Any, value: object) -> tuple[bytes, ...] | None:
    if not isinstance(value, Real | Decimal):
        raise _wrong(column, value, "a float")
    try:
        number = float(value)
        code = {"FLOAT": "<f", "DOUBLE": "<d"}.get(column.physical_type, "<e")
        if math.isnan(number):
            return None
        data = struct.pack(code, number)
    except OverflowError:
        return ()
    # A float stands for the nearest that the column can hold, as in every engine; an int or a
    # Decimal is meant as it is.
    (nearest,) = struct.unpack(code, data)
    if isinstance(value, Integral | Decimal) and nearest != value:
        return ()
    # The two zeros are equal, and stored differently.
    if nearest == 0:
        return (struct.pack(code, 0.0), struct.pack(code, -0.0))
    return (data,)


def _decimal(column: Any, value: object) -> tuple[bytes, ...]:
    if not isinstance(value, Integral | Decimal):
        right = "a Decimal or an int (a float is rarely what it seems: Decimal('0.1'))"
        raise _wrong(column, value, right)
    exact = value if isinstance(value, Decimal) else Decimal(int(value))
    if not exact.is_finite():
        return ()
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    number, shift = int("".join(map(str, digits)) or "0"), exponent + column.scale
    if number and shift > 100:
        return ()  # larger than any decimal of Parquet's
    if shift < 0:
        if number and -shift > len(digits):
            return ()
        number, rest = divmod(number, 10 ** min(-shift, len(digits) + 1))
        if rest:
            return ()
    elif number:
        number *= 10**shift
    return _unscaled(column, -number if sign else number)


def _unscaled(column: Any, number: int) -> tuple[bytes, ...]:
    """The whole number of a decimal's smallest units."""
    if column.physical_type in _WIDTHS:
        return _integer(column, number)
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        lengths = range(column.length, column.length + 1)
    else:
        # As many bytes as hold its bits and its sign; longer ones say the same.
        least = (number if number >= 0 else ~number).bit_length() // 8 + 1
        lengths = range(least, max(least, _LONGEST_DECIMAL) + 1)
    try:
        return tuple(number.to_bytes(length, "big", signed=True) for length in lengths)
    except OverflowError:
        return ()


def _date(column: Any, value: object) -> int | None:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _wrong(column, value, "a date")
    return value.toordinal() - date(1970, 1, 1).toordinal()


def _time(column: Any, value: object) -> int | None:
    if not isinstance(value, time) or value.tzinfo is not None:
        raise _wrong(column, value, "a time without a zone")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return _in_units(column, (seconds * 1_000_000 + value.microsecond) * 1_000)


def _timestamp(column: Any, value: object) -> int | None:
    if not isinstance(value, datetime):
        raise _wrong(column, value, "a datetime")
    instants = json.loads(column.logical_type.to_json())["isAdjustedToUTC"]
    if instants != (value.utcoffset() is not None):
        raise InvalidParameter(
            f"column {column.path!r} holds "
            + (
                "instants: pass a datetime with a time zone (tzinfo=timezone.utc)"
                if instants
                else "times of no zone: pass a datetime without a time zone"
            )
        )
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc if instants else None)
    since = (value - epoch) // timedelta(microseconds=1)
    # pandas' Timestamp is a datetime with nanoseconds.
    return _in_units(column, since * 1_000 + int(getattr(value, "nanosecond", 0)))


def _in_units(column: Any, nanoseconds: int) -> int | None:
    """In the column's unit; None if it is too coarse for it."""
    number, rest = divmod(nanoseconds, _unit(column) or 1)
    return None if rest else number


def _unit(column: Any) -> int | None:
    """How many nanoseconds the column's unit has, if that is known."""
    return _NANOSECONDS.get(json.loads(column.logical_type.to_json()).get("timeUnit"))


_SINCE = {"DATE": _date, "TIME": _time, "TIMESTAMP": _timestamp}
