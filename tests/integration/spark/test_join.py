"""A join with a filter has the rows of the plain join, whatever its kind, and shuffles fewer."""

import logging
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from bloomery import errors
from bloomery.integrations.spark import bloom_join, plan_join
from privates import java_context_of, java_frame_of

ROWS = 4000
NAN = float("nan")


@pytest.fixture(scope="module")
def sides(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A large side and a small one of 5% of its keys; nulls on both, keys that are there twice."""
    folder = tmp_path_factory.mktemp("sides")
    numbers = range(ROWS)
    ids = [n if n % 50 else None for n in numbers]
    large = pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "text": [None if n is None else f"t\u00fcr {n}" for n in ids],
            "price": pa.array([float(n) for n in numbers], pa.float64()),
            "row": pa.array(numbers, pa.int64()),
        }
    )
    chosen = [*numbers[::20], *numbers[:100:20], ROWS + 1, ROWS + 2]
    small = pa.table(
        {
            "id": pa.array([n if n % 50 else None for n in chosen], pa.int64()),
            "text": [f"t\u00fcr {n}" if n % 50 else None for n in chosen],
            "price": pa.array([float(n) for n in chosen], pa.float64()),
            "name": [f"name {n}" for n in chosen],
        }
    )
    frames = []
    for name, table in (("large", large), ("small", small)):
        parquet.write_table(table, folder / name)
        frames.append(spark.read.parquet(str(folder / name)))
    return frames[0], frames[1]


def rows(frame: Any) -> Counter[str]:
    """Each row, and how often it is there."""
    numbered = frame.toDF(*(f"c{n}" for n in range(len(frame.columns))))
    return Counter(str(row) for row in numbered.toArrow().to_pylist())


def shuffled_rows(spark: Any, frame: Any) -> tuple[int, int]:
    """How many rows a frame has, and how many its query wrote for shuffles, as Spark counts."""
    context = java_context_of(spark)
    store, scheduler = context.statusStore(), context.dagScheduler()
    before = int(scheduler.nextStageId())
    count = frame.count()
    after = int(scheduler.nextStageId())
    written = 0
    for stage in range(before, after):
        try:
            written += int(store.lastStageAttempt(stage).shuffleWriteRecords())
        except Exception:  # noqa: BLE001 (a stage that was skipped is not in the store)
            continue
    return count, written


@pytest.mark.parametrize(
    ("how", "strategy"),
    [
        ("inner", "jvm"),
        ("left_semi", "jvm"),
        ("right", "jvm"),
        ("left", "spark"),
        ("full", "spark"),
        ("left_anti", "spark"),
    ],
)
@pytest.mark.usefixtures("shuffled")
def test_each_kind_of_join_has_its_rows(sides: tuple[Any, Any], how: str, strategy: str) -> None:
    """No row is lost or added; where rows of the large side without a match are part of the result,
    Spark is left alone. The keys are ints of 32 and 64 bits, some of them null."""
    plan = plan_join(*sides, "id", 0.01, how, capacity=300)
    assert plan.strategy == strategy, plan.reason
    assert rows(plan.frame) == rows(sides[0].join(sides[1], "id", how))


@pytest.mark.usefixtures("shuffled")
def test_several_columns(sides: tuple[Any, Any]) -> None:
    """Keys of several columns are one hash, floats and text among them; names differ in case."""
    plan = plan_join(*sides, ["ID", "text", "price"])
    assert plan.strategy == "jvm", plan.reason
    expected = rows(sides[0].join(sides[1], ["id", "text", "price"]))
    assert sum(expected.values()) > 150
    assert sum(rows(plan.frame).values()) == sum(expected.values())


@pytest.mark.usefixtures("shuffled")
def test_in_arrow_where_the_filter_is_too_large_for_spark(sides: tuple[Any, Any]) -> None:
    """Spark's own filters have an upper limit; beyond it the filter is ours, with the same rows."""
    spark = sides[0].sparkSession
    spark.conf.set("spark.sql.optimizer.runtime.bloomFilter.maxNumBits", "1000")
    try:
        plan = plan_join(*sides, "text")
    finally:
        spark.conf.unset("spark.sql.optimizer.runtime.bloomFilter.maxNumBits")
    assert plan.strategy == "arrow"
    assert "Spark's own has at most" in plan.reason
    assert rows(plan.frame) == rows(sides[0].join(sides[1], "text"))


@pytest.mark.usefixtures("shuffled")
def test_fewer_rows_are_shuffled(spark: Any, sides: tuple[Any, Any]) -> None:
    """Of the large side's rows, those with a match and a few more are written for the shuffle."""
    large, small = sides
    small = small.dropDuplicates(["id"]).cache()
    count, plain = shuffled_rows(spark, large.join(small, "id"))
    filtered_count, filtered = shuffled_rows(spark, bloom_join(large, small, "id"))
    assert count == filtered_count
    assert plain > ROWS * 0.9
    assert filtered < plain / 4, "the small side's own rows are shuffled as before"


def test_small_sides_are_left_to_a_broadcast(
    sides: tuple[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Below Spark's threshold a plain join is better, and the log says so."""
    with caplog.at_level(logging.INFO, "bloomery.spark"):
        joined = bloom_join(*sides, "id")
    assert "Spark broadcasts up to" in caplog.text
    assert "might_contain" not in java_frame_of(joined).queryExecution().toString()


@pytest.mark.usefixtures("shuffled")
@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        ("id k", "cast(id as string) k", "k is int on the large side and string on the small"),
        ("id k", "cast(id as double) k", "and double on the small"),
        ("cast(id as decimal(9,0)) k", "cast(id as decimal(19,0)) k", "decimal"),
        ("collate(text, 'UTF8_LCASE') k", "collate(upper(text), 'UTF8_LCASE') k", "equal hashes"),
        ("id k", "id + cast(rand() as int) k", "cache it"),
    ],
)
def test_what_might_lose_a_row_is_left_to_spark(
    sides: tuple[Any, Any], left: str, right: str, reason: str
) -> None:
    """Types that Spark converts before it compares, text that is equal without being the same, and
    rows that may be others the next time are joined as Spark does it."""
    large, small = sides[0].selectExpr(left), sides[1].selectExpr(right)
    plan = plan_join(large, small, "k")
    assert plan.strategy == "spark"
    assert reason in plan.reason


@pytest.mark.usefixtures("shuffled")
def test_what_is_cached_stays_the_same(sides: tuple[Any, Any]) -> None:
    """A small side that would be another each time is filtered by, once it is cached."""
    small = sides[1].selectExpr("id + cast(rand() * 1000 as int) id").cache()
    plan = plan_join(sides[0], small, "id", capacity=300)
    assert plan.strategy == "jvm", plan.reason
    assert rows(plan.frame) == rows(sides[0].join(small, "id"))
    small.unpersist()


@pytest.mark.usefixtures("shuffled")
def test_streams_are_left_to_spark(spark: Any, sides: tuple[Any, Any]) -> None:
    """The keys of a stream cannot be counted."""
    stream = spark.readStream.format("rate").load().selectExpr("value id")
    assert "a stream" in plan_join(stream, sides[1], "id").reason


@pytest.mark.usefixtures("shuffled")
def test_zeros_and_nans(spark: Any) -> None:
    """Spark joins 0.0 with -0.0 and NaN with NaN: so does a join with a filter."""
    large = spark.createDataFrame([(0.0,), (-0.0,), (NAN,), (1.5,)], "k double")
    small = spark.createDataFrame([(-0.0,), (NAN,)], "k double")
    plan = plan_join(large, small, "k", capacity=10)
    assert plan.strategy == "jvm"
    assert plan.frame.count() == large.join(small, "k").count() == 3


def test_a_condition_is_refused(sides: tuple[Any, Any]) -> None:
    """What is no name of a column on both sides is an error that says what to do."""
    with pytest.raises(errors.InvalidParameter, match="rename one side's first"):
        bloom_join(*sides, [sides[0]["id"] == sides[1]["id"]])
