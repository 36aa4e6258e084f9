"""A value given in Python becomes what the column stores, or an answer decided on purpose."""

from __future__ import annotations

import math
import struct
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from bloomery.errors import InvalidParameter, NullKey, UnsupportedKey
from bloomery.integrations.parquet.values import stored
from conftest import require

pa = require("pyarrow")
pq = require("pyarrow.parquet")
pd = require("pandas")


def column(kind: Any, **options: Any) -> Any:
    """The column of a file with one column of this type."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"c": pa.array([], kind)}), sink, **options)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema.column(0)


INT32, INT64, UINT64 = column(pa.int32()), column(pa.int64()), column(pa.uint64())
DOUBLE, FLOAT, HALF = column(pa.float64()), column(pa.float32()), column(pa.float16())
CENTS = column(pa.decimal128(9, 2))
CENTS_AS_INT = column(pa.decimal128(9, 2), store_decimal_as_integer=True)
CENTS_AS_LONG = column(pa.decimal128(18, 2), store_decimal_as_integer=True)
TEXT, FIXED, UUIDS = column(pa.string()), column(pa.binary(3)), column(pa.uuid())
DAY, TIME = column(pa.date32()), column(pa.time32("ms"))
MILLIS, NANOS = column(pa.timestamp("ms")), column(pa.timestamp("ns"))
INSTANTS = column(pa.timestamp("us", "UTC"))
UTC = timezone.utc


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        (INT32, 5, [struct.pack("<i", 5)]),
        (INT32, -(2**31), [struct.pack("<i", -(2**31))]),
        (INT32, 5.0, [struct.pack("<i", 5)]),
        (INT32, True, [struct.pack("<i", 1)]),
        (INT32, np.int8(5), [struct.pack("<i", 5)]),
        (INT64, Decimal(5), [struct.pack("<q", 5)]),
        (UINT64, 2**64 - 1, [b"\xff" * 8]),
        (DOUBLE, 5, [struct.pack("<d", 5)]),
        (DOUBLE, Decimal("0.5"), [struct.pack("<d", 0.5)]),
        (DOUBLE, 0.0, [struct.pack("<d", 0.0), struct.pack("<d", -0.0)]),
        (DOUBLE, -0.0, [struct.pack("<d", 0.0), struct.pack("<d", -0.0)]),
        (DOUBLE, math.inf, [struct.pack("<d", math.inf)]),
        (FLOAT, 0.1, [struct.pack("<f", 0.1)]),
        (FLOAT, np.float32(0.1), [struct.pack("<f", 0.1)]),
        (FLOAT, 1e-60, [struct.pack("<f", 0.0), struct.pack("<f", -0.0)]),
        (HALF, 0.25, [struct.pack("<e", 0.25)]),
        (CENTS, Decimal("-1.5"), [(-150).to_bytes(4, "big", signed=True)]),
        (CENTS, Decimal("1.5000"), [(150).to_bytes(4, "big")]),
        (CENTS, Decimal("15E1"), [(15000).to_bytes(4, "big")]),
        (CENTS, 0, [bytes(4)]),
        (CENTS, Decimal("0E-900"), [bytes(4)]),
        (CENTS_AS_INT, 7, [(700).to_bytes(4, "little")]),
        (CENTS_AS_LONG, Decimal("0.07"), [(7).to_bytes(8, "little")]),
        (TEXT, "ż", ["ż".encode()]),
        (TEXT, bytearray(b"a"), [b"a"]),
        (TEXT, "", [b""]),
        (FIXED, b"abc", [b"abc"]),
        (UUIDS, UUID(int=1), [bytes(15) + b"\1"]),
        (UUIDS, UUID(int=1).bytes, [bytes(15) + b"\1"]),
        (DAY, date(1969, 12, 31), [struct.pack("<i", -1)]),
        (TIME, time(0, 0, 1, 2000), [struct.pack("<i", 1002)]),
        (MILLIS, datetime(1970, 1, 1, 0, 0, 1), [struct.pack("<q", 1000)]),
        (MILLIS, datetime(1969, 12, 31, 23, 59, 59), [struct.pack("<q", -1000)]),
        (NANOS, pd.Timestamp(5), [struct.pack("<q", 5)]),
        (NANOS, datetime(1970, 1, 1, 0, 0, 1), [struct.pack("<q", 10**9)]),
        (INSTANTS, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), [struct.pack("<q", 10**6)]),
        (
            INSTANTS,
            datetime(1970, 1, 1, 1, 0, 1, tzinfo=timezone(timedelta(hours=1))),
            [struct.pack("<q", 10**6)],
        ),
    ],
)
def test_stored_bytes(column: Any, value: Any, expected: list[bytes]) -> None:
    """Each type is stored as Parquet's plain encoding has it."""
    assert list(stored(column, value) or ()) == expected


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (INT32, 2**31),
        (INT64, 2**64),
        (INT64, 1.5),
        (INT64, math.inf),
        (INT64, Decimal("1E+999999")),
        (UINT64, -1),
        (DOUBLE, 2**53 + 1),
        (DOUBLE, 10**400),
        (DOUBLE, Decimal("0.1")),
        (FLOAT, 16_777_217),
        (FLOAT, 1e39),
        (CENTS, Decimal("0.005")),
        (CENTS, Decimal("1E+999999")),
        (CENTS, Decimal("1E-999999")),
        (CENTS, Decimal("NaN")),
        (CENTS, 10**12),
        (CENTS_AS_INT, 10**12),
        (FIXED, b"ab"),
        (TIME, time(0, 0, 0, 1)),
        (MILLIS, datetime(1970, 1, 1, 0, 0, 0, 1)),
        (NANOS, datetime(9999, 1, 1)),
        (TEXT, "\ud800"),
    ],
)
def test_what_no_row_can_be_equal_to(column: Any, value: Any) -> None:
    """It is stored in no way: a certain no."""
    assert stored(column, value) == ()


@pytest.mark.parametrize(
    ("column", "value", "right"),
    [
        (INT64, "5", "INT64: pass an int, not str"),
        (DOUBLE, "5", "DOUBLE: pass a float, not str"),
        (INT64, np.timedelta64(5, "s"), "INT64: pass the like, not timedelta64"),
        (DOUBLE, np.timedelta64(5, "s"), "DOUBLE: pass the like, not timedelta64"),
        (CENTS, 0.1, "DECIMAL: pass a Decimal or an int .*, not float"),
        (TEXT, 5, "STRING: pass a str or bytes, not int"),
        (UUIDS, str(UUID(int=1)), "UUID: pass a uuid.UUID, not str"),
        (DAY, datetime(2024, 1, 1), "DATE: pass a date, not datetime"),
        (MILLIS, date(2024, 1, 1), "TIMESTAMP: pass a datetime, not date"),
        (MILLIS, 5, "TIMESTAMP: pass a datetime, not int"),
        (TIME, time(1, tzinfo=UTC), "TIME: pass a time without a zone, not time"),
    ],
)
def test_wrong_types(column: Any, value: Any, right: str) -> None:
    """A value of another type is an error that names the right one, and no silent no."""
    with pytest.raises(UnsupportedKey, match=f"column 'c' holds {right}"):
        stored(column, value)


def test_times_with_and_without_a_zone() -> None:
    """A moment without a zone is no instant, and an instant no moment without a zone."""
    with pytest.raises(InvalidParameter, match="holds instants: pass a datetime with a time zone"):
        stored(INSTANTS, datetime(2024, 1, 1))
    with pytest.raises(InvalidParameter, match="no zone: pass a datetime without a time zone"):
        stored(MILLIS, datetime(2024, 1, 1, tzinfo=UTC))


def test_what_cannot_be_told() -> None:
    """NaN is stored in many ways, and some types have no filters: None, which is a maybe."""
    assert stored(DOUBLE, math.nan) is None
    assert stored(FLOAT, math.nan) is None
    assert stored(column(pa.bool_()), True) is None
    int96 = column(pa.timestamp("ns"), use_deprecated_int96_timestamps=True)
    assert stored(int96, datetime(2024, 1, 1)) is None


def test_null_is_no_value() -> None:
    """Filters hold no nulls: to ask for one is an error."""
    with pytest.raises(NullKey, match="column 'c'"):
        stored(INT64, None)


def test_decimals_in_byte_arrays() -> None:
    """Byte arrays may spell a decimal with more bytes than it needs, so all lengths are tried."""
    # No writer at hand makes such a column.
    fake = type("Column", (), {"physical_type": "BYTE_ARRAY", "scale": 2, "path": "c"})()
    fake.logical_type = CENTS.logical_type
    ways = stored(fake, Decimal("-1.28"))
    assert ways is not None
    assert ways[0] == b"\x80"
    assert ways[-1] == b"\xff" * 31 + b"\x80"
    assert len(ways) == 32
