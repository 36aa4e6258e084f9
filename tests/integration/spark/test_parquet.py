"""Spark skips row groups by the filters that `add_bloom` wrote: its own counter says so."""

from pathlib import Path
from typing import Any

import pytest

from integration.parquet.row_groups import CONDITIONS, ROW_GROUPS, ROWS, WANTED, write_files
from privates import java_frame_of


@pytest.mark.filterwarnings("ignore")  # of pandas, whose words PySpark is behind with
def test_spark_skips_row_groups(spark: Any, tmp_path: Path) -> None:
    """Spark's scan gives out the rows of one row group with filters, of all without."""
    files = write_files(tmp_path)
    for column in ("id", "name", "price", "moment"):
        rows = {}
        for name, file in files.items():
            frame = spark.read.parquet(str(file)).where(CONDITIONS[column])
            assert [row.id for row in frame.collect()] == [WANTED]
            scan = java_frame_of(frame).queryExecution().executedPlan().collectLeaves().apply(0)
            rows[name] = scan.metrics().get("numOutputRows").get().value()
        assert rows["plain"] == ROW_GROUPS * ROWS
        assert rows["filtered"] == ROWS, column
    whole = spark.read.parquet(str(files["filtered"])).orderBy("id").toPandas()
    assert list(whole["id"]) == list(range(ROW_GROUPS * ROWS))
