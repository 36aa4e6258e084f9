"""Adds filters to a Parquet file: its data byte for byte, then the filters, then a new footer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bloomery._native as _native
from bloomery.errors import InvalidParameter
from bloomery.extras import needed
from bloomery.integrations.parquet.layout import (
    MAGIC,
    SIDECAR,
    SIDECAR_MAGIC,
    ParquetLayout,
)
from bloomery.sizing.limits import check_error_rate
from bloomery.storage.files import replacing

with needed("pyarrow", "bloomery.integrations.parquet"):
    import pyarrow as pa


@dataclass(frozen=True)
class AddedFilter:
    """A filter that was added: where, for how many distinct values, and how large."""

    row_group: int
    column: str
    distinct: int
    num_bytes: int


def add_bloom(
    file: str | os.PathLike[str],
    columns: str | Sequence[str],
    error_rate: float = 0.01,
    *,
    out: str | os.PathLike[str] | None = None,
    sidecar: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[AddedFilter]:
    """Give columns of a Parquet file filters, as large as each row group's distinct values need.

    `out` is the new file, which pyarrow, DuckDB and Spark read as any other; it may be the file
    itself, which is then replaced in one step. Or `sidecar`, a file of filters beside one that must
    not change, for the functions of this module. Pages of data are copied and not decoded; filters
    that the columns had are replaced. `progress` is called with how many are done, and of how many.
    """
    rate = check_error_rate(error_rate)
    if (out is None) == (sidecar is None):
        raise InvalidParameter("pass either out, a new file, or sidecar, a file beside the old one")
    named = [columns] if isinstance(columns, str) else list(columns)
    if not named:
        raise InvalidParameter("columns is empty: name the columns that are to have filters")
    with ParquetLayout(file, None) as layout:
        numbers = [layout.column(name) for name in dict.fromkeys(named)]
        for number in numbers:
            _refuse_without_filters(layout.columns[number])
        target = Path(str(out if sidecar is None else sidecar))
        if sidecar is not None and os.path.realpath(target) == os.path.realpath(file):
            raise InvalidParameter(f"{target} is the file itself: a sidecar stands beside it")
        added = []
        with replacing(target) as written:
            if sidecar is None:
                layout.copy_data(written)
            else:
                identity = (layout.footer_start, layout.checksum, layout.mtime_ns)
                written.write(SIDECAR.pack(SIDECAR_MAGIC, *identity))
            at, places = layout.footer_start, []
            total = len(numbers) * len(layout.footer.rows)
            for filter, bits in _filters(layout, numbers, rate):
                header = _native.parquet_filter_header(len(bits))
                written.write(header)
                written.write(bits)
                length = len(header) + len(bits)
                places.append((filter.row_group, layout.column(filter.column), at, length))
                at += length
                added.append(filter)
                progress(len(added), total)
            footer = layout.footer.with_filters(places)
            written.write(footer + len(footer).to_bytes(4, "little") + MAGIC)
        return added


def _refuse_without_filters(column: Any) -> None:
    if column.physical_type in ("BOOLEAN", "INT96"):
        raise InvalidParameter(
            f"column {column.path!r} is stored as {column.physical_type}, for which Parquet has no "
            "filters: leave it out, or store it as another type"
        )


def _filters(
    layout: ParquetLayout, columns: list[int], error_rate: float
) -> Iterator[tuple[AddedFilter, bytes]]:
    """The filters of all row groups, one by one."""
    for group in range(len(layout.footer.rows)):
        for number in columns:
            values = map(_as_bytes, layout.stored_rows(group, number))
            bits, distinct = _native.parquet_filter(values, error_rate)
            path = layout.columns[number].path
            yield AddedFilter(group, path, distinct, len(bits)), bits


def _as_bytes(values: Any) -> Any:
    """Numbers as the bytes that they are stored as; byte arrays are such already."""
    if pa.types.is_primitive(values.type):
        return values.view(pa.binary(values.type.bit_width // 8))
    return values
