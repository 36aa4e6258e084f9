"""How many keys a filter that grows can get until `maxmemory` is used up: VALIDATESCALETO and
MAXSCALEDCAPACITY of valkey-bloom, for the filters of this server."""

from __future__ import annotations

import math
import sys

from bloomery.service.config.settings import Settings
from bloomery.service.resp.replies import Failure
from bloomery.sizing import MAX_CAPACITY, MIN_ERROR_RATE
from bloomery.sizing.family import plan_kind

REDISBLOOM_TIGHTENING = 0.5  # the error rate of each of its layers, relative to the one before
_BITS_PER_NAT = 1 / math.log(2) ** 2
# A table that has grown takes at most this many times the memory of one made for as many keys:
# measured up to 300,000 keys, 2.24 at a rate of 0.25 and 1.42 at 0.01.
_GROWN = 2.25


def memory_limit(settings: Settings) -> int:
    """Return the bytes that one filter may have; 0: no limit."""
    return min(filter(None, (settings.maxmemory, settings.bytes_per_filter)), default=0)


def max_scaled_capacity(
    kind: str | None, capacity: int, error_rate: float, expansion: int, limit: int
) -> int:
    """Return the capacity that a filter reaches within `limit` bytes, at least; 0: no limit."""
    most = limit or sys.maxsize
    if kind != "redisbloom":
        return _of_table(max(error_rate, MIN_ERROR_RATE), most)
    total, nbytes, layer, rate = 0, 0, capacity, error_rate * REDISBLOOM_TIGHTENING
    while rate > sys.float_info.min:
        nbytes += math.ceil(layer * -math.log(rate) * _BITS_PER_NAT / 64) * 8
        if nbytes > most or total + layer > MAX_CAPACITY:
            break
        total += layer
        layer, rate = layer * expansion, rate * REDISBLOOM_TIGHTENING
    return total


def _of_table(error_rate: float, most: int) -> int:
    """Return the keys that one table has at least when its growth ends."""
    low, high = 0, MAX_CAPACITY
    while low < high:
        middle = (low + high + 1) // 2
        if plan_kind("scalable", middle, error_rate).nbytes * _GROWN <= most:
            low = middle
        else:
            high = middle - 1
    return low


def check_scale(
    to: int, kind: str | None, capacity: int, error_rate: float, expansion: int, limit: int
) -> None:
    """Raise valkey-bloom's error if a filter cannot grow to a capacity."""
    if to <= max_scaled_capacity(kind, capacity, error_rate, expansion, limit):
        return
    if to > max_scaled_capacity(kind, capacity, error_rate, expansion, 0):
        raise Failure("ERR provided VALIDATESCALETO causes false positive to degrade to 0")
    raise Failure("ERR provided VALIDATESCALETO causes bloom object to exceed memory limit")
