"""A join whose large side is filtered before it is shuffled: most rows without a match stay behind.

A wrong maybe costs nothing but a row more to shuffle: the join itself looks at every row that is
left, so that its result is exact, whatever the error rate.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bloomery import errors
from bloomery.extras import needed
from bloomery.integrations.spark import catalyst, columns
from bloomery.integrations.spark.building import build
from bloomery.integrations.spark.membership import contains
from bloomery.sizing.limits import check_capacity, check_error_rate, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

_LOG = logging.getLogger("bloomery.spark")

# Joins that drop the rows of the left side that have no match; of the others such rows are part of
# the result. And those that Spark can do by broadcasting the right side, or the left.
_FILTERED = {"inner": "inner", "semi": "leftsemi", "leftsemi": "leftsemi"} | {
    "right": "right",
    "rightouter": "right",
}
_BROADCAST_RIGHT = {"inner", "leftsemi"}
_BROADCAST_LEFT = {"inner", "right"}


@dataclass(frozen=True)
class JoinPlan:
    """How a join is done, and why so."""

    frame: DataFrame
    strategy: Literal["jvm", "arrow", "spark"]
    """`jvm`: filtered inside Spark. `arrow`: filtered by an Arrow UDF. `spark`: a plain join."""
    reason: str
    capacity: int | None = None
    """How many distinct keys the filter is made for."""


def bloom_join(
    large: DataFrame,
    small: DataFrame,
    on: str | Sequence[str],
    error_rate: float | str = 0.01,
    how: str = "inner",
    capacity: int | None = None,
) -> DataFrame:
    """Return `large.join(small, on, how)`, the large side filtered by the keys of the small first.

    Same rows, fewer of them shuffled. Where a filter would not help, or could lose a row, it is the
    plain join; `plan_join` tells which it is and why, and so does a line of the log.
    """
    return plan_join(large, small, on, error_rate, how, capacity).frame


def plan_join(
    large: DataFrame,
    small: DataFrame,
    on: str | Sequence[str],
    error_rate: float | str = 0.01,
    how: str = "inner",
    capacity: int | None = None,
) -> JoinPlan:
    """Decide how `bloom_join` does a join, and return the join with the decision and the reason.

    Without a capacity, the distinct keys of the small side are counted now, approximately.
    """
    with needed("pyspark", "bloomery.integrations.spark", "spark"):
        import pyspark.sql.functions  # noqa: F401
    rate = check_error_rate(error_rate)
    names = [on] if isinstance(on, str) else list(on)
    if not names or not all(isinstance(name, str) for name in names):
        raise errors.InvalidParameter(
            f"on must be the name of a column of both sides, or several, not {show(on)}: for "
            "columns of different names rename one side's first, withColumnRenamed"
        )
    if capacity is not None:
        capacity = check_capacity(capacity)
    plan = _decide(large, small, names, rate, how, capacity)
    _LOG.info("bloom_join on %s: %s: %s", ", ".join(names), plan.strategy, plan.reason)
    return plan


def _decide(
    large: DataFrame,
    small: DataFrame,
    on: list[str],
    error_rate: float,
    how: str,
    capacity: int | None,
) -> JoinPlan:
    def plain(reason: str) -> JoinPlan:
        return JoinPlan(large.join(small, on, how), "spark", reason, capacity)

    def filtered(term: Column) -> DataFrame:
        return large.where(term).join(small, on, how)

    kind = _FILTERED.get(how.lower().replace("_", ""))
    if kind is None:
        return plain(f"a {how} join keeps rows of the large side that have no match")
    if large.isStreaming or small.isStreaming:
        return plain("a stream has no end at which its keys could be counted")
    hashes, problem = columns.common_hashes(large, small, on)
    if problem:
        return plain(problem)
    remote = catalyst.is_remote(small)
    if not remote:
        if not catalyst.is_deterministic(small):
            return plain("the small side may have other rows when it is computed again: cache it")
        if fits := _broadcast(large, small, kind, catalyst.plan_bytes(small)):
            return plain(fits)
    if capacity is None or remote:
        counted, rows = columns.count_distinct(small, hashes)
        capacity = capacity or counted
        if remote and (fits := _broadcast(large, small, kind, rows * columns.row_bytes(small))):
            return plain(fits)
    bits = math.ceil(-capacity * math.log(error_rate) / math.log(2) ** 2)
    size = f"{capacity:,} keys at {error_rate:g} in {bits // 8:,} bytes"
    term = None if remote else catalyst.BloomTerm.of(small)
    if term is not None and bits <= term.most_bits and capacity <= term.most_keys:
        frame = filtered(term.might_contain(hashes, small, capacity, bits))
        return JoinPlan(frame, "jvm", f"a filter of {size}, inside Spark", capacity)
    why = (
        "Spark Connect reaches no JVM"
        if remote
        else "this Spark has no such filter"
        if term is None
        else f"Spark's own has at most {term.most_keys:,} keys and {term.most_bits // 8:,} bytes"
    )
    filter = build(small, hashes, error_rate, capacity)
    return JoinPlan(
        filtered(contains(hashes, filter)), "arrow", f"a filter of {size}: {why}", capacity
    )


def _broadcast(large: DataFrame, small: DataFrame, kind: str, small_bytes: int) -> str:
    """Say why Spark's own broadcast join is better; nothing if it is not."""
    most = catalyst.broadcast_threshold(small)
    if kind in _BROADCAST_RIGHT and small_bytes <= most:
        return f"the small side has {small_bytes:,} bytes: Spark broadcasts up to {most:,}"
    if kind in _BROADCAST_LEFT and not catalyst.is_remote(large):
        large_bytes = catalyst.plan_bytes(large)
        if large_bytes <= most:
            return f"the large side has {large_bytes:,} bytes: Spark broadcasts up to {most:,}"
    return ""
