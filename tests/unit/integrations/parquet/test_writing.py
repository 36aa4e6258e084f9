"""`add_bloom` writes a file that is the old one with filters, or a sidecar beside it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bloomery.errors import InvalidParameter, NotEnoughMemory
from bloomery.integrations.parquet import add_bloom, inspect, might_contain
from bloomery.storage import memory
from conftest import require
from unit.integrations.parquet.columns import COLUMNS, ROWS, data_of, pa, pq, table, write

np = require("numpy")


def test_data_is_copied_byte_for_byte(tmp_path: Path) -> None:
    """All before the footer is as it was; pyarrow reads the same table, statistics and schema."""
    file, out = write(tmp_path / "a.parquet", write_page_index=True), tmp_path / "b.parquet"
    add_bloom(file, list(COLUMNS), out=out)
    assert data_of(out).startswith(data_of(file))
    assert pq.read_table(out).equals(pq.read_table(file))
    old, new = pq.ParquetFile(file), pq.ParquetFile(out)
    assert new.schema_arrow.equals(old.schema_arrow, check_metadata=True)
    assert new.metadata.metadata == old.metadata.metadata
    for group in range(2):
        for number in range(len(COLUMNS)):
            before = old.metadata.row_group(group).column(number)
            after = new.metadata.row_group(group).column(number)
            assert after.bloom_filter_offset is not None
            changed = ("bloom_filter_offset", "bloom_filter_length")
            kept = {key: value for key, value in before.to_dict().items() if key not in changed}
            assert kept.items() <= after.to_dict().items()
            assert after.has_offset_index


def test_filters_are_sized_by_distinct_values(tmp_path: Path) -> None:
    """A row group with few distinct values has a small filter, however many rows it has."""
    ids = pa.array([*range(5000), *[7] * 5000])
    pq.write_table(pa.table({"id": ids}), tmp_path / "a.parquet", row_group_size=5000)
    many, few = add_bloom(tmp_path / "a.parquet", "id", 0.01, out=tmp_path / "b.parquet")
    assert (many.distinct, few.distinct) == (5000, 1)
    assert (many.num_bytes, few.num_bytes) == (8192, 32)
    rates = [f.estimated_error_rate for f in inspect(tmp_path / "b.parquet").filters]
    assert all(rate <= 0.01 for rate in rates)


def test_observed_error_rate(tmp_path: Path) -> None:
    """Absent values are a maybe no more often than was allowed."""
    pq.write_table(pa.table({"id": range(20_000)}), tmp_path / "a.parquet", row_group_size=200)
    add_bloom(tmp_path / "a.parquet", "id", 0.05, out=tmp_path / "a.parquet")
    wrong = sum(sum(might_contain(tmp_path / "a.parquet", "id", 10**6 + i)) for i in range(50))
    assert wrong / 5000 <= 0.06


def test_in_place_and_again(tmp_path: Path) -> None:
    """The file may be its own successor, and a column's filter be replaced by another."""
    file = write(tmp_path / "a.parquet")
    os.chmod(file, 0o640)
    add_bloom(file, ["int64"], 0.1, out=file)
    add_bloom(file, ["int64", "string"], 1e-4, out=file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert pq.read_table(file).equals(table().cast(pq.read_schema(file)))
    found = inspect(file).filters
    assert [(f.row_group, f.column) for f in found] == [
        (0, "int64"), (0, "string"), (1, "int64"), (1, "string")
    ]  # fmt: skip
    assert all(f.estimated_error_rate < 1e-3 for f in found)
    assert might_contain(file, "int64", -7) == [True, False]


def test_filters_of_other_columns_stay(tmp_path: Path) -> None:
    """What pyarrow has written for another column is there still, and answers."""
    file = write(tmp_path / "a.parquet", bloom_filter_options={"string": {"ndv": ROWS}})
    add_bloom(file, "int64", out=tmp_path / "b.parquet")
    found = inspect(tmp_path / "b.parquet").filters
    assert {f.column for f in found} == {"int64", "string"}
    assert might_contain(tmp_path / "b.parquet", "string", "żelazo 3")[0]


@pytest.mark.parametrize(
    "made",
    [
        pa.table({"id": pa.array([], pa.int64())}),
        pa.table({"id": pa.array([None, None], pa.string())}),
        pa.table({"id": pa.nulls(3)}),
    ],
    ids=["no rows", "nulls only", "no type"],
)
def test_columns_without_values(tmp_path: Path, made: Any) -> None:
    """Files of no rows, and of nulls alone, have filters of nothing."""
    pq.write_table(made, tmp_path / "a.parquet")
    add_bloom(tmp_path / "a.parquet", "id", out=tmp_path / "b.parquet")
    assert pq.read_table(tmp_path / "b.parquet").equals(made)
    assert {f.num_bytes for f in inspect(tmp_path / "b.parquet").filters} <= {32}


def test_no_row_groups(tmp_path: Path) -> None:
    """A file without a single row group stays one."""
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema({"id": pa.int64()})):
        pass
    assert add_bloom(tmp_path / "a.parquet", "id", out=tmp_path / "b.parquet") == []
    assert might_contain(tmp_path / "b.parquet", "id", 5) == []
    assert pq.read_table(tmp_path / "b.parquet").num_rows == 0


def test_progress(tmp_path: Path) -> None:
    """Whoever waits is told of every filter."""
    told: list[tuple[int, int]] = []
    file = write(tmp_path / "a.parquet")
    progress = lambda done, total: told.append((done, total))  # noqa: E731
    add_bloom(file, ["int64"], sidecar=tmp_path / "s", progress=progress)
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"columns": "int64"}, "pass either out, a new file, or sidecar"),
        ({"columns": "int64", "out": "b", "sidecar": "c"}, "pass either out"),
        ({"columns": [], "out": "b"}, "columns is empty"),
        ({"columns": "nobody", "out": "b"}, "has no column 'nobody': name one of int8, int16"),
        ({"columns": "int64", "error_rate": 2, "out": "b"}, "error_rate must be a number"),
        ({"columns": "flags", "out": "b"}, "stored as BOOLEAN, for which Parquet has no filters"),
        ({"columns": "int64", "sidecar": "a.parquet"}, "is the file itself"),
    ],
)
def test_wrong_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], problem: str
) -> None:
    """What cannot be done is one error, and no file is left behind."""
    monkeypatch.chdir(tmp_path)
    flags = table().append_column("flags", pa.array([True] * ROWS))
    pq.write_table(flags, "a.parquet")
    with pytest.raises(InvalidParameter, match=problem):
        add_bloom("a.parquet", **options)
    assert os.listdir() == ["a.parquet"]


def test_int96_is_refused(tmp_path: Path) -> None:
    """Timestamps of 96 bits have no filters."""
    file = write(tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(InvalidParameter, match="stored as INT96"):
        add_bloom(file, "timestamp us", out=tmp_path / "b.parquet")


def test_columns_of_one_name(tmp_path: Path) -> None:
    """Two columns of one name cannot be told apart; one whose name has a dot can be meant."""
    twice = pa.table([pa.array([1]), pa.array([2])], names=["id", "id"])
    pq.write_table(twice, tmp_path / "a.parquet")
    with pytest.raises(InvalidParameter, match="has 2 columns 'id'"):
        add_bloom(tmp_path / "a.parquet", "id", out=tmp_path / "b.parquet")
    pq.write_table(pa.table({"a": [1], "a.b": [2]}), tmp_path / "a.parquet")
    add_bloom(tmp_path / "a.parquet", ["a", "a.b"], out=tmp_path / "b.parquet")
    assert might_contain(tmp_path / "b.parquet", "a", 1) == [True]
    assert might_contain(tmp_path / "b.parquet", "a.b", 2) == [True]
    assert might_contain(tmp_path / "b.parquet", "a", 2) == [False]


def write_long_keys(file: Path, rows: int) -> str:
    """Write a map in each row, whose only key has 64 MiB: a file of some kilobytes."""
    long = "a" * (64 << 20)
    row = pa.array([[(long, 1)]], pa.map_(pa.string(), pa.int32()))
    table = pa.table({"map": pa.chunked_array([row] * rows)})
    pq.write_table(table, file, compression="zstd", use_dictionary=False, write_statistics=False)
    return long


def test_nested_column_of_more_than_2_gib(tmp_path: Path) -> None:
    """pyarrow does not read such a column in one piece; memory is bounded by the longest page."""
    file = tmp_path / "a.parquet"
    long = write_long_keys(file, 33)
    assert file.stat().st_size < 1 << 20
    program = """
import sys
from bloomery.integrations.parquet import add_bloom
(added,) = add_bloom(sys.argv[1], "map.key_value.key", out=sys.argv[2])
assert (added.distinct, added.num_bytes) == (1, 32)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, file, tmp_path / "b.parquet"],
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert int(done.stdout) < 1 << 20  # KiB, of 2 GiB that are decoded
    assert might_contain(tmp_path / "b.parquet", "map.key_value.key", long) == [True]
    assert might_contain(tmp_path / "b.parquet", "map.key_value.key", "b") == [False]


def test_page_that_does_not_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before it is decoded, as the kernel would end the process."""
    file = tmp_path / "a.parquet"
    write_long_keys(file, 1)
    monkeypatch.setattr(memory, "available", lambda: 4 * (64 << 20))
    with pytest.raises(NotEnoughMemory, match=r"a page of 67,.* needs 268,"):
        add_bloom(file, "map.key_value.key", out=tmp_path / "b.parquet")
    assert not (tmp_path / "b.parquet").exists()
    monkeypatch.setattr(memory, "available", lambda: 5 * (64 << 20))
    assert add_bloom(file, "map.key_value.key", out=tmp_path / "b.parquet")


def test_small_pages_of_a_large_column_need_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is the longest page, and not all of the row group."""
    numbers = pa.array(range(1000)).take(pa.array(np.arange(10_000_000) % 1000))
    table = pa.table({"x": numbers})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10**7, use_dictionary=False)
    monkeypatch.setattr(memory, "available", lambda: 8 << 20)
    (added,) = add_bloom(tmp_path / "a.parquet", "x", out=tmp_path / "b.parquet")
    assert added.distinct == 1000
