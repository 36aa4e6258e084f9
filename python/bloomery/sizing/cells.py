"""How large a filter of counters or of bits in regions must be, and which share of its keys can be
removed; for `bloom`, which says what an error rate is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from bloomery.errors import InvalidParameter
from bloomery.sizing.blocked import (
    LINE_BITS,
    LINE_BYTES,
    Line,
    best_lines,
    clear_spread,
    expected_rate,
    line_load,
    optimal_bits_per_key,
    stirling,
    touched_by_visit,
)
from bloomery.sizing.limits import (
    MAX_MEMORY,
    MIN_ERROR_RATE,
    best_capacity,
    check_hash_width,
    check_num_bits,
    check_shape_rate,
    check_sizes,
    last_true,
    number,
    show,
)

COUNTER_BITS = (4, 8)
LINE_REGIONS = (16, 32, 64, 128)
_USUAL_REGIONS = 64
_MAX_DRAWS = 16  # in a line

# One line is one memory access, so it is kept until it costs 15% more than the textbook: 4-bit
# counters at 1% take 13.2% more, and in two lines 2.6%.
_ONE_LINE_WASTE = 1.15


class CellPlan(NamedTuple):
    """A filter's size. `expected_error_rate` is the rate once `capacity` keys are in it."""

    capacity: int
    error_rate: float
    num_bits: int
    num_hashes: int
    lines_per_key: int
    line_cells: int  # counters in a line of 512 bits, or bits that are no flags
    expected_error_rate: float
    nbytes: int

    @property
    def bits_per_key(self) -> float:
        """Bits for each key of the capacity."""
        return self.num_bits / self.capacity

    @property
    def cells_per_key(self) -> float:
        """Counters, or bits that are no flags, for each key of the capacity."""
        return self.num_bits // LINE_BITS * self.line_cells / self.capacity


def counting_plan(
    capacity: int | float, error_rate: float | str, *, counter_bits: int = 4
) -> CellPlan:
    """The size CountingBloomFilter takes."""
    cells = _counters_in_line(counter_bits)
    return _plan(*_checked(capacity, error_rate), cells)


def counting_shape_plan(num_bits: int, num_hashes: int, *, counter_bits: int = 4) -> CellPlan:
    """The plan of a counting filter whose bits, up to whole lines of 512, and hashes are given.

    As `shape_plan`: the capacity is the number of keys that fill half of the counters.
    """
    cells, k = _counters_in_line(counter_bits), number(num_hashes)
    one, two = range(1, _MAX_DRAWS + 1), range(2, 2 * _MAX_DRAWS + 1, 2)
    if not isinstance(k, int) or (k not in one and k not in two):
        raise InvalidParameter(
            f"num_hashes must be 1 to {_MAX_DRAWS}, or even and at most {2 * _MAX_DRAWS}, not "
            f"{show(num_hashes)}"
        )
    lines, line = -(-check_num_bits(num_bits) // LINE_BITS), Line(cells, 1)
    lines_per_key, draws, _ = _shape(max(MIN_ERROR_RATE, 2.0**-k), line, k)
    capacity = best_capacity(lines * cells, k)
    rate = expected_rate(draws, lines_per_key, capacity, lines, line)
    allowed = check_shape_rate(lines * LINE_BITS, k, rate)
    sizes = (lines * LINE_BITS, k, lines_per_key, cells)
    return CellPlan(capacity, allowed, *sizes, rate, lines * LINE_BYTES)


def _counters_in_line(counter_bits: object) -> int:
    bits = number(counter_bits)
    if bits not in COUNTER_BITS:
        raise InvalidParameter(f"counter_bits must be 4 or 8, not {show(counter_bits)}")
    return LINE_BITS // int(bits)


def deletable_plan(
    capacity: int | float, error_rate: float | str, *, regions: int | None = None
) -> CellPlan:
    """The size DeletableBloomFilter takes.

    A line has 16, 32, 64 or 128 regions: the fewest with which there are as many as asked for in
    all; 64 if that is left open.
    """
    checked = _checked(capacity, error_rate)
    if regions is None:
        return _plan(*checked, LINE_BITS - _USUAL_REGIONS)
    wanted = number(regions)
    if not isinstance(wanted, int) or wanted < 1:
        raise InvalidParameter(f"regions must be a whole number from 1 on, not {show(regions)}")
    for each in LINE_REGIONS:
        plan = _plan(*checked, LINE_BITS - each)
        most = plan.num_bits // LINE_BITS * each
        if most >= wanted:
            return plan
    raise InvalidParameter(
        f"regions must be at most {most:,} for this capacity and error_rate, not {show(regions)}"
    )


def cell_count_error(
    num_bits: int, num_hashes: int, lines_per_key: int, line_cells: int, count: float
) -> float:
    """The standard error of the estimated count of a filter of cells, when `count` keys are in."""
    if count <= 0:
        return 0.0
    line, lines, draws = Line(line_cells, 1), num_bits // LINE_BITS, num_hashes // lines_per_key
    spread = clear_spread(draws, lines_per_key * count, lines, line)
    return spread / (lines_per_key * -math.log1p(-touched_by_visit(draws, line) / lines))


def removable_share(
    capacity: int | float, error_rate: float | str, *, regions: int | None = None, load: float = 1.0
) -> float:
    """Which share of its keys a DeletableBloomFilter can remove when it holds load * capacity keys,
    each added once."""
    plan = deletable_plan(capacity, error_rate, regions=regions)
    times = number(load)
    if times is None or not 0 <= times <= 100:
        raise InvalidParameter(f"load must be a number from 0 to 100, not {show(load)}")
    lines, lines_per_key = plan.num_bits // LINE_BITS, plan.lines_per_key
    others = max(0, round(times * plan.capacity) - 1) * lines_per_key
    draws = plan.num_hashes // lines_per_key
    stuck = sum(
        chance * _stuck(draws, plan.line_cells, visits) for visits, chance in _loads(others, lines)
    )
    return 1.0 - stuck**lines_per_key


def _checked(capacity: int | float, error_rate: float | str) -> tuple[int, float]:
    count, rate = check_sizes(capacity, error_rate)
    check_hash_width(count, rate)
    return count, rate


@lru_cache(maxsize=1024)
def _plan(capacity: int, rate: float, cells: int) -> CellPlan:
    line = Line(cells, 1)
    lines_per_key, draws, load = _shape(rate, line)

    def too_high(lines: int) -> bool:
        return expected_rate(draws, lines_per_key, capacity, lines, line) > rate

    # The load is that of many lines; with few of them a key's two lines may be one.
    lines = 1 + last_true(too_high, capacity / load, 1, MAX_MEMORY // LINE_BYTES)
    if lines * LINE_BYTES > MAX_MEMORY:
        raise InvalidParameter(
            f"{capacity:,} keys at error_rate {rate:g} need more than {MAX_MEMORY:,} bytes"
        )
    return CellPlan(
        capacity,
        rate,
        lines * LINE_BITS,
        draws * lines_per_key,
        lines_per_key,
        cells,
        expected_rate(draws, lines_per_key, capacity, lines, line),
        lines * LINE_BYTES,
    )


@lru_cache(maxsize=256)
def _shape(rate: float, line: Line, num_hashes: int | None = None) -> tuple[int, int, float]:
    """(lines a key, draws in each, keys a line) for a filter of many lines."""
    possible = range(1, _MAX_DRAWS + 1)
    one = {d: line_load(d, rate, line) for d in possible if num_hashes in (None, d)}
    halves = [d for d in possible if num_hashes in (None, 2 * d)]
    two = {d: line_load(d, math.sqrt(rate), line) / 2 for d in halves}
    return best_lines(one, two, line.half / (_ONE_LINE_WASTE * optimal_bits_per_key(rate)))


def _loads(visits: int, lines: int) -> Iterator[tuple[int, float]]:
    """How many of so many visits a line gets, and the chance of that: binomial, from its mode
    outwards until what is left does not count."""
    mode = visits // lines
    chances = {mode: 1.0}
    for step, last in ((1, visits), (-1, 0)):
        at, chance = mode, 1.0
        while at != last and chance > 1e-12 and lines > 1:
            up = (visits - min(at, at + step)) / (max(at, at + step) * (lines - 1.0))
            at, chance = at + step, chance * (up if step > 0 else 1.0 / up)
            chances[at] = chance
    total = sum(chances.values())
    return ((at, chance / total) for at, chance in chances.items())


def _stuck(draws: int, cells: int, visits: int) -> float:
    """The chance that none of a key's bits in a line is its own to take back, after `visits` of
    other keys.

    Keys meet on one bit of a region of s, or they do not: none of them on the key's own bits, at
    most one on each of the others. How the key's draws fall on regions is the d-th coefficient of
    (sum over c of f(c) x**c / c!)**regions, where f(c) is the chance for a region with c draws.
    """
    regions = LINE_BITS - cells
    size = cells // regions
    touched = touched_by_visit(draws, Line(cells, 1))
    none = math.exp(visits * math.log1p(-touched))
    one_at_most = none * (1.0 + visits * touched / (1.0 - touched))
    free = [none**b * one_at_most ** (size - b) for b in range(size + 1)]
    series = [1.0]
    for c in range(1, draws + 1):
        # c draws on b distinct bits of the region.
        ways = [w * math.perm(size, b) for b, w in enumerate(stirling(c)[: size + 1])]
        own = sum(w * f for w, f in zip(ways, free, strict=False)) / size**c
        series.append((1.0 - own) / (math.factorial(c) * regions**c))
    for _ in range(regions.bit_length() - 1):  # a power of two: squared so often
        series = [
            math.fsum(series[i] * series[c - i] for i in range(c + 1)) for c in range(draws + 1)
        ]
    return series[draws] * math.factorial(draws)
