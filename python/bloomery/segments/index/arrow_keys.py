"""Values of Arrow columns as keys of filters, and a value that is asked for as one of a column.

What the library takes as a key goes to the filter as it is (docs/decisions/0027). Numbers with a
point, times and decimals, which have no canonical key, are keyed by what their column stores: a
filter here belongs to one column of one file, whose type is known, and rows are compared anyway.
"""

from __future__ import annotations

from datetime import datetime, time
from decimal import Decimal
from numbers import Integral
from typing import Any
from uuid import UUID

from bloomery import _native
from bloomery.errors import NullKey, UnsupportedBatch, UnsupportedKey


def value_type(kind: Any) -> Any:
    """Return the type of a column's values: of a dictionary, that of its values."""
    from pyarrow import types

    return kind.value_type if types.is_dictionary(kind) else kind


def as_keys(column: Any) -> Any:
    """Return a chunked column without its nulls as a batch of keys; UnsupportedBatch if its type
    has none."""
    import pyarrow as pa
    from pyarrow import types

    kind = value_type(column.type)
    if types.is_nested(kind):
        raise UnsupportedBatch(f"{kind} has parts: a value of it cannot be looked up")
    column = column.drop_null()
    if types.is_boolean(kind):
        return column.cast(pa.int8())
    if types.is_floating(kind):
        # -0.0 equals 0.0, and NaN nothing.
        wide = column.cast(pa.float32()) if types.is_float16(kind) else column
        wide = wide.cast(pa.float64())
        return _stored(pa.compute.add(wide, 0.0), pa.int64())
    if types.is_decimal(kind):
        return column.cast(pa.string())
    if types.is_temporal(kind) and not types.is_interval(kind):
        return _stored(column, pa.int32() if kind.bit_width == 32 else pa.int64())
    _native.check_arrow_type(kind)
    return column


def _stored(column: Any, kind: Any) -> Any:
    import pyarrow as pa

    return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)


def as_scalar(value: object, kind: Any) -> Any:
    """Return a value as one of a column of this type; None if no such column can have it."""
    import pyarrow as pa
    from pyarrow import types

    if value is None:
        raise NullKey("a value is None, and no row equals that: look for another value")
    kind = value_type(kind)
    if types.is_null(kind):
        return None
    if types.is_boolean(kind) and isinstance(value, (int, float)) and value not in (0, 1):
        return None
    if _is_uuid(kind):
        return _uuid(value, kind)
    try:
        return _cast(value, kind)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        return None
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError):
        raise UnsupportedKey(
            f"{type(value).__name__} cannot be looked up in a column of type {kind}: give a value "
            "of the column's type, or a str that says it"
        ) from None


def _cast(value: object, kind: Any) -> Any:
    """The value in a column's type, where pyarrow alone would refuse or change what equals it."""
    import pyarrow as pa
    from pyarrow import types

    if isinstance(value, str):
        return _cast_text(value, kind)
    if isinstance(value, datetime):
        return _cast_instant(value, kind)
    if not isinstance(value, bool) and isinstance(value, Integral):
        number = int(value)
        if types.is_decimal(kind):  # which has to have room for 19 digits, else
            value = Decimal(number)
        elif types.is_floating(kind):  # the nearest, as the column has it
            value = float(number)
        elif types.is_string(kind) or types.is_large_string(kind):
            value = str(number)
    try:
        scalar = pa.scalar(value)
    except OverflowError:  # more than 64 bits have, with a sign
        return pa.scalar(value, kind)
    if types.is_float16(kind):  # which pyarrow casts to and from float alone
        return scalar.cast(pa.float32()).cast(kind)
    return scalar.cast(kind)


def _cast_text(value: str, kind: Any) -> Any:
    """Text as a file of text is read: numbers may have spaces around, times have a zone or none."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_integer(kind) or types.is_floating(kind):
        value = value.strip()
    if types.is_float16(kind):
        return pa.scalar(value).cast(pa.float32()).cast(kind)
    if types.is_time(kind):  # to which there is no cast but from an instant
        return pa.scalar(f"1970-01-01 {value}").cast(pa.timestamp("ns")).cast(kind)
    scalar = pa.scalar(value)
    if not types.is_timestamp(kind):
        return scalar.cast(kind)
    try:
        return scalar.cast(kind)
    except pa.ArrowInvalid:  # a zone, and the column has none, or the other way round: UTC
        other = pa.timestamp(kind.unit, "UTC" if kind.tz is None else None)
        return scalar.cast(other).cast(kind)


def _cast_instant(value: datetime, kind: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    nanosecond = getattr(value, "nanosecond", 0)  # of pandas' Timestamp
    if types.is_date(kind) and (value.time() != time(0) or nanosecond):
        return None
    if nanosecond:  # pyarrow takes it for microseconds, unless told
        unit = pa.timestamp("ns", None if value.tzinfo is None else "UTC")
        return pa.scalar(value, unit).cast(kind)
    return pa.scalar(value).cast(kind)


def _is_uuid(kind: Any) -> bool:
    return getattr(kind, "extension_name", "") == "arrow.uuid"


def _uuid(value: object, kind: Any) -> Any:
    import pyarrow as pa

    if isinstance(value, str):
        try:
            value = UUID(value)
        except ValueError:
            return None
    if not isinstance(value, UUID):
        raise UnsupportedKey(
            f"{type(value).__name__} is no UUID: give a UUID, or a str that is one"
        )
    return pa.scalar(value, kind)


def key_of(scalar: Any) -> Any:
    """Return a batch of one key: what `as_keys` makes of such a value."""
    import pyarrow as pa

    if _is_uuid(scalar.type):
        return [scalar.as_py()]
    return as_keys(pa.chunked_array([pa.array([scalar.as_py()], scalar.type)]))


def equal_rows(column: Any, scalar: Any) -> Any:
    """Return a mask of the rows of a chunked column that equal the value; null where they are."""
    import pyarrow as pa
    from pyarrow import compute, types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_uuid(column.type):
        storage = column.type.storage_type
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], storage)
        scalar = pa.scalar(scalar.as_py().bytes, storage)
    if types.is_float16(column.type):
        column, scalar = column.cast(pa.float32()), scalar.cast(pa.float32())
    return compute.equal(column, scalar)
