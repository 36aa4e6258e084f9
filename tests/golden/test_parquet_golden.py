"""Files with filters that pyarrow, DuckDB and Spark wrote are read, asked, and agreed with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bloomery.integrations.parquet import add_bloom, inspect, might_contain, read
from conftest import require

pq = require("pyarrow.parquet")

FOLDER = Path(__file__).parent / "parquet"
WRITERS = ["pyarrow", "duckdb", "spark"]


@pytest.mark.parametrize("writer", WRITERS)
def test_every_value_is_a_maybe(writer: str) -> None:
    """No engine's filter is asked another way than it was filled: never a no of what is there."""
    file = FOLDER / f"{writer}.parquet"
    table = pq.read_table(file)
    filtered = {filter.column for filter in inspect(file).filters}
    assert len(filtered) >= 12
    for name in filtered:
        for group, rows in enumerate(_row_groups(file, name)):
            assert all(might_contain(file, name, value)[group] for value in set(rows)), name
    assert filtered <= set(table.column_names)


@pytest.mark.parametrize("writer", WRITERS)
def test_absent_values_are_mostly_a_no(writer: str) -> None:
    """The filters tell: of values that are not there, next to all are a certain no."""
    file = FOLDER / f"{writer}.parquet"
    absent = [might_contain(file, "long", 10**6 + i) for i in range(200)]
    absent += [might_contain(file, "string", f"nobody-{i}") for i in range(200)]
    assert sum(map(sum, absent)) / sum(map(len, absent)) < 0.05


@pytest.mark.parametrize("writer", WRITERS)
def test_rows_are_found(writer: str) -> None:
    """Reading by a value gives what reading all of it and comparing gives."""
    file = FOLDER / f"{writer}.parquet"
    table = pq.read_table(file)
    expected = [row for row in table.to_pylist() if row["string"] == "user-42"]
    assert read(file, "string", "user-42").to_pylist() == expected
    assert read(file, "dec30", expected[0]["dec30"]).to_pylist() == expected
    assert read(file, "ts", expected[0]["ts"]).to_pylist() == expected


@pytest.mark.parametrize(("writer", "rate"), [("pyarrow", 0.05), ("duckdb", 0.05), ("spark", 0.01)])
def test_ours_has_the_same_bits(writer: str, rate: float, tmp_path: Path) -> None:
    """Of a row group and a size, there is one filter: where ours is as large, it is theirs."""
    file, ours = FOLDER / f"{writer}.parquet", tmp_path / "ours.parquet"
    theirs = inspect(file).filters
    add_bloom(file, sorted({f.column for f in theirs}), rate, out=ours)
    rates = {(f.row_group, f.column): f for f in inspect(ours).filters}
    same = [f for f in theirs if rates[f.row_group, f.column].num_bytes == f.num_bytes]
    assert len(same) >= 10
    assert all(rates[f.row_group, f.column] == f for f in same)


def _row_groups(file: Path, column: str) -> list[list[Any]]:
    reader = pq.ParquetFile(file)
    groups = range(reader.metadata.num_row_groups)
    return [reader.read_row_group(g, columns=[column])[column].to_pylist() for g in groups]
