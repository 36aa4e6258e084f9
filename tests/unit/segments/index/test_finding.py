"""Rows of files whose columns are of different types, in one table."""

from pathlib import Path

from bloomery.segments import SegmentIndex
from conftest import require

pa = require("pyarrow")
pq = require("pyarrow.parquet")


def test_rows_of_files_of_different_types_are_in_one_table(tmp_path: Path) -> None:
    """Columns that have no common type are text; those that have, and dictionaries, are not."""
    first = {"id": [42], "wide": pa.array([1], pa.int8()), "s": pa.array(["x"]).dictionary_encode()}
    pq.write_table(pa.table({**first, "deep": [[1, 2]]}), tmp_path / "a.parquet")
    second = {"id": ["42"], "wide": [2], "s": ["y"], "deep": [2.5], "only": [b"\xff"]}
    pq.write_table(pa.table(second), tmp_path / "b.parquet")
    (tmp_path / "c.csv").write_text("id,only\n42,5\n")
    with SegmentIndex.build(tmp_path, ["id"]) as index:
        rows = sorted(index.find({"id": 42}).to_pylist(), key=lambda row: row["wide"] or 3)
        assert [row["id"] for row in rows] == ["42"] * 3
        assert [row["wide"] for row in rows] == [1, 2, None]
        assert [row["s"] for row in rows] == ["x", "y", None]
        assert [row["deep"] for row in rows] == ["[1, 2]", "2.5", None]
        assert [row["only"] is None for row in rows] == [True, False, False]
        assert index.find({"id": 42}, columns=["wide"]).column("wide").type == pa.int64()
