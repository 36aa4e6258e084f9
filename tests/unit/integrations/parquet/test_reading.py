"""`read` gives every row that is equal to the value, and no other."""

from __future__ import annotations

import math
import os
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bloomery.errors import InvalidParameter
from bloomery.integrations.parquet import add_bloom, read
from unit.integrations.parquet.columns import COLUMNS, pa, pq, shown, write


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All columns, with filters."""
    path = write(tmp_path_factory.mktemp("parquet") / "a.parquet")
    add_bloom(path, list(COLUMNS), out=path)
    return path


@pytest.mark.parametrize("column", COLUMNS)
def test_rows_of_each_type(file: Path, column: str) -> None:
    """The row of each value is found in whole, and by nothing else."""
    whole = pq.read_table(file)
    for row, value in list(enumerate(shown(column)))[1::12]:
        found = read(file, column, value)
        assert found.num_rows == 1
        assert found.equals(whole.slice(row, 1).combine_chunks())


def test_rows_of_several_row_groups(tmp_path: Path) -> None:
    """Every row is found, in order, wherever it lies, with filters and without."""
    made = pa.table({"id": [i % 10 for i in range(100)], "n": list(range(100))})
    pq.write_table(made, tmp_path / "a.parquet", row_group_size=7)
    add_bloom(tmp_path / "a.parquet", "id", out=tmp_path / "b.parquet")
    for file in ("a.parquet", "b.parquet"):
        assert read(tmp_path / file, "id", 3, ["n"])["n"].to_pylist() == list(range(3, 100, 10))
    add_bloom(tmp_path / "a.parquet", "id", sidecar=tmp_path / "side")
    assert read(tmp_path / "a.parquet", "id", 3, sidecar=tmp_path / "side").num_rows == 10


def test_no_rows(file: Path) -> None:
    """A table without rows has the file's columns all the same, or those asked for."""
    assert read(file, "int64", 10**12).schema.equals(pq.read_table(file).schema)
    assert read(file, "int8", 10**12, ["string"]).column_names == ["string"]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.float16()], ids=str)
def test_zeros_and_nans(tmp_path: Path, kind: Any) -> None:
    """Both zeros are equal, and every NaN is found by NaN, whatever its bits."""
    numbers = pa.array([0.0, -0.0, 1.0, math.nan, -math.nan, None], pa.float32()).cast(kind)
    pq.write_table(pa.table({"x": numbers}), tmp_path / "a.parquet", row_group_size=1)
    add_bloom(tmp_path / "a.parquet", "x", out=tmp_path / "a.parquet")
    for zero in (0.0, -0.0, 0):
        assert read(tmp_path / "a.parquet", "x", zero).num_rows == 2
    assert read(tmp_path / "a.parquet", "x", math.nan).num_rows == 2


def test_file_replaced_while_it_is_read(tmp_path: Path) -> None:
    """Rows are all of the old file or all of the new one: neither is damaged."""
    file, done = tmp_path / "a.parquet", threading.Event()

    def write(version: int) -> None:
        rows = pa.table({"id": [*range(version % 7), 42], "version": [version] * (version % 7 + 1)})
        pq.write_table(rows, tmp_path / "new", row_group_size=2)
        os.replace(tmp_path / "new", file)

    def replace() -> None:
        version = 0
        while not done.is_set():
            version += 1
            write(version)

    write(0)
    writer = threading.Thread(target=replace)
    writer.start()
    try:
        counts = [read(file, "id", 42).num_rows for _ in range(300)]
        assert writer.is_alive()
    finally:
        done.set()
        writer.join()
    assert set(counts) == {1}


def test_within_structs_and_lists(tmp_path: Path) -> None:
    """A field of a struct is looked up by its path; an element of a list is not a row's value."""
    made = pa.table({"user": [{"id": 1}, None, {"id": 3}], "tags": [["a"], [], None]})
    pq.write_table(made, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", "user.id", 3)["user"].to_pylist() == [{"id": 3}]
    with pytest.raises(InvalidParameter, match=r"within lists, .* ask might_contain"):
        read(tmp_path / "a.parquet", "tags.list.element", "a")


def test_types_without_filters(tmp_path: Path) -> None:
    """Bools are compared row by row; timestamps of 96 bits are refused, never a silent no."""
    pq.write_table(pa.table({"flag": [True, False, True]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", "flag", True).num_rows == 2
    file = write(tmp_path / "b.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(InvalidParameter, match="INT96 cannot be looked up"):
        read(file, "timestamp us", datetime(2024, 1, 1))


def test_unknown_columns(file: Path) -> None:
    """A column that is not there is an error."""
    with pytest.raises(InvalidParameter, match="has no column 'nobody'"):
        read(file, "nobody", 1)
    with pytest.raises(InvalidParameter, match="has no column 'nobody'"):
        read(file, "int64", 1, ["nobody"])
