"""Columns of texts without duplicates, by Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from bloomery import errors
from bloomery.apps.corpus import TextDeduplicator
from bloomery.integrations.spark import dedup_texts

TEXTS = [f"text {n % 300} é" for n in range(1000)]


@pytest.fixture(autouse=True)
def _few_partitions(spark: Any) -> Iterator[None]:
    """Each is a task of Python."""
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    yield
    spark.conf.unset("spark.sql.shuffle.partitions")


def left(frame: Any) -> Counter[str | None]:
    return Counter(row["text"] for row in frame.collect())


def test_documents_stay_once(spark: Any) -> None:
    """Whichever of the equal ones; nulls are no texts, and other columns stay beside theirs."""
    rows = [(n, text, f"of {text}") for n, text in enumerate(TEXTS)] + [(-1, None, "x")] * 3
    frame = spark.createDataFrame(rows, "n int, text string, other string").repartition(5)
    found = dedup_texts(frame, "text", 1000)
    assert found.schema == frame.schema
    assert left(found) == Counter([*set(TEXTS), None, None, None])
    texts = [row for row in found.collect() if row["text"] is not None]
    assert all(row["other"] == f"of {row['text']}" for row in texts)


def test_paragraphs_and_near_duplicates_go_through_one_filter(spark: Any) -> None:
    """However many partitions there were."""
    lines = [f"line {n}\nall rights reserved\nline {n + 1}" for n in range(200)]
    frame = spark.createDataFrame([(text,) for text in lines], "text string").repartition(7)
    parts = [
        part
        for text in left(dedup_texts(frame, "text", 1000, by="paragraph"))
        if text
        for part in text.split("\n")
    ]
    assert Counter(parts) == Counter(["all rights reserved", *(f"line {n}" for n in range(201))])
    words = [[f"w{n}.{place}" for place in range(100)] for n in range(20)]
    copies = [[*one[:50], "other", *one[51:]] for one in words]
    given = [(" ".join(one),) for one in words + copies]
    frame = spark.createDataFrame(given, "text string").repartition(3)
    found = dedup_texts(frame, "text", 100, by="near", threshold=0.7)
    assert 20 <= found.count() <= 22


def test_tests_are_kept_out(spark: Any) -> None:
    """By a filter that every task has; texts that come twice stay, or do not."""
    seen = TextDeduplicator(1000, by="ngram", words=3)
    seen.spans(["the question of the test is this"])
    given = ["The question of the test is THIS", "another one", "another one", None]
    frame = spark.createDataFrame([(text,) for text in given], "text string").repartition(2)
    options: dict[str, Any] = {"by": "ngram", "words": 3, "against": seen}
    kept = dedup_texts(frame, "text", 100, keep_duplicates=True, **options)
    assert left(kept) == Counter({"another one": 2, None: 1})
    assert left(dedup_texts(frame, "text", 100, **options)) == Counter({"another one": 1, None: 1})


def test_what_cannot_be_is_refused(spark: Any) -> None:
    """Before a job is begun."""
    frame = spark.range(3)
    with pytest.raises(errors.InvalidParameter, match="id is a bigint, must be a string"):
        dedup_texts(frame, "id", 10)
    texts = frame.selectExpr("cast(id as string) text")
    with pytest.raises(errors.InvalidParameter, match="keep_duplicates without against"):
        dedup_texts(texts, "text", 10, keep_duplicates=True)
    with pytest.raises(errors.IncompatibleFilters, match="was not made for"):
        dedup_texts(texts, "text", 10, by="near", against=TextDeduplicator(10))
