"""Columns of every type that Parquet has filters for, and files of them."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from conftest import require

pa = require("pyarrow")
pq = require("pyarrow.parquet")

ROWS = 40
_NAIVE = datetime(2024, 2, 29, 23, 59, 59)
_AWARE = _NAIVE.replace(tzinfo=timezone.utc)


def _numbers(kind: Any, first: int = -7) -> Any:
    return pa.array([first + 3 * i for i in range(ROWS)], kind)


def _moments(start: datetime, kind: Any, **step: int) -> Any:
    return pa.array([start + i * timedelta(**step) for i in range(ROWS)], kind)


def _times(kind: Any, **step: int) -> Any:
    return pa.array([(_NAIVE - i * timedelta(**step)).time() for i in range(ROWS)], kind)


COLUMNS: dict[str, Any] = {
    **{f"int{bits}": _numbers(getattr(pa, f"int{bits}")()) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": _numbers(getattr(pa, f"uint{bits}")(), 7) for bits in (8, 16, 32, 64)},
    "uint32 high": pa.array([2**32 - 1 - i for i in range(ROWS)], pa.uint32()),
    "uint64 high": pa.array([2**64 - 1 - i for i in range(ROWS)], pa.uint64()),
    "float16": pa.array([i / 4 for i in range(ROWS)], pa.float16()),
    "float32": pa.array([i / 10 for i in range(ROWS)], pa.float32()),
    "float64": pa.array([i / 10 for i in range(ROWS)], pa.float64()),
    "string": pa.array([f"żelazo {i}" for i in range(ROWS)]),
    "large string": pa.array([f"żelazo {i}" for i in range(ROWS)], pa.large_string()),
    "string view": pa.array([f"a text that is long {i}" for i in range(ROWS)], pa.string_view()),
    "dictionary": pa.array([f"word {i}" for i in range(ROWS)]).dictionary_encode(),
    "binary": pa.array([bytes([i, 255]) for i in range(ROWS)]),
    "fixed binary": pa.array([bytes([i, 255, 0]) for i in range(ROWS)], pa.binary(3)),
    "uuid": pa.array([UUID(int=i << 100) for i in range(ROWS)], pa.uuid()),
    "decimal in fixed": pa.array([Decimal(i - 9) / 100 for i in range(ROWS)], pa.decimal128(9, 2)),
    "wide decimal": pa.array([Decimal(10**36 + i) for i in range(ROWS)], pa.decimal128(38, 0)),
    "decimal256": pa.array([Decimal(i - 9) / 8 for i in range(ROWS)], pa.decimal256(50, 3)),
    "date": pa.array([date(1969, 12, 20) + timedelta(i) for i in range(ROWS)]),
    "time ms": _times(pa.time32("ms"), milliseconds=7),
    "time us": _times(pa.time64("us"), microseconds=7),
    "time ns": _times(pa.time64("ns"), microseconds=7),
    "timestamp s": _moments(_NAIVE, pa.timestamp("s"), seconds=7),
    "timestamp ms": _moments(_NAIVE, pa.timestamp("ms"), milliseconds=7),
    "timestamp us": _moments(_NAIVE, pa.timestamp("us"), microseconds=7),
    "timestamp ns": _moments(_NAIVE, pa.timestamp("ns"), microseconds=7),
    "timestamp UTC": _moments(_AWARE, pa.timestamp("us", "UTC"), microseconds=7),
    "timestamp Berlin": _moments(_AWARE, pa.timestamp("ms", "Europe/Berlin"), milliseconds=7),
    "with nulls": pa.array([i if i % 3 else None for i in range(ROWS)]),
}


def table() -> Any:
    """All columns side by side."""
    return pa.table(COLUMNS)


def shown(name: str) -> list[Any]:
    """What a column shows for its rows: None for nulls, and pandas' Timestamps as datetimes."""
    values = COLUMNS[name]
    if name.startswith("timestamp ns") or name == "time ns":
        values = values.cast(pa.timestamp("us") if "timestamp" in name else pa.time64("us"))
    return list(values.to_pylist())


def write(path: Path, **options: Any) -> Path:
    """A file of all columns, in two row groups."""
    pq.write_table(table(), path, row_group_size=ROWS // 2, **options)
    return path


def data_of(path: Path) -> bytes:
    """The bytes of a file before its footer."""
    whole = path.read_bytes()
    return whole[: len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")]
