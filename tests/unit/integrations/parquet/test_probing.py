"""`might_contain` never says no of a row that is there, whoever wrote the filter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bloomery.integrations.parquet import add_bloom, might_contain
from unit.integrations.parquet.columns import COLUMNS, ROWS, pq, shown, write


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same table with filters by pyarrow, with filters by us, and with none."""
    folder = tmp_path_factory.mktemp("parquet")
    options = {name: {"ndv": ROWS, "fpp": 0.0001} for name in COLUMNS}
    found = {"pyarrow": write(folder / "pyarrow.parquet", bloom_filter_options=options)}
    found["none"] = write(folder / "none.parquet")
    found["ours"] = folder / "ours.parquet"
    add_bloom(found["none"], list(COLUMNS), 1e-5, out=found["ours"])
    return found


@pytest.mark.parametrize("writer", ["pyarrow", "ours"])
@pytest.mark.parametrize("column", COLUMNS)
def test_values_of_each_type(files: dict[str, Path], writer: str, column: str) -> None:
    """Every value is found in the row group that holds it, and next to none in the other."""
    wrong = 0
    for row, value in enumerate(shown(column)):
        if value is not None:
            answers = might_contain(files[writer], column, value)
            assert answers[row // (ROWS // 2)], (row, value)
            wrong += all(answers)
    assert wrong <= 1


def test_no_filter_is_a_maybe(files: dict[str, Path]) -> None:
    """A row group without a filter may hold anything."""
    assert might_contain(files["none"], "int64", 10**15) == [True, True]


def test_what_cannot_be_there_is_a_certain_no(files: dict[str, Path]) -> None:
    """A value that no row of the type can be equal to needs no filter."""
    assert might_contain(files["none"], "int32", 2**40) == [False, False]


def test_sidecar(tmp_path: Path) -> None:
    """A sidecar answers as the file with filters does, and the file beside it is as it was."""
    file = write(tmp_path / "a.parquet")
    before = file.read_bytes()
    add_bloom(file, ["int64", "string"], 1e-5, sidecar=tmp_path / "a.bloom")
    assert file.read_bytes() == before
    for row, value in enumerate(shown("int64")):
        answers = might_contain(file, "int64", value, sidecar=tmp_path / "a.bloom")
        assert answers[row // (ROWS // 2)]
        assert sum(answers) == 1
    # What the file has by itself is not lost.
    assert might_contain(file, "float64", 0.1, sidecar=tmp_path / "a.bloom") == [True, True]


def test_nested_columns(tmp_path: Path) -> None:
    """Leaves within structs, lists and maps have filters too, named by their paths."""
    rows: list[Any] = [
        {"user": {"id": 1}, "tags": ["a", None], "counts": [("x", 10)]},
        {"user": None, "tags": [], "counts": None},
        {"user": {"id": None}, "tags": None, "counts": []},
        {"user": {"id": 4}, "tags": ["b"], "counts": [("y", None), ("z", 30)]},
    ]
    pa = pytest.importorskip("pyarrow")
    kinds = pa.schema(
        {
            "user": pa.struct({"id": pa.int64()}),
            "tags": pa.list_(pa.string()),
            "counts": pa.map_(pa.string(), pa.int32()),
        }
    )
    pq.write_table(pa.Table.from_pylist(rows, kinds), tmp_path / "a.parquet", row_group_size=2)
    leaves = ["user.id", "tags.list.element", "counts.key_value.key", "counts.key_value.value"]
    added = add_bloom(tmp_path / "a.parquet", leaves, 1e-5, out=tmp_path / "b.parquet")
    assert [filter.distinct for filter in added] == [1, 1, 1, 1, 1, 1, 2, 1]
    for leaf, first, second in zip(leaves, (1, "a", "x", 10), (4, "b", "z", 30), strict=True):
        assert might_contain(tmp_path / "b.parquet", leaf, first) == [True, False]
        assert might_contain(tmp_path / "b.parquet", leaf, second) == [False, True]
