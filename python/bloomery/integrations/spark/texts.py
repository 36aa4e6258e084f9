"""A column of texts without what came before: `bloomery.apps.corpus` over Spark.

A filter belongs to a task, which makes it anew: a task that is run again, or twice at once, finds
the same. So that equal texts meet in one filter, whole documents are distributed by their hash:
each partition has the filter of its share. By paragraphs, n-grams and bands there is one task,
through whose filter all texts go. What is only asked for, `against` with `keep_duplicates`, stays
where it is, and every task has the filter.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bloomery.apps.corpus import By, TextDeduplicator
from bloomery.apps.corpus.comparison import check_rate, comparison
from bloomery.errors import InvalidParameter
from bloomery.extras import needed
from bloomery.integrations.spark import catalyst

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Texts are spread over partitions by chance: some get more than their share.
_SPARE = 1.2
_LEAST = 1000


def dedup_texts(
    frame: DataFrame,
    column: str,
    capacity: int,
    *,
    by: By = "document",
    error_rate: float | str | None = None,
    against: TextDeduplicator | None = None,
    keep_duplicates: bool = False,
    **options: Any,
) -> DataFrame:
    """Return the rows without texts, or parts of texts, that came before; nulls stay.

    `capacity` is how many documents, paragraphs or n-grams there are; `by` and the other options
    are those of `bloomery.apps.corpus.dedup`. What `against` has seen counts as seen; with
    `keep_duplicates` nothing else does. Which of several equal texts stays is Spark's choice, as
    the order of rows is.
    """
    with needed("pyspark", "bloomery.integrations.spark", "spark"):
        from pyspark.sql import SparkSession
        from pyspark.sql import functions as sql

    from bloomery.integrations.spark import worker

    compared = comparison(by, **options)
    rate = check_rate(by, error_rate)
    kind = frame.select(column).schema.fields[0].dataType.simpleString()
    if kind != "string":
        raise InvalidParameter(f"{column} is a {kind}, must be a string: cast it first")
    if keep_duplicates and against is None:
        raise InvalidParameter("keep_duplicates without against would remove nothing")
    data: Any = None
    if against is not None:
        compared.check(against.filter, "against")
        data = against.filter.to_bytes()
        if not catalyst.is_remote(sql.col(column)):
            data = SparkSession.active().sparkContext.broadcast(data)
    share = capacity
    rows = frame
    if not keep_duplicates and by == "document":
        parts = max(2, int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200))
        share = max(_LEAST, math.ceil(capacity / parts * _SPARE))
        rows = frame.repartition(parts, sql.xxhash64(column))
    elif not keep_duplicates:
        rows = frame.repartition(1)
    settings = {name: value for name, value in asdict(compared).items() if name != "field"}
    place = frame.columns.index(column)
    work = worker.text_deduper(settings, share, rate, place, data, not keep_duplicates)
    return rows.mapInArrow(work, frame.schema)
