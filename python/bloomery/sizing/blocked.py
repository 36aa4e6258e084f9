"""The error rate of the blocked layout, line by line: the exact maths behind `bloom`.

A line has cells: the bits of the blocked layout, in two halves, or the counters or bits of other
kinds, in one piece. Each visit, by a key, sets `draws` random cells of the line, as many in either
half if it has halves, repeats allowed; a question asks for `asked` cells, dealt the same way.
"""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from typing import NamedTuple

from bloomery.sizing.limits import HASHES

LINE_BITS = 512
LINE_BYTES = 64
_ONE_LINE_TIE = 1.005  # within these, fewer draws win: less work for the same memory
_TWO_LINES_TIE = 1.02


class Line(NamedTuple):
    """The cells of a line, in `halves` (1 or 2) parts of `half` cells."""

    half: int
    halves: int


BLOCKED = Line(LINE_BITS // 2, 2)


def expected_rate(
    draws: int, lines_per_key: int, count: float, lines: int, line: Line = BLOCKED
) -> float:
    """The chance of a wrong *maybe* once `count` distinct keys are in.

    Exact for one line a key; for two, but for taking the loads of two different lines as
    independent, which errs upwards.
    """
    visits = lines_per_key * math.ceil(count)
    rate = line_rate(draws, draws, visits, lines, line)
    if lines_per_key == 2:
        # A key's two lines are one line once in `lines`, and then its answers agree.
        same = line_rate(2 * draws, draws, visits, lines, line)
        rate = rate * rate * (1.0 - 1.0 / lines) + same / lines
    return min(1.0, with_collisions(rate, count))


def with_collisions(rate: float, count: float) -> float:
    """The rate that keys of one 64-bit hash, which no filter can tell apart, make of this one."""
    return rate + (1.0 - rate) * (count / HASHES)


def optimal_bits_per_key(error_rate: float) -> float:
    """The textbook optimum, -ln p / (ln 2)**2: no Bloom filter does with less."""
    return -math.log(error_rate) / math.log(2) ** 2


def line_rate(asked: int, draws: int, visits: int, lines: int, line: Line = BLOCKED) -> float:
    """The chance that `asked` random cells of a random line are all set, after `visits` to `lines`.

    Cells are all set = inclusion and exclusion over those still clear, and the chance that i given
    cells of a line stay clear has a closed form, so there is no sum over loads. Putting a line's
    *mean* fill to the power instead is 1% too low at an error rate of 1%, 7% at 1e-9 (bits).
    """
    signed, touched = _terms(asked, draws, line)
    rate = math.fsum(
        c * math.exp(visits * math.log1p(-t / lines))
        for c, t in zip(signed, touched, strict=True)
        if t < lines  # else a visit surely touches one of them
    )
    # The terms are up to 2**asked times the sum's rounding: below that, decimals.
    if rate > 2.0**asked * sys.float_info.epsilon * 1e6:
        return rate
    from decimal import Context, Decimal, localcontext

    half, halves = line
    with localcontext(Context(prec=50, traps=[])):
        total = Decimal(0)
        for weight, clear in _weights(asked, line):
            kept = math.prod(half - i for i in clear)
            stay = Decimal(kept ** (draws // halves)) / half**draws
            total += weight * (1 - (1 - stay) / lines) ** visits
        return max(0.0, float(total / half**asked))


def line_load(draws: int, rate: float, line: Line = BLOCKED) -> float:
    """Visits a line, on average over many lines, at which one line's rate is `rate`."""
    signed, touched = _terms(draws, draws, line)
    low, high = 0.0, 4.0 * LINE_BITS
    for _ in range(56):
        middle = (low + high) / 2
        sums = sum(c * math.exp(-middle * t) for c, t in zip(signed, touched, strict=True))
        low, high = (middle, high) if sums <= rate else (low, middle)
    return low


def best_lines(
    one: dict[int, float], two: dict[int, float], enough: float
) -> tuple[int, int, float]:
    """Whether a key has one line or two, how many draws, and how many keys a line then takes. `one`
    and `two` have the keys a line by draws; from `enough` on one line, one memory access, is kept,
    although two may take more keys."""
    if one:
        draws = min(draws for draws in one if one[draws] * _ONE_LINE_TIE >= max(one.values()))
        if one[draws] >= enough or not two or max(two.values()) <= one[draws]:
            return 1, draws, one[draws]
    draws = min(draws for draws in two if two[draws] * _TWO_LINES_TIE >= max(two.values()))
    return 2, draws, two[draws]


def touched_by_visit(draws: int, line: Line = BLOCKED) -> float:
    """The chance that a visit sets a given cell of its line."""
    return -math.expm1(draws // line.halves * math.log1p(-1.0 / line.half))


def clear_spread(draws: int, visits: float, lines: int, line: Line = BLOCKED) -> float:
    """The standard deviation of the number of cells still clear after `visits`, over its mean.

    Whether two cells stay clear depends on each other: a visit that touched one is a visit less for
    other lines, and may have touched the other one if both are in one line.
    """
    half, halves = line
    each = draws // halves
    touched = touched_by_visit(draws, line)
    clear = 1.0 - touched / lines
    same_half = -math.expm1(each * math.log1p(-2.0 / half)) if half > 2 else 1.0
    other_half = touched * (2.0 - touched)

    def tie(either: float) -> float:
        """By how much two cells are both clear more often than if they were independent."""
        more = (2.0 * touched - either - touched * touched / lines) / lines / clear**2
        return math.expm1(visits * math.log1p(more))

    try:
        total = math.exp(-visits * math.log1p(-touched / lines)) - 1.0
        total += (half - 1) * tie(same_half)
        total += half * (halves - 1) * tie(other_half)
        total += half * halves * (lines - 1.0) * tie(2.0 * touched)
    except (OverflowError, ValueError, ZeroDivisionError):  # hardly a cell is clear
        return math.inf
    return math.sqrt(max(0.0, total) / (half * halves * lines))


@lru_cache(maxsize=256)
def _terms(asked: int, draws: int, line: Line) -> tuple[list[float], list[float]]:
    """Weights of inclusion and exclusion, and chances that a visit touches one of those cells."""
    half, halves = line
    weights = _weights(asked, line)
    signed = [weight / half**asked for weight, _ in weights]
    stay = [(1.0 - i / half) ** (draws // halves) for i in range(asked // halves + 1)]
    return signed, [1.0 - math.prod(stay[i] for i in clear) for _, clear in weights]


@lru_cache(maxsize=256)
def _weights(asked: int, line: Line) -> list[tuple[int, tuple[int, ...]]]:
    """(weight times half**asked, cells clear in each half); two halves either way round."""
    half, halves = line
    weights = _half_weights(asked // halves, half)
    if halves == 1:
        return [(weight, (i,)) for i, weight in enumerate(weights)]
    return [
        (weights[i] * weights[j] * (1 if i == j else 2), (i, j))
        for i in range(len(weights))
        for j in range(i + 1)
    ]


def _half_weights(asked: int, half: int) -> list[int]:
    """Weights of one half times half**asked: `asked` draws hit d distinct cells in
    stirling(asked)[d] * (half)_d ways, and i of those d are clear with sign (-1)**i."""
    ways = [s * math.perm(half, d) for d, s in enumerate(stirling(asked))]
    return [
        (-1) ** i * sum(w * math.comb(d, i) for d, w in enumerate(ways)) for i in range(asked + 1)
    ]


@lru_cache(maxsize=64)
def stirling(count: int) -> list[int]:
    """In how many ways `count` things fall into 0, 1, 2, ... groups."""
    ways = [1]
    for _ in range(count):
        shifted = [0, *ways]
        ways = [s + d * t for d, (s, t) in enumerate(zip(shifted, [*ways, 0], strict=True))]
    return ways
