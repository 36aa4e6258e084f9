"""Makes the files in tests/golden/parquet with each engine's own filters: needs Java for Spark.

    python tests/golden/make_parquet.py

They are frozen: what these engines write is not ours to change, and the tests read it as it is.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

FOLDER = Path(__file__).parent / "parquet"
ROWS = 100

# For DuckDB and, but for the last three types, for Spark as well. DuckDB has filters for columns
# with a dictionary only, so there are several rows of each value.
COMMON = """
    id::bigint AS "long", id::int AS "int", id::smallint AS "short",
    (id / 2)::float AS "float", (id / 4)::double AS "double",
    concat('user-', id) AS "string",
    (id / 100)::decimal(9, 2) AS "dec9", (id / 100)::decimal(18, 2) AS "dec18",
    (id / 100)::decimal(30, 2) AS "dec30"
"""
DUCKDB = f"""
    SELECT {COMMON}, encode(concat('b', id)) AS "binary", DATE '2024-01-01' + id::int AS "date",
        make_timestamptz(id * 1000001) AS "ts", make_timestamp(id * 1000001) AS "ntz",
        id::utinyint AS "ubyte", (id * 40000000)::uinteger AS "uint",
        (id::ubigint + 18446744073709551000) AS "ulong"
    FROM (SELECT range % {ROWS} AS id FROM range({40 * ROWS}))
"""
SPARK = f"""
    SELECT {COMMON}, cast(concat('b', id) AS binary) AS `binary`,
        date_add(DATE '2024-01-01', cast(id AS int)) AS `date`,
        timestamp_micros(id * 1000001) AS `ts`,
        cast(timestamp_micros(id * 1000001) AS timestamp_ntz) AS `ntz`
    FROM range(0, {ROWS}, 1, 1)
""".replace('"', "`")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        file = FOLDER / "duckdb.parquet"
        con.execute(f"COPY ({DUCKDB}) TO '{file}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")

    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = session.config("spark.sql.session.timeZone", "UTC")
    session = session.config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    spark = session.getOrCreate()
    frame = spark.sql(SPARK)
    writer = frame.write.option("parquet.enable.dictionary", "false")
    for name in frame.columns:
        writer = writer.option(f"parquet.bloom.filter.enabled#{name}", "true")
        writer = writer.option(f"parquet.bloom.filter.expected.ndv#{name}", str(ROWS))
    with tempfile.TemporaryDirectory() as folder:
        writer.parquet(f"{folder}/out")
        (written,) = Path(folder, "out").glob("*.parquet")
        shutil.copyfile(written, FOLDER / "spark.parquet")
    spark.stop()

    # As Spark's, so that the three have the same columns.
    table = pq.read_table(FOLDER / "spark.parquet")
    options = {name: {"ndv": ROWS, "fpp": 0.01} for name in table.column_names}
    table = pa.table({name: table[name] for name in table.column_names})
    pq.write_table(table, FOLDER / "pyarrow.parquet", bloom_filter_options=options)


if __name__ == "__main__":
    main()
