"""Spark's own classes inside its JVM, by py4j: what a plan weighs, and a filter as part of a query.

Only a session in classic mode has them. The classes are Spark's internals: where a version does not
have them, `BloomTerm.of` says so, and the filter is asked by an Arrow UDF.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"
_MOST_BITS = "spark.sql.optimizer.runtime.bloomFilter.maxNumBits"
_MOST_KEYS = "spark.sql.optimizer.runtime.bloomFilter.maxNumItems"
_UNITS = {unit: 1 << 10 * power for power, unit in enumerate("bkmgtp")}


def is_remote(what: DataFrame | Column) -> bool:
    """Whether it is of Spark Connect, and so without a JVM that can be reached."""
    return type(what).__module__.startswith("pyspark.sql.connect")


def broadcast_threshold(frame: DataFrame) -> int:
    """Return up to how many bytes Spark broadcasts a side of a join; negative: never."""
    return _bytes(str(frame.sparkSession.conf.get(_THRESHOLD)))


def _bytes(text: str) -> int:
    """Read a size as Spark's settings have it: `10485760b`, `10m`, `10MB`, -1."""
    size = re.fullmatch(r"(-?\d+)([bkmgtp]?)b?", text.strip().lower())
    return int(size[1]) * _UNITS[size[2] or "b"] if size else -1


def plan_bytes(frame: DataFrame) -> int:
    """Return how many bytes Spark estimates a frame to have."""
    plan: Any = frame._jdf.queryExecution().optimizedPlan()
    return int(str(plan.stats().sizeInBytes()))


def is_deterministic(frame: DataFrame) -> bool:
    """Whether a frame has the same rows each time that it is computed, as far as Spark knows."""
    return bool(frame._jdf.queryExecution().optimizedPlan().deterministic())


@dataclass(frozen=True)
class BloomTerm:
    """A filter that Spark makes of one frame, and asks for each row of another, all in its JVM."""

    expressions: Any
    utils: Any
    most_bits: int
    most_keys: int

    @classmethod
    def of(cls, frame: DataFrame) -> BloomTerm | None:
        """Return it for a session; None where it does not have the classes."""
        from py4j.java_gateway import JavaClass

        jvm: Any = frame.sparkSession._jvm
        expressions = jvm.org.apache.spark.sql.catalyst.expressions
        utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
        needs = (
            utils,
            expressions.BloomFilterMightContain,
            expressions.aggregate.BloomFilterAggregate,
        )
        if not all(isinstance(need, JavaClass) for need in needs):
            return None
        limits = [
            _bytes(str(frame.sparkSession.conf.get(name))) for name in (_MOST_BITS, _MOST_KEYS)
        ]
        return cls(expressions, utils, *limits)

    def might_contain(
        self, hashes: Column, small: DataFrame, capacity: int, num_bits: int
    ) -> Column:
        """Return the term: are these hashes, of a row, among those of the small frame's rows?

        The filter is a subquery, as in Spark's own runtime filters: it is made when the query runs,
        of what the small frame holds then.
        """
        from pyspark.sql import functions as sql

        sizes = [sql.lit(size).cast("bigint") for size in (capacity, num_bits)]
        aggregate = self.expressions.aggregate.BloomFilterAggregate(
            *(self._expression(part) for part in (hashes, *sizes))
        )
        filter = small.agg(self._column(aggregate.toAggregateExpression())).scalar()
        return self._column(
            self.expressions.BloomFilterMightContain(
                self._expression(filter), self._expression(hashes)
            )
        )

    def _expression(self, column: Any) -> Any:
        return self.utils.expression(column._jc)

    def _column(self, expression: Any) -> Column:
        from pyspark.sql.classic.column import Column

        return Column(self.utils.column(expression))
