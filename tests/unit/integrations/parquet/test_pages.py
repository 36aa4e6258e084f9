"""Of a row group just the pages are read that a row is in, and the rows are those of all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bloomery.errors import CorruptData
from bloomery.integrations.parquet import read
from bloomery.integrations.parquet.layout import ParquetLayout
from bloomery.integrations.parquet.pages import rows_of_pages, take_rows
from unit.integrations.parquet.columns import pa, pq

ROWS = 3000
# Pages of other lengths in each column, of which the text has the most.
MADE = pa.table(
    {
        "id": pa.array(range(ROWS)),
        "text": pa.array([None if i % 7 == 0 else f"text {i}" * (i % 5) for i in range(ROWS)]),
        "few": pa.array([f"one of {i % 3}" for i in range(ROWS)]),
        "flag": pa.array([i % 3 == 0 for i in range(ROWS)]),
        "day": pa.array(range(ROWS), pa.int32()).cast(pa.date32()),
    }
)
WAYS: dict[str, dict[str, Any]] = {
    "as usual": {},
    "no dictionaries": {"use_dictionary": False},
    "second version": {"data_page_version": "2.0"},
    "not compressed": {"compression": "none", "use_dictionary": ["few"]},
    "zstd, checksums": {"compression": "zstd", "write_page_checksum": True},
}


def _write(path: Path, **options: Any) -> Path:
    pq.write_table(MADE, path, row_group_size=ROWS // 2, data_page_size=400, **options)
    return path


def _in_pages(file: Path, group: int, rows: list[int], schema: Any) -> Any:
    with ParquetLayout(file, None) as layout:
        return rows_of_pages(layout, group, np.array(rows), schema, {})


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_those_of_the_row_group(tmp_path: Path, way: str) -> None:
    """One row or several, in one page or in many, in pages that end at other rows by column."""
    file = _write(tmp_path / "a.parquet", write_batch_size=64, **WAYS[way])
    for rows in ([0], [ROWS // 2 - 1], [700], [3, 4, 900, 901, 1400], list(range(ROWS // 2))):
        for group in (0, 1):
            found = _in_pages(file, group, rows, MADE.schema)
            assert found is not None
            assert found.equals(MADE.slice(group * ROWS // 2).take(rows))
    assert read(file, "id", 2222, ["day", "text"]).equals(
        pq.read_table(file, columns=["day", "text"]).slice(2222, 1).combine_chunks()
    )


def test_few_pages_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the file's data little is read for one row."""
    file = _write(tmp_path / "a.parquet", write_batch_size=64, use_dictionary=False)
    fetched = []
    whole = ParquetLayout.read_into

    def counted(layout: ParquetLayout, offset: int, target: memoryview) -> None:
        fetched.append(len(target))
        whole(layout, offset, target)

    monkeypatch.setattr(ParquetLayout, "read_into", counted)
    assert _in_pages(file, 0, [700], MADE.schema).num_rows == 1
    assert 0 < sum(fetched) < file.stat().st_size / 10


def test_what_cannot_be_cut_is_read_whole(tmp_path: Path) -> None:
    """Columns within lists and structs, and headers that are too long, are not cut."""
    nested = pa.table({"id": [1, 2], "tags": [["a"], []], "user": [{"id": 1}, None]})
    pq.write_table(nested, tmp_path / "a.parquet")
    for name in ("tags", "user"):
        schema = nested.select(["id", name]).schema
        assert _in_pages(tmp_path / "a.parquet", 0, [0], schema) is None
    assert read(tmp_path / "a.parquet", "id", 2).to_pylist() == nested.slice(1).to_pylist()
    long = pa.table({"id": [1, 2], "text": ["a" * 3000, "b" * 3000]})
    for version in ("1.0", "2.0"):
        pq.write_table(long, tmp_path / "b.parquet", data_page_version=version)
        assert read(tmp_path / "b.parquet", "id", 2).equals(long.slice(1))


def test_damaged_pages_give_what_pyarrow_gives_or_an_error(tmp_path: Path) -> None:
    """Whichever bit is wrong: the rows as they were, or as pyarrow reads them from that file, or
    CorruptData."""
    small = pa.table({"id": list(range(40)), "text": [f"text {i}" for i in range(40)]})
    file = tmp_path / "a.parquet"
    pq.write_table(small, file, data_page_size=40, write_batch_size=8, compression="none")
    data = file.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    refused = 0
    for at in range(4, footer):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        file.write_bytes(damaged)
        try:
            found = read(file, "id", 21)
        except CorruptData:
            refused += 1
            continue
        if not found.equals(small.slice(21, 1)):
            table = pq.read_table(file)
            wanted = [i for i, number in enumerate(table["id"].to_pylist()) if number == 21]
            assert found.equals(table.take(pa.array(wanted, pa.int64())))
    assert refused


def _header(values: int, num_bytes: int) -> bytes:
    """The header of a data page, as Thrift writes it."""

    def number(value: int) -> bytes:
        value, digits = value << 1, b"\x15"
        while value > 127:
            digits, value = digits + bytes([value & 127 | 128]), value >> 7
        return digits + bytes([value])

    about = b"".join(map(number, [values, 0, 3, 3]))
    return b"".join(map(number, [0, 100, num_bytes])) + b"\x2c" + about + b"\0\0"


def test_pages_that_claim_more_values_than_there_are_rows(tmp_path: Path) -> None:
    """Even if they add up, to so many that the sum overflows: they are not cut."""
    file = tmp_path / "a.parquet"
    table = pa.table({"text": [f"text {i}" for i in range(40)]})
    pq.write_table(table, file, use_dictionary=False, compression="none")
    place = pq.read_metadata(file).row_group(0).column(0)
    start, length = place.data_page_offset, place.total_compressed_size
    pages = _header(2**63 - 1, 0) * 2
    rest = length - len(pages)
    pages += next(h for n in range(rest) if len(h := _header(42, n)) + n == rest)
    data = bytearray(file.read_bytes())
    data[start : start + len(pages)] = pages
    file.write_bytes(data)
    assert _in_pages(file, 0, [21], table.schema) is None
    with pytest.raises(CorruptData):
        read(file, "text", "text 21")


def test_rows_of_chunks_that_cannot_be_put_together() -> None:
    """Of text no more than 2 GiB can be one array; here nobody touches the long text."""
    long, short = 3 << 29, 1000
    offsets = np.append(0, np.arange(long, long + short + 1)).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.zeros(long + short, np.uint8))]
    chunk = pa.Array.from_buffers(pa.string(), short + 1, buffers)
    table = pa.table({"text": pa.chunked_array([chunk, chunk])})
    assert take_rows(table, np.array([short, 2 * short])).column(0).to_pylist() == ["\0", "\0"]
