"""Values of Arrow columns as keys of filters, and a value that is asked for as one of a column.

What the library takes as a key goes to the filter as it is (docs/decisions/0027). Numbers with a
point, times and decimals, which have no canonical key, are keyed by what their column stores: a
filter here belongs to one column of one file, whose type is known, and rows are compared anyway.
"""

from __future__ import annotations

import math
import struct
from datetime import datetime, time, timedelta
from decimal import Decimal
from numbers import Integral, Real
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
    """Return a value as one of a column of this type; None if no such column can have it.

    A value that the type would change is None too: 1.234 is not in a column of cents. Only a
    column of floats stands for the nearest number, as a column of text stands for its digits.
    """
    import pyarrow as pa
    from pyarrow import types

    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        raise NullKey("a value is None, and no row equals that: look for another value")
    kind = value_type(kind)
    if types.is_null(kind):
        return None
    if isinstance(value, pa.Scalar) and not types.is_temporal(value.type):
        value = value.as_py()  # a time stays: Python has no year 300,000
    if _is_uuid(kind):
        return _uuid(value, kind)
    try:
        if isinstance(value, str):
            scalar = _cast_text(value, kind)
        elif _is_number(value):
            scalar = _cast_number(value, kind)
        else:
            scalar = _cast_other(value, kind)
        return scalar if scalar is not None and scalar.is_valid else None  # pandas has a NaT
    except (ValueError, ArithmeticError):  # as Arrow's, of surrogates, or of a signaling NaN
        return None
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError):
        raise UnsupportedKey(
            f"{type(value).__name__} cannot be looked up in a column of type {kind}: give a value "
            "of the column's type, or a str that says it"
        ) from None


def _is_number(value: object) -> bool:
    # NumPy has its timedelta64 among the integers.
    is_span = isinstance(value, Integral) and not hasattr(value, "__index__")
    return isinstance(value, Real | Decimal) and not is_span


def _cast_number(value: Any, kind: Any) -> Any:
    """A number in a column's type; None if that would be another number."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_floating(kind):
        return _nearest(value, kind)
    if types.is_boolean(kind):
        return pa.scalar(bool(value)) if value in (0, 1) else None
    if types.is_integer(kind):
        if not isinstance(value, Integral) and not math.isfinite(value):
            return None
        if value != int(value):
            return None
        return pa.scalar(int(value), kind)
    if types.is_decimal(kind):
        if isinstance(value, Integral):
            value = int(value)
        elif not isinstance(value, Decimal):
            value = str(value)  # 1.23 is that, and not the 1.2299999999999999822 that floats have
        return pa.scalar(Decimal(value)).cast(kind)
    if not isinstance(value, bool) and isinstance(value, Integral):
        if _is_text(kind):
            return pa.scalar(str(int(value)), kind)
        value = int(value)
    return pa.scalar(value).cast(kind)


_FLOATS = {16: "<e", 32: "<f", 64: "<d"}


def _nearest(value: Any, kind: Any) -> Any:
    """The nearest number of a type of floats; None if all that is near is an infinity or zero."""
    import pyarrow as pa

    code = _FLOATS[kind.bit_width]
    (number,) = struct.unpack(code, struct.pack(code, float(value)))  # OverflowError: too large
    if math.isinf(number) and abs(value) != math.inf:  # a Decimal of 400 digits
        return None
    if number == 0 and value != 0:
        return None
    # pyarrow casts to halves from float alone.
    return pa.scalar(number, pa.float32()).cast(kind) if code == "<e" else pa.scalar(number, kind)


def _cast_text(value: str, kind: Any) -> Any:
    """Text as a file of text is read: numbers may have spaces around, times have a zone or none."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_floating(kind):
        value = value.strip().lower()
        number = pa.scalar(value).cast(pa.float64()).as_py()
        if math.isinf(number) and "inf" not in value:
            return None
        if number == 0 and any(digit in "123456789" for digit in value.partition("e")[0]):
            return None
        return _nearest(number, kind)
    if types.is_integer(kind):
        value = value.strip()
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


def _cast_other(value: object, kind: Any) -> Any:
    """A time, bytes or what else Arrow has a type for."""
    import pyarrow as pa
    from pyarrow import types

    if isinstance(value, time) and value.tzinfo is not None and value.utcoffset() != timedelta(0):
        return None  # whose zone pyarrow leaves out
    # Of pandas' Timestamp and Timedelta, of which pyarrow takes microseconds, unless told.
    if getattr(value, "nanosecond", 0) and isinstance(value, datetime):
        scalar = pa.scalar(value, pa.timestamp("ns", None if value.tzinfo is None else "UTC"))
    elif getattr(value, "nanoseconds", 0) and isinstance(value, timedelta):
        scalar = pa.scalar(value, pa.duration("ns"))
    else:
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
    if types.is_temporal(scalar.type) and not (types.is_temporal(kind) or _is_text(kind)):
        raise TypeError  # a number of which unit?
    if not types.is_timestamp(scalar.type):
        return scalar.cast(kind)
    if types.is_time(kind):
        return None  # which pyarrow would leave the date out for
    if types.is_date(kind):
        instant = scalar.cast(pa.timestamp(scalar.type.unit))  # by UTC, as times are compared
        day = instant.cast(kind)
        return day if day.cast(instant.type) == instant else None
    return scalar.cast(kind)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


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
    return as_keys(pa.chunked_array([pa.repeat(scalar, 1)]))  # Python has not all times


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
