"""What the values of a column are as keys, and how a value that is asked for is compared with them.

Equality is SQL's, within the column's own type: NULL equals nothing, and NaN does not either. A
type that the library has as keys is hashed as it is; of others the bits are, where equal values
have equal bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import bloomery._native as _native
from bloomery.errors import InvalidParameter, UnsupportedBatch

if TYPE_CHECKING:
    import pyarrow as pa


def comparable_type(name: str, kind: pa.DataType) -> pa.DataType:
    """The type in which values of a column are compared; InvalidParameter if there is none."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if isinstance(kind, pa.UuidType):
        return kind.storage_type
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if _is_key(kind) or _bits_type(kind) is not None:
        return kind
    raise InvalidParameter(
        f"the column {name!r} is of type {kind}, whose values are not compared: leave it out of "
        "columns, or cast it to integers, text, binary, dates, times, decimals, bools or floats"
    )


def comparable(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of a column in the type in which they are compared."""
    import pyarrow as pa

    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    return values if values.type == kind else values.cast(kind)


def keys(values: pa.Array) -> pa.Array:
    """A column of a type that can be compared, as what the native core hashes."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    if isinstance(values, pa.ExtensionArray):
        return values.storage
    if types.is_dictionary(values.type) and not _is_key(values.type):
        values = values.cast(values.type.value_type)
    if _is_key(values.type):
        return values
    if types.is_boolean(values.type):
        return values.cast(pa.uint8())
    if types.is_floating(values.type):  # 0.0 and -0.0 are equal, and the sum of both is 0.0
        values = pc.add(values, pa.scalar(0.0, values.type))
    return values.view(_bits_type(values.type))


def scalar(name: str, value: object, kind: pa.DataType) -> pa.Scalar | None:
    """A value that is asked for, in the column's type; None for NULL, which equals nothing."""
    import pyarrow as pa

    if isinstance(value, pa.Scalar):
        if value.type == kind and pa.types.is_temporal(kind) and value.is_valid:
            return value  # Python has not all times
        value = _shown(value)
    if value is None:
        return None
    given = getattr(value, "bytes", value) if kind == pa.binary(16) else value  # a UUID
    try:
        scalar = pa.scalar(given, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        scalar = None
    # pyarrow cuts off what a type does not hold: the time of a date, the half of 1.5.
    if scalar is None or not _same(_shown(scalar), given):
        raise InvalidParameter(
            f"{name} is {value!r}, which no value of the column's type ({kind}) equals: ask for a "
            "value of that type"
        )
    return scalar


def _shown(scalar: pa.Scalar) -> Any:
    """What Python has for it; the scalar itself if it has nothing, as of the year 10,000."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar


def _same(held: Any, given: Any) -> bool:
    try:
        return bool(held == given)
    except (TypeError, ValueError):
        return False


def _is_key(kind: pa.DataType) -> bool:
    import pyarrow as pa

    # Extension types of users cannot be hashed.
    return _checked(kind) if isinstance(kind, pa.BaseExtensionType) else _cached_check(kind)


def _checked(kind: pa.DataType) -> bool:
    import pyarrow as pa

    try:
        _native.check_arrow_type(pa.field("", kind))
    except UnsupportedBatch:
        return False
    return not pa.types.is_nested(kind)


_cached_check = lru_cache(256)(_checked)  # the same few types are asked for with every question


def _bits_type(kind: pa.DataType) -> pa.DataType | None:
    """A type that the core hashes, of the same width; None unless equal values are equal there."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_boolean(kind):
        return pa.uint8()
    if types.is_decimal(kind):
        return pa.binary(kind.bit_width // 8)
    if types.is_floating(kind) or (types.is_temporal(kind) and not types.is_interval(kind)):
        return {32: pa.int32(), 64: pa.int64()}.get(kind.bit_width)
    return None
