"""A filter as a term of a query: a column of booleans that tells which keys it may hold."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from bloomery.extras import needed
from bloomery.integrations.spark import catalyst

if TYPE_CHECKING:
    from pyspark.sql import Column

    from bloomery.filters.saved import SavedFilter
    from bloomery.integrations.spark.filter import SparkBloomFilter


def contains(column: str | Column, filter: SavedFilter | SparkBloomFilter) -> Column:
    """Return a column that is False where a key is definitely not in the filter, True: maybe.

    A null is no key: it is False. The filter is as it is now; what is added to it later is not
    asked for. It goes to every executor once, and each Python worker makes it of its bytes once.
    """
    with needed("pyspark", "bloomery.integrations.spark", "spark"):
        from pyspark.sql import SparkSession
        from pyspark.sql import functions as sql
        from pyspark.sql.pandas.functions import arrow_udf

    from bloomery.integrations.spark import worker

    asked = sql.col(column) if isinstance(column, str) else column
    raw = filter.to_bytes()
    digest = hashlib.blake2b(raw, digest_size=16).hexdigest()
    data: Any = raw
    if not catalyst.is_remote(asked):
        data = SparkSession.active().sparkContext.broadcast(raw)
    make: Any = arrow_udf  # whose stub wants the kind; given it, it warns: hints are preferred
    ask = make(worker.asker(type(filter), digest, data), "boolean")
    answer: Column = ask(asked)
    return answer
