"""How large a filter must be: the pure maths, for both layouts. docs/sizing.md has the formulas.

`plan` is what BloomFilter uses; `solve` turns any two or three of capacity, error rate, memory
and hashes into the rest. A rate here is always the chance that a key never added is answered
*maybe*; the size never affects the other promise, that a *no* is certain.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple, cast

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
    touched_by_visit,
    with_collisions,
)
from bloomery.sizing.classic import MIN_BITS, classic_rate
from bloomery.sizing.limits import (
    HASHES,
    MAX_CAPACITY,
    MAX_ERROR_RATE,
    MAX_HASH_SHARE,
    MAX_MEMORY,
    MIN_ERROR_RATE,
    best_capacity,
    check_capacity,
    check_error_rate,
    check_hash_width,
    check_num_bits,
    check_shape_rate,
    check_sizes,
    last_true,
    number,
    show,
)
from bloomery.suggestions import known_keywords

Layout = Literal["blocked", "classic"]

MAX_HASHES = 32
# Blocked: as many bits in each half of a line, so these and no others.
ONE_LINE_HASHES = range(2, 9, 2)
TWO_LINES_HASHES = range(4, MAX_HASHES + 1, 4)

# How far above the capacity, in standard errors, an estimated count is no accident any more.
_SIGMAS = 4.0

# One line is one memory access, so it is kept until it costs 12% more than the textbook.
_ONE_LINE_WASTE = 1.12
# A classic filter for so many keys or more has the textbook's size: k is rounded there, which puts
# the rate above the one asked for by 4.8% of it at most. Only where a key's positions are not
# independent enough for the rate (1e-7 and below, up to some 10,000 keys) are there more bits.
_SMALL = 1000
_TEXTBOOK_EXCESS = 1.05


class Plan(NamedTuple):
    """A filter's size. `expected_error_rate` is the rate once `capacity` keys are in it."""

    capacity: int
    error_rate: float
    layout: Layout
    num_bits: int
    num_hashes: int
    lines_per_key: int  # 1 or 2; 0 in the classic layout, which has no lines
    expected_error_rate: float
    nbytes: int  # num_bits in bytes, up to a whole line

    @property
    def bits_per_key(self) -> float:
        """Bits for each key of the capacity."""
        return self.num_bits / self.capacity

    @property
    def overhead(self) -> float:
        """Memory above the textbook optimum: 0.035 is 3.5% more bits."""
        return self.bits_per_key / optimal_bits_per_key(self.error_rate) - 1.0

    def as_dict(self) -> dict[str, int | float | str]:
        """Every figure by name, ready for JSON."""
        return {**self._asdict(), "bits_per_key": self.bits_per_key, "overhead": self.overhead}

    def describe(self) -> list[tuple[str, str]]:
        """The plan as (label, text) rows for a person."""
        probes = {
            0: f"{self.num_hashes} bits anywhere",
            1: f"{self.num_hashes} bits in one 64-byte line",
            2: f"{self.num_hashes // 2} bits in each of two 64-byte lines",
        }[self.lines_per_key]
        textbook = optimal_bits_per_key(self.error_rate)
        return [
            ("capacity", f"{self.capacity:,} keys"),
            ("error rate", _percent(self.error_rate)),
            ("expected error rate", f"{_percent(self.expected_error_rate)} when full"),
            ("layout", f"{self.layout}: {probes}"),
            ("memory", f"{_bytes(self.nbytes)} ({self.nbytes:,} bytes)"),
            ("bits", f"{self.num_bits:,}"),
            ("bits a key", f"{self.bits_per_key:.2f} (textbook optimum {textbook:.2f})"),
            ("hashes", str(self.num_hashes)),
        ]


@known_keywords
def plan(capacity: int | float, error_rate: float | str, *, layout: str = "blocked") -> Plan:
    """The size BloomFilter takes for this capacity and error rate."""
    (n, rate), kind = check_sizes(capacity, error_rate), check_layout(layout)
    check_hash_width(n, rate)
    return _plan(n, rate, kind, None)


def shape_plan(
    num_bits: int,
    num_hashes: int,
    *,
    layout: str = "classic",
    lines_per_key: int | None = None,
    capacity: int | float | None = None,
) -> Plan:
    """The plan of a filter whose bits and hashes are given; blocked, in whole lines of 512 bits.

    Its capacity, unless it is given too, is the number of keys for which so many hashes are the
    textbook's choice, ln 2 * num_bits / num_hashes, and its error rate the one that they make:
    about 2**-num_hashes. Blocked, a key's bits lie in as many lines, 1 or 2, as suit that rate.
    """
    kind = check_layout(layout)
    k, bits = _check_num_hashes(num_hashes, kind), check_num_bits(num_bits)
    lines = _check_lines(lines_per_key, k, kind)
    if kind == "blocked":
        bits = -(-bits // LINE_BITS) * LINE_BITS
    count = best_capacity(bits, k) if capacity is None else check_capacity(capacity)
    rate = expected_error_rate(kind, bits, k, lines, count)
    return _plan_of(count, check_shape_rate(bits, k, rate), kind, bits, k, lines)


def _check_lines(value: int | None, num_hashes: int, layout: Layout) -> int:
    """The lines of a key with so many hashes: 0 where the layout has none."""
    possible = {0}
    if layout == "blocked":
        possible = {1} if num_hashes in ONE_LINE_HASHES else set()
        possible |= {2} if num_hashes in TWO_LINES_HASHES else set()
        if value is None:
            return _shape(max(MIN_ERROR_RATE, 2.0**-num_hashes), num_hashes)[0]
    if value is None or value in possible:
        return value or 0
    shown = " or ".join(map(str, sorted(possible)))
    raise InvalidParameter(
        f"lines_per_key must be {shown} for num_hashes {num_hashes} ({layout} layout), not "
        f"{show(value)}"
    )


@known_keywords
def solve(
    *,
    capacity: int | float | None = None,
    error_rate: float | str | None = None,
    memory: int | None = None,
    num_hashes: int | None = None,
    layout: str = "blocked",
) -> Plan:
    """The rest from any two or three of capacity, error rate, memory (bytes) and hashes.

    Memory is used whole, down to the 64-byte line. Hashes without a rate mean the rate at which
    that many are the textbook's choice, 2**-num_hashes.
    """
    kind = check_layout(layout)
    n = None if capacity is None else check_capacity(capacity)
    rate = None if error_rate is None else check_error_rate(error_rate)
    lines = None if memory is None else _check_memory(memory) // LINE_BYTES
    k = None if num_hashes is None else _check_num_hashes(num_hashes, kind)
    given = 4 - [n, rate, lines, k].count(None)
    if given == 4:
        raise InvalidParameter(
            "capacity, error_rate, memory and num_hashes are all given: leave out at least one"
        )
    if given < 2 or (n is None and lines is None):
        raise InvalidParameter(
            "too little to size a filter: give capacity or memory, and at least one more of"
            " capacity, error_rate, memory and num_hashes"
        )
    if rate is None and k is not None and (n is None or lines is None):
        rate = max(MIN_ERROR_RATE, 2.0**-k)
    if n is not None and rate is not None:
        check_hash_width(n, rate)
        wanted = _plan(n, rate, kind, k)
        return wanted if lines is None else _in_memory(wanted, lines)
    if n is None:
        return _most_keys(cast(float, rate), cast(int, lines), kind, k)
    return _lowest_rate(n, cast(int, lines), kind, k)


def expected_error_rate(
    layout: str, num_bits: int, num_hashes: int, lines_per_key: int, count: float
) -> float:
    """The chance of a wrong *maybe* once `count` distinct keys are in.

    Blocked: `line_rates.expected_rate`. Classic: `classic_rates.classic_rate`.
    """
    if count <= 0:
        return 0.0
    if not math.isfinite(count):
        return 1.0
    if layout == "blocked":
        draws = num_hashes // lines_per_key
        return expected_rate(draws, lines_per_key, count, num_bits // LINE_BITS)
    return min(1.0, with_collisions(classic_rate(num_bits, num_hashes, count), count))


def estimated_count(
    layout: str, num_bits: int, num_hashes: int, lines_per_key: int, bits_set: int
) -> float:
    """Distinct keys added, from the number of bits set; finite when all of them are."""
    if bits_set <= 0:
        return 0.0
    # The last clear bit is taken as half clear, so a full filter has a finite estimate.
    clear = math.log(max(num_bits - bits_set, 0.5) / num_bits)
    if layout == "classic":
        return clear / (num_hashes * math.log1p(-1.0 / num_bits)) if num_bits > 1 else 1.0
    lines, draws = num_bits // LINE_BITS, num_hashes // lines_per_key
    return clear / (lines_per_key * math.log1p(-touched_by_visit(draws) / lines))


def count_error(
    layout: str, num_bits: int, num_hashes: int, lines_per_key: int, count: float
) -> float:
    """The standard error of `estimated_count` when `count` distinct keys are in."""
    if count <= 0 or num_bits <= 1:
        return 0.0
    if layout == "classic":
        spread = clear_spread(1, num_hashes * count, 1, Line(num_bits, 1))
        return spread / (num_hashes * -math.log1p(-1.0 / num_bits))
    lines, draws = num_bits // LINE_BITS, num_hashes // lines_per_key
    spread = clear_spread(draws, lines_per_key * count, lines)
    return spread / (lines_per_key * -math.log1p(-touched_by_visit(draws) / lines))


def is_beyond(estimate: float, capacity: int, standard_error: float) -> bool:
    """True if an estimated count shows that there are more keys than the capacity.

    The estimate of a filter with just as many keys is above the capacity every other time. It is so
    by more than four standard errors once in 30,000 filters.
    """
    return estimate > capacity + _SIGMAS * standard_error


def capacity_for(
    num_bits: int, num_hashes: int, lines_per_key: int, error_rate: float, layout: str
) -> int:
    """The most keys these bits hold within the error rate; 0 when not even one."""

    if layout == "classic":
        guess = num_bits / optimal_bits_per_key(error_rate)
    else:
        draws = num_hashes // lines_per_key
        load = line_load(draws, error_rate ** (1.0 / lines_per_key)) / lines_per_key
        guess = num_bits // LINE_BITS * load

    def holds(count: int) -> bool:
        rate = expected_error_rate(layout, num_bits, num_hashes, lines_per_key, count)
        return rate <= error_rate

    return last_true(holds, guess, 1, MAX_CAPACITY)


def check_layout(value: object) -> Layout:
    """The layout, or InvalidParameter."""
    if value == "blocked":
        return "blocked"
    if value == "classic":
        return "classic"
    raise InvalidParameter(f"layout must be 'blocked' or 'classic', not {show(value)}")


def _check_memory(value: object) -> int:
    nbytes = number(value)
    if isinstance(nbytes, int) and LINE_BYTES <= nbytes <= MAX_MEMORY:
        return nbytes
    raise InvalidParameter(
        f"memory must be whole bytes from {LINE_BYTES} to {MAX_MEMORY:,}, not {show(value)}"
    )


def _check_num_hashes(value: object, layout: Layout) -> int:
    possible, shown = {*range(1, MAX_HASHES + 1)}, "1 to 32"
    if layout == "blocked":
        possible = {*ONE_LINE_HASHES, *TWO_LINES_HASHES}
        shown = "2, 4, 6, 8 or another multiple of 4 to 32"
    count = number(value)
    if isinstance(count, int) and count in possible:
        return count
    raise InvalidParameter(f"num_hashes must be {shown} ({layout} layout), not {show(value)}")


@lru_cache(maxsize=1024)
def _plan(capacity: int, rate: float, layout: Layout, num_hashes: int | None) -> Plan:
    if layout == "classic":
        return _plan_of(capacity, rate, layout, *_classic_shape(capacity, rate, num_hashes), 0)
    lines_per_key, k, load = _shape(rate, num_hashes)

    def too_high(lines: int) -> bool:
        bits = lines * LINE_BITS
        return expected_error_rate("blocked", bits, k, lines_per_key, capacity) > rate

    # The load is the limit of many lines, so the guess is a few lines off: two lines that
    # coincide ask for more, as do keys enough for their hashes to collide.
    lines = 1 + last_true(too_high, capacity / load, 1, MAX_MEMORY // LINE_BYTES)
    return _plan_of(capacity, rate, layout, lines * LINE_BITS, k, lines_per_key)


@lru_cache(maxsize=256)
def _shape(rate: float, num_hashes: int | None) -> tuple[int, int, float]:
    """(lines a key, hashes, keys a line) for a blocked filter of many lines; about 3 ms."""
    one = {k: line_load(k, rate) for k in ONE_LINE_HASHES}
    two = {k: line_load(k // 2, math.sqrt(rate)) / 2 for k in TWO_LINES_HASHES}
    if num_hashes is not None:
        one, two = ({k: d[k] for k in d if k == num_hashes} for d in (one, two))
    return best_lines(one, two, LINE_BITS / (_ONE_LINE_WASTE * optimal_bits_per_key(rate)))


@lru_cache(maxsize=1024)
def _classic_shape(capacity: int, rate: float, num_hashes: int | None) -> tuple[int, int]:
    """(bits, hashes) of a classic filter: the textbook's, and more bits where its formula errs."""
    textbook = math.ceil(capacity * optimal_bits_per_key(rate))
    k = num_hashes or _classic_hashes(textbook, capacity)
    most, least = rate, textbook
    if num_hashes is not None:
        clear = math.log1p(-(rate ** (1.0 / k))) / (k * capacity)
        least = math.ceil(-1.0 / math.expm1(clear))
    elif capacity >= _SMALL:
        most *= _TEXTBOOK_EXCESS

    def too_high(num_bits: int) -> bool:
        return classic_rate(num_bits, k, capacity) > most

    least = max(least, MIN_BITS)
    if too_high(least):
        least = 1 + last_true(too_high, least, least, 8 * MAX_MEMORY)
    return least, k


def _classic_hashes(num_bits: int, capacity: int) -> int:
    # 30 are the textbook's choice at 1e-9: memory beyond that needs no more.
    return min(30, max(1, round(num_bits / capacity * math.log(2))))


def _plan_of(
    capacity: int, rate: float, layout: Layout, num_bits: int, num_hashes: int, lines_per_key: int
) -> Plan:
    nbytes = -(-num_bits // LINE_BITS) * LINE_BYTES
    if nbytes > MAX_MEMORY:
        raise InvalidParameter(
            f"{capacity:,} keys at error_rate {rate:g} with {num_hashes} hashes need more than"
            f" {MAX_MEMORY:,} bytes"
        )
    expected = expected_error_rate(layout, num_bits, num_hashes, lines_per_key, capacity)
    return Plan(capacity, rate, layout, num_bits, num_hashes, lines_per_key, expected, nbytes)


def _in_memory(wanted: Plan, lines: int) -> Plan:
    """The wanted plan spread over all of the memory, if it fits."""
    if wanted.nbytes > lines * LINE_BYTES:
        raise InvalidParameter(
            f"{lines * LINE_BYTES:,} bytes of memory cannot hold {wanted.capacity:,} keys at"
            f" error_rate {wanted.error_rate:g} with {wanted.num_hashes} hashes: that takes"
            f" {wanted.nbytes:,} bytes"
        )
    w = wanted
    num_bits = lines * LINE_BITS
    return _plan_of(w.capacity, w.error_rate, w.layout, num_bits, w.num_hashes, w.lines_per_key)


def _most_keys(rate: float, lines: int, layout: Layout, num_hashes: int | None) -> Plan:
    """Memory and rate given: the most keys for which a plan still fits."""
    num_bits = lines * LINE_BITS
    most = min(MAX_CAPACITY, int(rate * MAX_HASH_SHARE * HASHES))
    if layout == "classic":
        guess = num_bits / optimal_bits_per_key(rate)

        def fits(n: int) -> bool:
            return _classic_shape(n, rate, num_hashes)[0] <= num_bits

        capacity = last_true(fits, guess, 1, most)
        if capacity < _SMALL <= most and fits(
            _SMALL
        ):  # which may have fewer bits than one key less
            capacity = last_true(fits, guess, _SMALL, most)
        k, lines_per_key = num_hashes or _classic_hashes(num_bits, max(1, capacity)), 0
    else:
        lines_per_key, k, _ = _shape(rate, num_hashes)
        capacity = min(most, capacity_for(num_bits, k, lines_per_key, rate, layout))
    if capacity == 0:
        raise InvalidParameter(
            f"{lines * LINE_BYTES:,} bytes of memory hold no key at error_rate {rate:g} with"
            f" {k} hashes: give more memory, or other hashes"
        )
    return _plan_of(capacity, rate, layout, num_bits, k, lines_per_key)


def _lowest_rate(capacity: int, lines: int, layout: Layout, num_hashes: int | None) -> Plan:
    """Capacity and memory given: the hashes, if not given too, with the lowest rate."""
    num_bits = lines * LINE_BITS
    if layout == "classic":
        shapes = [(0, num_hashes or _classic_hashes(num_bits, capacity))]
    else:
        shapes = [(1, k) for k in ONE_LINE_HASHES] + [(2, k) for k in TWO_LINES_HASHES]
        shapes = [s for s in shapes if num_hashes in (None, s[1])]
    rates = {s: expected_error_rate(layout, num_bits, s[1], s[0], capacity) for s in shapes}
    if min(rates.values()) < MIN_ERROR_RATE:  # memory to spare: no more hashes than that takes
        shapes = [s for s in shapes if rates[s] <= MIN_ERROR_RATE]
        return _plan_of(capacity, MIN_ERROR_RATE, layout, num_bits, *shapes[0][::-1])
    shape = min(shapes, key=rates.__getitem__)
    if shape[0] == 2 and _shape(rates[shape], num_hashes)[0] == 1:  # one line serves as well
        shape = min((s for s in shapes if s[0] == 1), key=rates.__getitem__)
    expected = rates[shape]
    if expected > MAX_ERROR_RATE:
        raise InvalidParameter(
            f"{lines * LINE_BYTES:,} bytes of memory for {capacity:,} keys"
            + (f" with {num_hashes} hashes" if num_hashes else "")
            + f" give an error rate of {expected:.3g}, above {MAX_ERROR_RATE:g}: give more memory"
        )
    return _plan_of(capacity, expected, layout, num_bits, shape[1], shape[0])


def _percent(rate: float) -> str:
    return f"{rate * 100:.4g}% (1 in {1 / rate:,.4g})" if rate > 0 else "0%"


def _bytes(count: int) -> str:
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.4g} {unit}"
