"""`spark`: `bloom_join` beside Spark's plain join, and `contains` in Arrow batches."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress, rotated

if TYPE_CHECKING:
    import pyarrow as pa

MODES = {
    "shuffled": {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    },
    "defaults": {},
}
"""Settings of both ways: without broadcasts and adaptive plans, and as Spark comes."""

MATCH = 20
"""One of so many keys of the large side is on the small side."""

ERROR_RATE = 0.01


def run(settings: Settings) -> list[Record]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        spark = _session(Path(folder))
        try:
            progress.step(f"spark: writing {settings.spark_rows:,} rows")
            large, small = _sides(spark, Path(folder), settings)
            return [
                *_joins(spark, large, small, settings),
                *_terms(spark, large, settings),
            ]
        finally:
            spark.stop()


def _session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _sides(spark: Any, folder: Path, settings: Settings) -> tuple[Any, Any]:
    """Orders and customers in Parquet files: 5% of the orders have a customer that is there."""
    keys = settings.spark_keys
    spark.range(settings.spark_rows).selectExpr(
        f"cast(rand(20261117) * {keys * MATCH} as bigint) key",
        "id amount",
        "concat('order ', id) note",
    ).write.parquet(str(folder / "large"))
    spark.range(keys).selectExpr(f"id * {MATCH} key", "concat('customer ', id) name").write.parquet(
        str(folder / "small")
    )
    return spark.read.parquet(str(folder / "large")), spark.read.parquet(str(folder / "small"))


def _joins(spark: Any, large: Any, small: Any, settings: Settings) -> list[Record]:
    from bloomery.integrations.spark import plan_join

    def plain() -> tuple[Any, str]:
        return large.join(small, "key"), "Spark's own"

    def filtered() -> tuple[Any, str]:
        plan = plan_join(large, small, "key", ERROR_RATE)
        return plan.frame, f"{plan.strategy}: {plan.reason}"

    records = []
    for mode, options in MODES.items():
        for name, value in options.items():
            spark.conf.set(name, value)
        best: dict[str, Record] = {}
        # The first round warms the JVM up and does not count.
        for number in range(1 + settings.spark_rounds):
            ways = rotated([("plain", plain), ("bloom_join", filtered)], number)
            for way, make in ways:
                progress.step(f"spark: {mode}, {way}, round {number}/{settings.spark_rounds}")
                result = _measure(spark, make)
                old = best.get(way)
                if number and (old is None or result["seconds"] < old["seconds"]):
                    best[way] = result
        for name in options:
            spark.conf.unset(name)
        for way, result in best.items():
            sizes = {"rows": settings.spark_rows, "keys": settings.spark_keys}
            records.append({"table": "join", "mode": mode, "way": way, **sizes, **result})
    return records


def _measure(spark: Any, make: Any) -> Record:
    """From the call to the result: planning and counting keys are part of it."""
    context = spark.sparkContext._jsc.sc()
    first = int(context.dagScheduler().nextStageId())
    start = time.perf_counter()
    frame, how = make()
    row = frame.selectExpr(
        "count(*)", "sum(amount)", "sum(length(note))", "sum(length(name))"
    ).collect()[0]
    seconds = time.perf_counter() - start
    last = int(context.dagScheduler().nextStageId())
    counted = _counted(context, range(first, last))
    return {"seconds": seconds, "how": how, "result": list(row), **counted}


def _counted(context: Any, stages: range) -> Record:
    """What those stages wrote for shuffles, and their processor time, by Spark's own count."""
    from py4j.protocol import Py4JJavaError

    context.listenerBus().waitUntilEmpty()  # what is counted comes by events
    rows, cpu = 0, 0.0
    for number in stages:
        try:
            stage = context.statusStore().lastStageAttempt(number)
        except Py4JJavaError:  # skipped: its output was there already
            continue
        rows += int(stage.shuffleWriteRecords())
        cpu += stage.executorCpuTime() / 1e9
    return {"shuffled_rows": rows, "cpu_seconds": cpu}


def _terms(spark: Any, large: Any, settings: Settings) -> list[Record]:
    """`contains` by itself, inside Spark's workers, and as the whole of a query."""
    import numpy as np

    from bloomery import BloomFilter
    from bloomery.integrations.spark import contains, worker

    filter = BloomFilter(settings.spark_keys, ERROR_RATE)
    filter.update(np.arange(settings.spark_keys, dtype=np.int64) * MATCH)
    data = filter.to_bytes()

    def timed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as arrow

        ask = worker.asker(BloomFilter, "benchmark", data)
        rows = spent = 0
        for batch in batches:
            column = batch.column(0)
            start = time.perf_counter_ns()
            for _ in ask(iter([column])):
                rows += len(column)
            spent += time.perf_counter_ns() - start
        yield arrow.record_batch({"rows": [rows], "ns": [spent]})

    def worker_rate() -> float:
        parts = large.select("key").mapInArrow(timed, "rows bigint, ns bigint").collect()
        return float(sum(r["rows"] for r in parts) / sum(r["ns"] for r in parts) * 1e9)

    def query_rate(term: Any) -> float:
        start = time.perf_counter()
        large.where(term).count()
        return settings.spark_rows / (time.perf_counter() - start) / 2  # cores

    cases: dict[str, Callable[[], float]] = {
        "the UDF itself, in Spark's worker": worker_rate,
        "a whole query: scan, contains, count": lambda: query_rate(contains("key", filter)),
        "a whole query without Python: scan, key % 20 = 0, count": lambda: query_rate(
            "key % 20 = 0"
        ),
    }
    rates: dict[str, float] = {}
    for number in range(1 + settings.spark_rounds):
        for what, rate in cases.items():
            progress.step(f"spark: {what}, round {number}/{settings.spark_rounds}")
            found = rate()
            if number:
                rates[what] = max(found, rates.get(what, 0))
    sizes = {"rows": settings.spark_rows, "keys": settings.spark_keys}
    return [{"table": "contains", "what": w, "rows_a_second": r, **sizes} for w, r in rates.items()]


def pairs(records: list[Record]) -> dict[str, tuple[Record, Record]]:
    """The plain join and ours, by mode."""
    ways = {(r["mode"], r["way"]): r for r in records if r["table"] == "join"}
    return {mode: (ways[mode, "plain"], ways[mode, "bloom_join"]) for mode in MODES}


def judge(records: list[Record]) -> list[Line]:
    what = "bloom_join beside a plain join, no broadcast"
    must = ">= 10x fewer shuffled rows, <= 0.6x the time"
    second, second_must = "bloom_join with Spark's defaults", "<= 1.1x the time"
    third, third_must = "contains in Arrow batches", ">= 20 M rows a second a core"
    if not records:
        return [missing(what, must), missing(second, second_must), missing(third, third_must)]
    found = pairs(records)
    assert all(plain["result"] == ours["result"] for plain, ours in found.values()), "other rows"
    plain, ours = found["shuffled"]
    fewer = plain["shuffled_rows"] / max(1, ours["shuffled_rows"])
    ratio = ours["seconds"] / plain["seconds"]
    by_default = found["defaults"][1]["seconds"] / found["defaults"][0]["seconds"]
    rates = {r["what"]: r["rows_a_second"] for r in records if r["table"] == "contains"}
    inside, whole, bare = rates.values()
    return [
        Line(
            what, must, "-", f"{fewer:.1f}x fewer, {ratio:.2f}x", word(fewer >= 10 and ratio <= 0.6)
        ),
        Line(second, second_must, "-", f"{by_default:.2f}x", word(by_default <= 1.1)),
        Line(
            third,
            third_must,
            "-",
            f"{inside / 1e6:.0f} M; a query {whole / 1e6:.1f} M, without Python {bare / 1e6:.1f} M",
            word(inside >= 20e6),
        ),
    ]


def render(records: list[Record]) -> str:
    joins = [r for r in records if r["table"] == "join"]
    names = ("settings", "way", "time", "processor", "shuffled rows", "rows out", "how")
    rows = [
        [
            r["mode"],
            r["way"],
            f"{r['seconds']:.2f} s",
            f"{r['cpu_seconds']:.2f} s",
            f"{r['shuffled_rows']:,}",
            f"{r['result'][0]:,}",
            r["how"],
        ]
        for r in joins
    ]
    left = {"settings", "way", "how"}
    sizes = f"{joins[0]['rows']:,} rows joined with {joins[0]['keys']:,}, 1 of {MATCH} matches"
    text = table(f"{sizes}; the best round", [Column(n, left=n in left) for n in names], rows)
    terms = [r for r in records if r["table"] == "contains"]
    return f"{text}\n\n" + table(
        "rows a second a core",
        [Column("what", left=True), Column("rows/s")],
        [[r["what"], f"{r['rows_a_second'] / 1e6:.1f} M"] for r in terms],
    )
