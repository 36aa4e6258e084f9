"""What bloomery.sizing promises: the textbook's figures, exact blocked ones, clear refusals."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from fractions import Fraction
from typing import Any

import pytest

from bloomery import sizing
from bloomery.errors import InvalidParameter

RATES = [0.5, 0.3, 0.1, 0.05, 0.01, 0.005, 0.001, 6e-4, 5e-4, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9]
HUGE = pytest.param(10**5000, id="5001 digits")  # str() of it is a ValueError
CAPACITIES = [1, 2, 3, 7, 10, 33, 100, 1000, 12_345, 10**6, 10**8, 10**10]


@pytest.mark.parametrize(
    ("capacity", "error_rate", "num_bits", "num_hashes"),
    [
        (10**7, 0.01, 95_850_584, 7),
        (10**7, 0.001, 143_775_876, 10),
        (10**6, 0.5, 1_442_696, 1),
        (1000, 0.01, 9586, 7),
        (10**5, 1e-9, 4_313_276, 30),
    ],
)
def test_classic_is_the_textbook(
    capacity: int, error_rate: float, num_bits: int, num_hashes: int
) -> None:
    """The classic layout gives the figures of the textbook formulas."""
    got = sizing.plan(capacity, error_rate, layout="classic")
    assert abs(got.num_bits - num_bits) <= 1
    assert got.num_hashes == num_hashes
    assert got.lines_per_key == 0
    assert got.nbytes == math.ceil(got.num_bits / 512) * 64


def test_rules_of_thumb() -> None:
    """1% is about 9.6 bits a key, 0.1% about 14.4, and 10**9 keys at 1% about 1.2 GB."""
    assert sizing.plan(10**7, 0.01, layout="classic").bits_per_key == pytest.approx(9.6, abs=0.05)
    assert sizing.plan(10**7, 0.001, layout="classic").bits_per_key == pytest.approx(14.4, abs=0.05)
    for layout in ("classic", "blocked"):
        assert sizing.plan(10**9, 0.01, layout=layout).nbytes == pytest.approx(1.2e9, rel=0.04)


@pytest.mark.parametrize(
    ("error_rate", "lines_per_key", "num_hashes", "bits_per_key"),
    [
        (0.5, 1, 2, 1.63),
        (0.1, 1, 4, 4.88),
        (0.01, 1, 6, 9.92),
        (0.005, 1, 8, 11.57),
        (0.001, 1, 8, 15.67),
        (0.0001, 2, 12, 19.85),
        (0.00001, 2, 16, 25.29),
        (1e-9, 2, 24, 51.53),
    ],
)
def test_blocked_bits_a_key(
    error_rate: float, lines_per_key: int, num_hashes: int, bits_per_key: float
) -> None:
    """The blocked layout takes one line down to 0.1% and two below, at these bits a key."""
    got = sizing.plan(10**7, error_rate)
    assert (got.lines_per_key, got.num_hashes) == (lines_per_key, num_hashes)
    assert got.bits_per_key == pytest.approx(bits_per_key, abs=0.01)


def test_blocked_memory_bounds() -> None:
    """Blocked filters of a million keys and more stay within 10.0 and 15.7 bits a key."""
    for capacity in (10**6, 10**7, 10**9):
        assert sizing.plan(capacity, 0.01).bits_per_key <= 10.0
        assert sizing.plan(capacity, 0.001).bits_per_key <= 15.7


@pytest.mark.parametrize("error_rate", RATES)
def test_blocked_keeps_the_rate(error_rate: float) -> None:
    """A blocked plan is within its error rate at every capacity, and one line less is not."""
    for capacity in CAPACITIES:
        got = sizing.plan(capacity, error_rate)
        assert got.expected_error_rate <= error_rate
        assert got.num_bits % 512 == 0
        assert got.num_hashes % (2 * got.lines_per_key) == 0
        assert got.num_hashes // got.lines_per_key <= (8 if got.lines_per_key == 1 else 16)
        if got.num_bits > 512:
            shape = (got.num_hashes, got.lines_per_key)
            less = sizing.expected_error_rate("blocked", got.num_bits - 512, *shape, capacity)
            assert less > error_rate


@pytest.mark.parametrize("error_rate", [0.3, 0.1, 0.01, 0.001, 1e-5, 1e-9])
def test_classic_rounding_costs_little(error_rate: float) -> None:
    """Rounding k puts a classic filter's rate above the target by less than 5%, 1% from 1% down."""
    got = sizing.plan(10**6, error_rate, layout="classic")
    assert got.expected_error_rate <= error_rate * (1.05 if error_rate > 0.01 else 1.01)


@pytest.mark.parametrize("error_rate", [0.5, 0.354, 0.3, 0.1, 0.01, 0.001, 1e-5, 1e-7, 1e-9])
def test_small_classic_filters_keep_the_rate(error_rate: float) -> None:
    """Below 1,000 keys a classic filter has the few bits more that the exact rate asks for, and no
    more; from there on it is within 5% of what was asked for, whatever that is."""
    for capacity in (1, 2, 5, 10, 30, 100, 300, 999):
        got = sizing.plan(capacity, error_rate, layout="classic")
        textbook = math.ceil(capacity * sizing.optimal_bits_per_key(error_rate))
        assert got.num_bits >= textbook
        assert got.expected_error_rate <= error_rate
        if got.num_bits > max(textbook, 64):
            shape = ("classic", got.num_bits - 1, got.num_hashes, 0)
            assert sizing.expected_error_rate(*shape, capacity) > error_rate
        if error_rate >= 1e-5 and capacity >= 30 and error_rate not in (0.354, 0.5):
            assert got.num_bits <= textbook * 1.03
    for capacity in (1000, 3000, 10**4, 10**6):
        got = sizing.plan(capacity, error_rate, layout="classic")
        assert got.expected_error_rate <= error_rate * 1.05
        if error_rate > 1e-7:
            assert got.num_bits == math.ceil(capacity * sizing.optimal_bits_per_key(error_rate))


def half_occupancy(asked: int, draws: int) -> Fraction:
    """The chance that `asked` draws from 256 bits hit set ones after `draws`, draw by draw."""
    hit = [Fraction(0)] * 257  # by number of bits set
    hit[0] = Fraction(1)
    for _ in range(draws):
        hit = [
            hit[b] * Fraction(b, 256) + (hit[b - 1] * Fraction(257 - b, 256) if b else 0)
            for b in range(257)
        ]
    return sum((p * Fraction(b, 256) ** asked for b, p in enumerate(hit)), Fraction(0))


def occupancy(asked: int, draws: int) -> Fraction:
    """The same for a line: half of the draws, and of what is asked for, in either half."""
    return half_occupancy(asked // 2, draws // 2) ** 2


@pytest.mark.parametrize(("num_hashes", "count"), [(2, 5), (4, 4), (6, 5), (8, 3), (8, 30)])
def test_one_line_is_exact(num_hashes: int, count: int) -> None:
    """With one line the rate equals the one counted out bit by bit."""
    exact = float(occupancy(num_hashes, num_hashes * count))
    got = sizing.expected_error_rate("blocked", 512, num_hashes, 1, count)
    assert got == pytest.approx(exact, rel=1e-5)


def test_few_lines_are_exact() -> None:
    """With three lines the rate is the one-line rate averaged over where the keys fall."""
    count, k = 6, 4
    loads = [math.comb(count, x) * (1 / 3) ** x * (2 / 3) ** (count - x) for x in range(count + 1)]
    exact = sum(w * float(occupancy(k, k * x)) for x, w in enumerate(loads))
    got = sizing.expected_error_rate("blocked", 3 * 512, k, 1, count)
    assert got == pytest.approx(exact, rel=1e-5)


def test_two_lines_that_coincide_are_counted() -> None:
    """With one line in all, two lines a key are that line twice."""
    exact = float(occupancy(8, 2 * 4 * 6))
    assert sizing.expected_error_rate("blocked", 512, 8, 2, 6) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(
    ("layout", "num_bits", "num_hashes", "lines_per_key"),
    [("blocked", 512 * 99, 6, 1), ("blocked", 512 * 99, 24, 2), ("classic", 50_001, 7, 0)],
)
def test_more_keys_more_errors(
    layout: str, num_bits: int, num_hashes: int, lines_per_key: int
) -> None:
    """The rate rises with the keys from 0 to 1, also far past capacity."""
    counts = [0, 1, 10, 100, 1000, 3000, 5000, 10**4, 10**5, 10**7, 1e12, math.inf]
    rates = [
        sizing.expected_error_rate(layout, num_bits, num_hashes, lines_per_key, c) for c in counts
    ]
    assert rates[0] == 0.0
    assert rates[-1] == 1.0
    assert rates == sorted(rates)
    assert rates[1] > 0.0


@pytest.mark.parametrize("layout", ["blocked", "classic"])
@pytest.mark.parametrize("error_rate", [0.3, 0.01, 1e-4, 1e-9])
def test_estimated_count_inverts_the_fill(layout: str, error_rate: float) -> None:
    """The bits a given number of keys sets on average give that number back."""
    got = sizing.plan(20_000, error_rate, layout=layout)
    draws = got.num_hashes // (got.lines_per_key or got.num_hashes)
    visits, cells = 20_000 * (got.lines_per_key or got.num_hashes), got.num_bits
    if layout == "blocked":
        touched = (1 - (255 / 256) ** (draws // 2)) / (got.num_bits // 512)
    else:
        touched = 1 / cells
    bits_set = round(cells * (1 - (1 - touched) ** visits))
    shape = (layout, got.num_bits, got.num_hashes, got.lines_per_key)
    assert sizing.estimated_count(*shape, bits_set) == pytest.approx(20_000, rel=1e-3)
    assert sizing.estimated_count(*shape, 0) == 0.0


@pytest.mark.parametrize(
    "shape", [("blocked", 512, 6, 1), ("blocked", 5120, 24, 2), ("classic", 100, 7, 0)]
)
def test_estimated_count_of_a_full_filter(shape: tuple[str, int, int, int]) -> None:
    """A filter with every bit set has a finite estimate, above that with one bit clear."""
    full = sizing.estimated_count(*shape, shape[1])
    assert math.isfinite(full)
    assert full > sizing.estimated_count(*shape, shape[1] - 1) > 0


@pytest.mark.parametrize("error_rate", RATES)
@pytest.mark.parametrize("layout", ["blocked", "classic"])
def test_capacity_for_is_the_last_that_holds(layout: str, error_rate: float) -> None:
    """capacity_for keeps the rate where one key more would not, and covers a blocked plan."""
    for capacity in (1, 10, 1000, 10**6):
        got = sizing.plan(capacity, error_rate, layout=layout)
        shape = (got.num_bits, got.num_hashes, got.lines_per_key)
        most = sizing.capacity_for(*shape, error_rate, layout)
        rate_at = [sizing.expected_error_rate(layout, *shape, n) for n in (most, most + 1)]
        assert rate_at[0] <= error_rate < rate_at[1]
        assert most >= capacity if layout == "blocked" else most >= math.floor(capacity * 0.95)


def test_capacity_for_nothing() -> None:
    """Bits too few for a single key hold 0."""
    assert sizing.capacity_for(512, 2, 1, 1e-9, "blocked") == 0


@pytest.mark.parametrize("layout", ["blocked", "classic"])
@pytest.mark.parametrize("error_rate", RATES)
def test_solve_round_trips(layout: str, error_rate: float) -> None:
    """What plan gives leads back to itself from every other pair and triple."""
    for capacity in (10, 1000, 10**6):
        made = sizing.plan(capacity, error_rate, layout=layout)
        assert sizing.solve(capacity=capacity, error_rate=error_rate, layout=layout) == made
        by_memory = sizing.solve(error_rate=error_rate, memory=made.nbytes, layout=layout)
        assert by_memory.capacity >= capacity
        assert by_memory.nbytes == made.nbytes
        assert sizing.plan(by_memory.capacity, error_rate, layout=layout).nbytes == made.nbytes
        best = sizing.solve(capacity=capacity, memory=made.nbytes, layout=layout)
        assert best.error_rate <= max(made.expected_error_rate, 1e-9)
        same_k = sizing.solve(
            capacity=capacity, memory=made.nbytes, num_hashes=made.num_hashes, layout=layout
        )
        assert same_k.expected_error_rate <= made.expected_error_rate
        exact = sizing.solve(
            capacity=capacity, error_rate=error_rate, num_hashes=made.num_hashes, layout=layout
        )
        assert exact.expected_error_rate <= error_rate * (1 + 1e-9) + capacity / 2**64
        if layout == "blocked":
            assert exact == made


def test_solve_by_hashes() -> None:
    """Hashes and a capacity or memory mean the rate at which the textbook takes that many."""
    classic = sizing.solve(capacity=10**6, num_hashes=7, layout="classic")
    assert classic.error_rate == 2**-7
    assert classic.bits_per_key == pytest.approx(7 / math.log(2), rel=1e-5)
    blocked = sizing.solve(memory=10**6, num_hashes=12)
    assert (blocked.lines_per_key, blocked.num_hashes) == (2, 12)
    assert blocked.error_rate == 2**-12
    assert blocked.nbytes == 10**6


def test_solve_takes_hashes_that_halves_can_share() -> None:
    """Blocked: even numbers to 8, multiples of 4 to 32, no others; classic: all from 1 to 32."""
    allowed: dict[str, list[int]] = {"blocked": [], "classic": []}
    for layout, taken in allowed.items():
        for k in range(40):
            with contextlib.suppress(InvalidParameter):
                assert sizing.solve(capacity=1000, num_hashes=k, layout=layout).num_hashes == k
                taken.append(k)
    assert allowed["blocked"] == [2, 4, 6, 8, 12, 16, 20, 24, 28, 32]
    assert allowed["classic"] == list(range(1, 33))


def test_solve_keeps_one_line_while_it_is_cheap() -> None:
    """Hashes possible in one line and in two go to one, until that wastes more than 12%."""
    assert sizing.solve(capacity=10**6, error_rate=0.01, num_hashes=6).lines_per_key == 1
    assert sizing.solve(capacity=10**6, error_rate=1e-5, num_hashes=8).lines_per_key == 2


def test_solve_with_memory_to_spare() -> None:
    """More memory than the lowest rate takes is used, and the rate stays the lowest promised."""
    for layout in ("blocked", "classic"):
        got = sizing.solve(capacity=1000, memory=10**6, layout=layout)
        assert got.error_rate == 1e-9
        assert got.nbytes == 10**6
        assert got.expected_error_rate < 1e-9
        assert got.num_hashes <= 30


def test_solve_spreads_a_plan_over_more_memory() -> None:
    """Capacity, rate and memory together use all the memory, if it is enough."""
    got = sizing.solve(capacity=10**6, error_rate=0.01, memory=2_000_000)
    assert got.nbytes == 2_000_000
    assert got.expected_error_rate < 0.002
    with pytest.raises(InvalidParameter, match="that takes 1,240,448 bytes"):
        sizing.solve(capacity=10**6, error_rate=0.01, memory=1_000_000)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give capacity or memory"),
        ({"capacity": 10}, "at least one more"),
        ({"error_rate": 0.01, "num_hashes": 6}, "give capacity or memory"),
        (
            {"capacity": 10, "error_rate": 0.01, "memory": 64, "num_hashes": 6},
            "leave out at least one",
        ),
        ({"capacity": 10, "num_hashes": 7}, "2, 4, 6, 8 or another multiple of 4 to 32"),
        ({"capacity": 10, "num_hashes": 10}, "2, 4, 6, 8 or another multiple of 4 to 32"),
        ({"capacity": 10, "num_hashes": 0}, "not 0"),
        ({"capacity": 10, "num_hashes": 33, "layout": "classic"}, "1 to 32"),
        ({"capacity": 10, "num_hashes": True}, "bool"),
        ({"capacity": 10, "memory": 63}, "whole bytes from 64"),
        ({"capacity": 10, "memory": 1e6}, "whole bytes"),
        ({"capacity": 10, "memory": 2**60}, "whole bytes"),
        ({"capacity": 10**6, "memory": 64}, "above 0.5: give more memory"),
        ({"memory": 64, "error_rate": 1e-9, "num_hashes": 2}, "hold no key"),
        ({"capacity": 10**10, "error_rate": 1e-9, "num_hashes": 2}, "need more than"),
        ({"capacity": 10, "error_rate": 0.01, "layout": "round"}, "'blocked' or 'classic'"),
    ],
)
def test_solve_says_what_to_give(given: dict[str, Any], message: str) -> None:
    """Too little, too much or contradictory input is an error that says what would be right."""
    with pytest.raises(InvalidParameter, match=message):
        sizing.solve(**given)


@pytest.mark.parametrize(
    "value", [0, -1, math.nan, math.inf, -math.inf, 1e30, 1.5, 2**40 + 1, True, HUGE]
)
def test_capacity_out_of_range(value: object) -> None:
    """A capacity that is no whole number from 1 to 2**40 is refused by name."""
    with pytest.raises(InvalidParameter, match="capacity must be a whole number from 1 to"):
        sizing.check_capacity(value)


@pytest.mark.parametrize("value", [0, 1, -0.1, 0.51, 9e-10, math.nan, math.inf, 1e30, HUGE])
def test_error_rate_out_of_range(value: object) -> None:
    """An error rate outside 1e-9 to 0.5 is refused by name."""
    with pytest.raises(InvalidParameter, match=r"error_rate must be a number from 1e-09 to 0\.5"):
        sizing.check_error_rate(value)


@pytest.mark.parametrize("value", ["10", b"10", None, [1], True, 1j])
def test_wrong_types_are_named(value: object) -> None:
    """A value of the wrong type is refused with the type's name."""
    for check in (sizing.check_capacity, sizing.check_error_rate, sizing.check_layout):
        with pytest.raises(InvalidParameter, match=type(value).__name__):
            check(value)


def test_whole_floats_are_capacities() -> None:
    """1e9 is a capacity, and comes back as an int."""
    assert sizing.check_capacity(1e9) == 10**9
    assert type(sizing.check_capacity(1e9)) is int
    assert sizing.plan(1e6, 0.01) == sizing.plan(10**6, 0.01)
    assert sizing.check_error_rate(Fraction(1, 100)) == 0.01


def test_hashes_have_64_bits() -> None:
    """A rate that colliding 64-bit hashes would break is refused, and one near it paid for."""
    with pytest.raises(InvalidParameter, match="64-bit hashes alone"):
        sizing.plan(2**40, 1e-9)
    assert sizing.plan(10**10, 1e-9).bits_per_key > sizing.plan(10**7, 1e-9).bits_per_key * 1.03
    assert sizing.expected_error_rate("blocked", 512 * 10**9, 6, 1, 10) >= 10 / 2**64


def test_memory_grows_with_capacity() -> None:
    """More keys never take less memory."""
    for error_rate in RATES:
        sizes = [sizing.plan(n, error_rate).num_bits for n in (*range(1, 60), 10**3, 10**5, 10**6)]
        assert sizes == sorted(sizes)


@pytest.mark.slow
def test_memory_grows_with_precision() -> None:
    """A lower rate takes more memory, but for ties within 2% and the step to two lines."""
    rates = [0.5 * 10 ** (-i / 20) for i in range(173)]
    bits = [sizing.plan(10**6, r) for r in rates]
    for higher, lower in itertools.pairwise(bits):
        takes_over = lower.lines_per_key > higher.lines_per_key
        assert lower.num_bits >= higher.num_bits * (0.9 if takes_over else 0.98)


def test_plan_is_a_value() -> None:
    """A plan is frozen, and as_dict is ready for JSON with the derived figures in it."""
    got = sizing.plan(10**6, 0.01)
    with pytest.raises(AttributeError):
        got.capacity = 2  # type: ignore[misc]
    figures = json.loads(json.dumps(got.as_dict()))
    assert figures["num_bits"] == got.num_bits
    assert figures["nbytes"] == got.num_bits // 8
    assert figures["bits_per_key"] == pytest.approx(9.9236, abs=0.0001)
    assert figures["overhead"] == pytest.approx(0.0353, abs=0.0001)


def test_plan_describes_itself() -> None:
    """The rows for a person name the memory, the layout and the rates."""
    rows = dict(sizing.plan(10**9, 0.01).describe())
    assert rows["capacity"] == "1,000,000,000 keys"
    assert rows["error rate"] == "1% (1 in 100)"
    assert rows["memory"].startswith("1.24 GB")
    assert rows["layout"] == "blocked: 6 bits in one 64-byte line"
    assert "two 64-byte lines" in dict(sizing.plan(10, 1e-6).describe())["layout"]
    assert "anywhere" in dict(sizing.plan(10, 0.1, layout="classic").describe())["layout"]
