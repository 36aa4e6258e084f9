"""A filter of any kind, sized: any of capacity, error rate, memory and hashes gives the rest.

`bloom` and `cells` size one kind each and know more of it. Here each kind is a few functions with
the same arguments, so that kinds can be compared and one search solves for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import bloomery._native as _native
from bloomery.errors import InvalidParameter
from bloomery.sizing import bloom, tables
from bloomery.sizing.blocked import LINE_BITS, Line, expected_rate, optimal_bits_per_key
from bloomery.sizing.cells import CellPlan, counting_plan, counting_shape_plan, deletable_plan
from bloomery.sizing.limits import (
    HASHES,
    MAX_CAPACITY,
    MAX_ERROR_RATE,
    MAX_HASH_SHARE,
    MAX_MEMORY,
    MIN_ERROR_RATE,
    check_capacity,
    check_error_rate,
    check_sizes,
    last_true,
    number,
    show,
)

# What may be chosen of each kind, and what it is if it is not.
OPTIONS: dict[str, dict[str, Any]] = {
    "bloom": {"layout": "blocked"},
    "scalable": {},
    "counting": {"counter_bits": 4},
    "deletable": {"regions": None},
    "cuckoo": {"grow": False},
    "rotating": {"generations": 8},
    "static": {},
    "bank": {"keys_per_filter": 1000},
    "redisbloom": {},
    "rediscuckoo": {"bucket_size": 2},
}
KINDS = tuple(OPTIONS)
# Steps of the search for an error rate, over nine powers of ten: to six digits.
_STEPS = 24
_DIGITS = 4  # of an error rate that was found: what is printed makes the same filter

Rate = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class FamilyPlan:
    """A filter's size, of any kind."""

    kind: str
    options: Mapping[str, Any]
    capacity: int
    error_rate: float  # that was asked for, or found
    nbytes: int
    num_bits: int
    num_hashes: int | None  # None: it has fingerprints
    lines_per_key: int | None
    expected_error_rate: float  # once `capacity` keys are in
    rate_at: Rate = field(repr=False, compare=False)  # after so many keys, as it is made
    grows: bool = False  # past its capacity it takes more memory, and errs no more often
    full_at: int | None = None  # keys from which on it refuses more
    estimate: bool = False  # memory is about right, and no promise
    by_shape: bool = False  # made of bits and hashes: capacity and error rate alone give another

    @property
    def bits_per_key(self) -> float:
        """Bits of memory for each key of the capacity."""
        return self.num_bits / self.capacity

    @property
    def overhead(self) -> float:
        """Bits above the textbook optimum of a Bloom filter: 0.035 is 3.5% more; fingerprints may
        be below it."""
        return self.bits_per_key / optimal_bits_per_key(self.error_rate) - 1.0

    def rate_after(self, count: float) -> float | None:
        """The error rate after so many keys, also past the capacity: one that grows has no more
        than it was made for, and None is for one that takes no more keys."""
        if self.full_at is not None and count > self.full_at:
            return None
        rate = self.rate_at(count)
        return min(rate, self.error_rate) if self.grows and count > self.capacity else rate

    def as_dict(self) -> dict[str, Any]:
        """Every figure by name, ready for JSON."""
        names = (
            *("kind", "capacity", "error_rate", "nbytes", "num_bits", "num_hashes"),
            *("lines_per_key", "expected_error_rate", "grows", "full_at", "estimate", "by_shape"),
            *("bits_per_key", "overhead"),
        )
        return {**{name: getattr(self, name) for name in names}, "options": dict(self.options)}


def plan_kind(
    kind: str, capacity: int | float, error_rate: float | str, **options: Any
) -> FamilyPlan:
    """The size that a filter of this kind takes for a capacity and an error rate."""
    chosen = _check_options(kind, options)
    return _PLANS[kind](*check_sizes(capacity, error_rate), chosen)


def solve_kind(
    kind: str,
    *,
    capacity: int | float | None = None,
    error_rate: float | str | None = None,
    memory: int | None = None,
    num_hashes: int | None = None,
    **options: Any,
) -> FamilyPlan:
    """The rest from any two or three of capacity, error rate, memory (bytes) and hashes.

    `bloom` is solved by `solve`, and may be given any of them. Of the others only `counting` lets
    its hashes be chosen, with a capacity or a memory.
    """
    chosen = _check_options(kind, options)
    if kind == "bloom":
        return _bloom_plan(
            bloom.solve(
                capacity=capacity,
                error_rate=error_rate,
                memory=memory,
                num_hashes=num_hashes,
                **chosen,
            )
        )
    count = None if capacity is None else check_capacity(capacity)
    rate = None if error_rate is None else check_error_rate(error_rate)
    most = None if memory is None else _check_memory(memory)
    if num_hashes is not None:
        return _hashes_given(kind, chosen, count, rate, most, num_hashes)

    def plan(count: int, rate: float) -> FamilyPlan:
        return _PLANS[kind](count, rate, chosen)

    if count is not None and rate is not None:
        planned = plan(count, rate)
        if most is not None and planned.nbytes > most:
            raise InvalidParameter(
                f"{most:,} bytes of memory cannot hold {count:,} keys at error_rate {rate:g}: "
                f"that takes {planned.nbytes:,} bytes"
            )
        return planned
    if most is None:
        raise InvalidParameter(
            "too little to size a filter: give two or three of capacity, error_rate and memory"
        )
    if count is not None:
        return _lowest_rate(plan, count, most)
    if rate is not None:
        return _most_keys(plan, rate, most)
    raise InvalidParameter("too little to size a filter: give capacity or error_rate too")


def _check_options(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    if kind not in OPTIONS:
        raise InvalidParameter(f"kind must be one of {', '.join(KINDS)}, not {show(kind)}")
    known = OPTIONS[kind]
    for name in options:
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise InvalidParameter(f"a filter of kind {kind} has no option {name}: {takes}")
    return {**known, **{name: value for name, value in options.items() if value is not None}}


def _check_memory(value: object) -> int:
    nbytes = number(value)
    if isinstance(nbytes, int) and 64 <= nbytes <= MAX_MEMORY:
        return nbytes
    raise InvalidParameter(f"memory must be whole bytes from 64 to {MAX_MEMORY:,}, not {value!r}")


# Searches.

_Plan = Callable[[int, float], FamilyPlan]


def _most_keys(plan: _Plan, rate: float, memory: int) -> FamilyPlan:
    """The most keys that fit into the memory at this rate."""

    def fits(count: int) -> bool:
        try:
            return plan(count, rate).nbytes <= memory
        except InvalidParameter:  # more than any filter has
            return False

    most = min(MAX_CAPACITY, int(rate * MAX_HASH_SHARE * HASHES))
    capacity = last_true(fits, memory * 8 / optimal_bits_per_key(rate), 1, most)
    if capacity < 1:
        raise InvalidParameter(
            f"{memory:,} bytes of memory hold no key at error_rate {rate:g}: give more memory"
        )
    return plan(capacity, rate)


def _lowest_rate(plan: _Plan, capacity: int, memory: int) -> FamilyPlan:
    """The lowest error rate at which so many keys fit into the memory."""

    def fitting(rate: float) -> FamilyPlan | None:
        try:
            planned = plan(capacity, rate)
        except InvalidParameter:
            return None
        return planned if planned.nbytes <= memory else None

    best = fitting(MIN_ERROR_RATE)
    if best is not None:
        return best
    low, high = math.log(MIN_ERROR_RATE), math.log(MAX_ERROR_RATE)
    best = fitting(MAX_ERROR_RATE)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        planned = fitting(_rounded(math.exp(middle)))
        if planned is None:
            low = middle
        else:
            best, high = planned, middle
    if best is None:
        raise InvalidParameter(
            f"{memory:,} bytes of memory cannot hold {capacity:,} keys at any error_rate up to "
            f"{MAX_ERROR_RATE:g}: give more memory"
        )
    return best


def _rounded(rate: float) -> float:
    """A rate of few digits, not below this one."""
    scale = 10.0 ** (_DIGITS - 1 - math.floor(math.log10(rate)))
    return min(MAX_ERROR_RATE, float(f"{math.ceil(rate * scale - 1e-9) / scale:.{_DIGITS}g}"))


def _hashes_given(
    kind: str,
    options: dict[str, Any],
    capacity: int | None,
    rate: float | None,
    memory: int | None,
    num_hashes: int,
) -> FamilyPlan:
    if kind != "counting":
        raise InvalidParameter(
            f"a filter of kind {kind} chooses its hashes itself: leave num_hashes out"
        )
    if rate is not None or (capacity is None) == (memory is None):
        raise InvalidParameter(
            "for a counting filter give num_hashes with a capacity or with memory, and no more"
        )
    bits = options["counter_bits"]
    if memory is not None:
        lines = memory * 8 // LINE_BITS
    else:
        assert capacity is not None
        cells = math.ceil(capacity * num_hashes / math.log(2))
        lines = -(-cells * bits // LINE_BITS)
        # Whole lines, and the capacity is rounded down.
        while counting_shape_plan(lines * LINE_BITS, num_hashes, **options).capacity < capacity:
            lines += 1
    planned = counting_shape_plan(lines * LINE_BITS, num_hashes, **options)
    return _cell_plan("counting", planned, options, by_shape=True)


# Each kind.


def _bloom(capacity: int, rate: float, options: dict[str, Any]) -> FamilyPlan:
    return _bloom_plan(bloom.plan(capacity, rate, **options))


def _bloom_plan(planned: bloom.Plan) -> FamilyPlan:
    plain: bloom.Plan | None
    try:
        plain = bloom.plan(planned.capacity, planned.error_rate, layout=planned.layout)
    except InvalidParameter:
        plain = None
    sizes = planned.layout, planned.num_bits, planned.num_hashes, planned.lines_per_key
    rate_at = partial(bloom.expected_error_rate, *sizes)
    options = {"layout": planned.layout}
    return _line_plan("bloom", options, planned, rate_at, by_shape=plain != planned)


def _cell_plan(kind: str, planned: CellPlan, options: dict[str, Any], **more: Any) -> FamilyPlan:
    line, lines = Line(planned.line_cells, 1), planned.num_bits // LINE_BITS
    draws = planned.num_hashes // planned.lines_per_key

    def rate_at(count: float) -> float:
        if count <= 0:
            return 0.0
        return expected_rate(draws, planned.lines_per_key, count, lines, line)

    return _line_plan(kind, options, planned, rate_at, **more)


def _line_plan(
    kind: str,
    options: dict[str, Any],
    planned: bloom.Plan | CellPlan,
    rate_at: Callable[[float], float],
    **more: Any,
) -> FamilyPlan:
    return FamilyPlan(
        kind,
        options,
        planned.capacity,
        planned.error_rate,
        planned.nbytes,
        planned.num_bits,
        planned.num_hashes,
        planned.lines_per_key,
        planned.expected_error_rate,
        rate_at,
        **more,
    )


def _counting(capacity: int, rate: float, options: dict[str, Any]) -> FamilyPlan:
    return _cell_plan("counting", counting_plan(capacity, rate, **options), options)


def _deletable(capacity: int, rate: float, options: dict[str, Any]) -> FamilyPlan:
    return _cell_plan("deletable", deletable_plan(capacity, rate, **options), options)


def _table_plan(
    kind: str,
    options: dict[str, Any],
    capacity: int,
    rate: float,
    table: tables.TablePlan,
    **more: Any,
) -> FamilyPlan:
    def rate_at(count: float) -> float:
        return min(1.0, table.each * max(0.0, count))

    return FamilyPlan(
        kind,
        options,
        capacity,
        rate,
        table.nbytes,
        table.num_bits,
        None,
        2,
        rate_at(capacity),
        rate_at,
        **more,
    )


def _scalable(capacity: int, rate: float, options: dict[str, Any]) -> FamilyPlan:
    table = tables.growing_table(capacity, rate)
    return _table_plan("scalable", options, capacity, rate, table, grows=True)


def _cuckoo(capacity: int, rate: float, options: dict[str, Any]) -> FamilyPlan:
    if not isinstance(options["grow"], bool):
        raise InvalidParameter(f"grow must be True or False, not {show(options['grow'])}")
    if options["grow"]:
        table = tables.growing_table(capacity, rate)
        return _table_plan("cuckoo", options, capacity, rate, table, grows=True)
    table = tables.fixed_table(capacity, rate)
    return _table_plan("cuckoo", options, capacity, rate, table, full_at=capacity)


def _rotating(capacity: int, rate: float, options: dict[str, Any]) -> FamilyPlan:
    generations = tables.check_count("generations", options["generations"], 1, 254)
    table = tables.rotating_table(capacity, rate, generations)
    return _table_plan("rotating", options, capacity, rate, table, grows=True)


def _static(capacity: int, rate: float, options: dict[str, Any]) -> FamilyPlan:
    planned = tables.static_plan(capacity, rate)
    wrong = 0.5**planned.width
    return FamilyPlan(
        "static",
        options,
        capacity,
        rate,
        planned.nbytes,
        planned.num_bits,
        None,
        None,
        wrong,
        lambda count: wrong if count > 0 else 0.0,
        full_at=capacity,
    )


def _bank(capacity: int, rate: float, options: dict[str, Any]) -> FamilyPlan:
    """`capacity` are the keys of all users."""
    each = tables.check_count("keys_per_filter", options["keys_per_filter"], 1, 1 << 32)
    users = -(-capacity // each)
    nbytes = users * tables.bank_bytes_a_user(each, rate)
    return FamilyPlan(
        "bank",
        {**options, "users": users},
        capacity,
        rate,
        nbytes,
        8 * nbytes,
        None,
        None,
        rate,
        lambda count: rate if count > 0 else 0.0,
        grows=True,
        estimate=True,
    )


def _redisbloom(capacity: int, rate: float, options: dict[str, Any]) -> FamilyPlan:
    """Its first layer, as RedisBloom makes it; later ones are made when it is full."""
    # RedisBloom's own arithmetic: half of the rate is the first layer's, in whole words.
    used = min(rate, 0.25) / 2.0
    bits_a_key = abs(math.log(used)) / 0.480453013918201
    num_bits = -(-int(capacity * bits_a_key) // 64) * 64
    hashes = math.ceil(0.693147180559945 * bits_a_key)
    rate_at = partial(bloom.expected_error_rate, "classic", num_bits, hashes, 0)
    nbytes = _native.redisbloom_bytes(rate, capacity)
    return FamilyPlan(
        "redisbloom",
        options,
        capacity,
        rate,
        nbytes,
        8 * nbytes,
        hashes,
        0,
        rate_at(capacity),
        rate_at,
        grows=True,
        estimate=True,  # but for the head of its layer
    )


def _rediscuckoo(capacity: int, rate: float, options: dict[str, Any]) -> FamilyPlan:
    """Fingerprints of 8 bits: its error rate follows from the size of a bucket alone."""
    size = tables.check_count("bucket_size", options["bucket_size"], 1, 255)
    nbytes = _native.rediscuckoo_bytes(capacity, size)
    slots = nbytes
    wrong = 2.0 * size / 255.0
    if rate < wrong:
        raise InvalidParameter(
            f"RedisBloom's cuckoo filter has fingerprints of 8 bits: with buckets of {size} it errs"
            f" for up to {wrong:.2%} of all keys, and cannot be given {rate:g}; a filter of kind "
            "cuckoo can"
        )

    def rate_at(count: float) -> float:
        load = min(1.0, max(0.0, count) / slots)
        return -math.expm1(2.0 * size * load * math.log1p(-1.0 / 255.0))

    return FamilyPlan(
        "rediscuckoo",
        options,
        capacity,
        rate,
        nbytes,
        8 * nbytes,
        None,
        2,
        rate_at(capacity),
        rate_at,
        grows=True,
        estimate=True,
    )


_PLANS: dict[str, Callable[[int, float, dict[str, Any]], FamilyPlan]] = {
    "bloom": _bloom,
    "scalable": _scalable,
    "counting": _counting,
    "deletable": _deletable,
    "cuckoo": _cuckoo,
    "rotating": _rotating,
    "static": _static,
    "bank": _bank,
    "redisbloom": _redisbloom,
    "rediscuckoo": _rediscuckoo,
}
