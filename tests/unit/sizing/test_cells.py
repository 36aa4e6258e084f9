"""The sizes of counting and deletable filters: exact rates, and the share that can be removed."""

from __future__ import annotations

import itertools
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bloomery import CountingBloomFilter, DeletableBloomFilter, sizing
from bloomery.errors import InvalidParameter
from bloomery.sizing.blocked import Line, expected_rate, line_rate

CAPACITY = 100_000
# Each way of having cells: 64 or 128 counters in a line, or 512 bits less so many flags.
MADE: dict[str, tuple[Any, Any, dict[str, int]]] = {
    "4 bits": (CountingBloomFilter, sizing.counting_plan, {"counter_bits": 4}),
    "8 bits": (CountingBloomFilter, sizing.counting_plan, {"counter_bits": 8}),
    "few regions": (DeletableBloomFilter, sizing.deletable_plan, {"regions": 1}),
    "many regions": (DeletableBloomFilter, sizing.deletable_plan, {"regions": 2 * CAPACITY // 5}),
}
every_way = pytest.mark.parametrize("way", MADE)


def wrong(filter: Any, probes: int) -> float:
    """The share of so many keys that were never added that is a maybe."""
    return float(np.mean(filter.contains_many(np.arange(probes) + 2**40)))


def simulated(line: Line, draws: int, visits: int, lines: int, rng: np.random.Generator) -> float:
    """The rate of one line a key in one random filter."""
    set_cells = np.zeros((lines, line.half), bool)
    for at in rng.integers(lines, size=visits):
        set_cells[at, rng.integers(line.half, size=draws)] = True
    return float(np.mean(set_cells.mean(1) ** draws))


@pytest.mark.parametrize(("cells", "draws"), [(64, 3), (128, 6), (448, 6)])
@pytest.mark.parametrize("lines", [1, 5])
@pytest.mark.slow
def test_a_lines_rate_is_exact(cells: int, draws: int, lines: int) -> None:
    """The formula agrees with the mean of many random filters."""
    visits, rng, line = lines * cells // 9, np.random.default_rng(cells + lines), Line(cells, 1)
    rates = [simulated(line, draws, visits, lines, rng) for _ in range(400)]
    margin = 5 * statistics.stdev(rates) / math.sqrt(len(rates))
    assert line_rate(draws, draws, visits, lines, line) == pytest.approx(
        statistics.fmean(rates), abs=margin
    )


@every_way
@pytest.mark.parametrize("error_rate", [0.1, 0.01, 0.001])
def test_full_filters_err_as_planned(way: str, error_rate: float) -> None:
    """At full capacity a filter errs as often as its cells say and its plan foretold, within 5
    sigma."""
    make, plan, options = MADE[way]
    filter = make(CAPACITY, error_rate, **options)
    filter.update(np.arange(CAPACITY))
    made, probes = plan(CAPACITY, error_rate, **options), 10**6
    margin = 5 * math.sqrt(error_rate / probes)
    observed = wrong(filter, probes)
    assert observed == pytest.approx(filter.estimated_error_rate, abs=margin)
    # The cells themselves are a draw: with so many keys their rate is within a few percent.
    assert observed == pytest.approx(made.expected_error_rate, rel=0.06, abs=margin)
    assert made.expected_error_rate <= error_rate
    assert observed <= error_rate * 1.06 + margin


@every_way
@pytest.mark.parametrize("capacity", [1, 3, 30, 500])
@pytest.mark.parametrize("error_rate", [0.1, 0.001])
def test_small_filters_keep_the_rate(way: str, capacity: int, error_rate: float) -> None:
    """Filters for a handful of keys keep the rate on average, over many seeds."""
    make, plan, options = MADE[way]
    options = options if way != "many regions" else {}
    rates = []
    for seed in range(100):
        filter = make(capacity, error_rate, seed=seed * 0x9E3779B97F4A7C15 % 2**64, **options)
        filter.update(np.arange(capacity))
        rates.append(wrong(filter, 2000))
    spread = max(statistics.stdev(rates), math.sqrt(error_rate / 2000)) / math.sqrt(len(rates))
    expected = plan(capacity, error_rate, **options).expected_error_rate
    # Taking a key's two lines as independent errs upwards where there are few.
    assert statistics.fmean(rates) <= expected + 5 * spread
    assert expected <= error_rate


@every_way
@pytest.mark.parametrize("error_rate", [0.5, 0.1, 0.01, 1e-3, 1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("capacity", [1, 2, 7, 100, 12_345, 10**6, 10**10])
def test_no_line_fewer_would_do(way: str, capacity: int, error_rate: float) -> None:
    """A plan keeps the rate, and with one line less it would not."""
    _, plan, options = MADE[way]
    made = plan(capacity, error_rate, **({} if "many" in way else options))
    assert made.nbytes * 8 == made.num_bits
    lines, line = made.num_bits // 512, Line(made.line_cells, 1)
    draws = made.num_hashes // made.lines_per_key
    assert draws * made.lines_per_key == made.num_hashes
    assert made.expected_error_rate <= error_rate
    if lines > 1:
        assert expected_rate(draws, made.lines_per_key, capacity, lines - 1, line) > error_rate


@pytest.mark.parametrize(
    ("way", "error_rate", "lines_per_key", "num_hashes", "bits_per_key"),
    [
        ("4 bits", 0.1, 1, 3, 19.7),
        ("4 bits", 0.01, 1, 6, 43.4),
        ("4 bits", 0.001, 2, 8, 61.9),
        ("8 bits", 0.01, 2, 6, 80.5),
        ("few regions", 0.01, 1, 6, 10.25),
        ("few regions", 0.001, 1, 9, 16.1),
    ],
)
def test_known_plans(
    way: str, error_rate: float, lines_per_key: int, num_hashes: int, bits_per_key: float
) -> None:
    """One line a key where it costs little; the figures of docs/sizing.md."""
    _, plan, options = MADE[way]
    made = plan(10**7, error_rate, **options)
    assert (made.lines_per_key, made.num_hashes) == (lines_per_key, num_hashes)
    assert made.bits_per_key == pytest.approx(bits_per_key, rel=0.005)
    assert made.bits_per_key * made.line_cells / 512 == pytest.approx(made.cells_per_key)


def test_regions_are_at_least_as_many_as_asked_for() -> None:
    """A line has the fewest regions of 16, 32, 64 and 128 that are enough in all; 64 if open."""
    least = 0
    for wanted in (1, 10_000, 36_000, 70_000, 150_000, 200_000, 300_000):
        made = sizing.deletable_plan(CAPACITY, 0.01, regions=wanted)
        each = 512 - made.line_cells
        assert each in (16, 32, 64, 128)
        assert each >= least
        assert made.num_bits // 512 * each >= wanted
        assert made.num_bits // 512 * each / 2 < 1.2 * wanted or each == 16
        least = each
    assert sizing.deletable_plan(CAPACITY, 0.01).line_cells == 448
    with pytest.raises(InvalidParameter, match=r"at most 3\d\d,\d\d\d"):
        sizing.deletable_plan(CAPACITY, 0.01, regions=10**6)


@pytest.mark.slow
@pytest.mark.parametrize("error_rate", [0.1, 0.01, 1e-5])
@pytest.mark.parametrize("each", [16, 32, 64, 128])
def test_the_removable_share_is_foretold(each: int, error_rate: float) -> None:
    """At a quarter, half, all and one and a half of the capacity, the share of keys that can be
    removed is the predicted one."""
    lines = sizing.deletable_plan(20_000, error_rate).num_bits // 512
    regions = lines * each * 7 // 8
    filter = DeletableBloomFilter(20_000, error_rate, regions=regions)
    for low, high in itertools.pairwise([0, 5000, 10_000, 20_000, 30_000]):
        filter.update(np.arange(low, high))
        share = np.mean([filter.removable(key) for key in range(high)])
        foretold = sizing.removable_share(20_000, error_rate, regions=regions, load=high / 20_000)
        assert share == pytest.approx(foretold, abs=0.015)


def test_the_removable_share_has_its_limits() -> None:
    """Alone a key can always be removed; more regions and fewer keys make more removable."""
    assert sizing.removable_share(1000, 0.01, load=0) == 1.0
    assert sizing.removable_share(1, 0.01, load=1) == 1.0
    loads = [sizing.removable_share(10**6, 0.01, load=load) for load in (0.1, 0.5, 1, 2, 5)]
    assert loads == sorted(loads, reverse=True)
    counts = [sizing.removable_share(10**6, 0.01, regions=r) for r in (1, 10**6, 2 * 10**6)]
    assert counts == sorted(counts)
    assert sizing.removable_share(10, 0.01, load=100) == pytest.approx(0, abs=1e-9)
    # A filter of any size is a matter of milliseconds.
    assert sizing.removable_share(10**10, 0.01) == pytest.approx(loads[2], abs=1e-3)


@pytest.mark.parametrize("load", [-0.1, 101, math.nan, "1", None])
def test_impossible_loads_are_refused(load: Any) -> None:
    """The message says what was given and what is right."""
    with pytest.raises(InvalidParameter, match="load must be a number from 0 to 100"):
        sizing.removable_share(1000, 0.01, load=load)


@pytest.mark.parametrize("plan", [sizing.counting_plan, sizing.deletable_plan])
def test_the_usual_refusals(plan: Any) -> None:
    """Capacities and rates out of their range are refused as for the plain filter."""
    for capacity, error_rate in ((0, 0.01), (2**41, 0.01), (10, 0), (10, 0.6), ("10", 0.1)):
        with pytest.raises(InvalidParameter):
            plan(capacity, error_rate)
    with pytest.raises(InvalidParameter, match="64-bit hashes"):
        plan(10**11, 1e-9)


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading row of docs/sizing.md."""
    text = (Path(__file__).parents[3] / "docs" / "sizing.md").read_text("utf-8")
    table = text.partition(heading)[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_tables_of_the_docs() -> None:
    """docs/sizing.md has the figures that the functions give, for ten million keys."""
    rates = {"10%": 0.1, "1%": 0.01, "0.1%": 1e-3, "0.01%": 1e-4, "10⁻⁶": 1e-6}
    counting = rows("| error rate | 4 bits |")
    assert len(counting) == len(rates)
    for rate, *figures in counting:
        for bits, (memory, cells, over) in ((4, figures[:3]), (8, figures[3:])):
            made = sizing.counting_plan(10**7, rates[rate], counter_bits=bits)
            draws = made.num_hashes // made.lines_per_key
            more = made.cells_per_key / sizing.optimal_bits_per_key(rates[rate]) - 1
            assert memory == f"{made.bits_per_key:.2f}"
            assert cells == ("2 × " if made.lines_per_key == 2 else "") + str(draws)
            assert over == f"{100 * more:+.1f}%"
    deletable = rows("| regions a line | bits a key |")
    assert [int(each.partition(",")[0]) for each, *_ in deletable] == [16, 32, 64, 128]
    for each, memory, *shares in deletable:
        regions = 200_000 * int(each.partition(",")[0])
        made = sizing.deletable_plan(10**7, 0.01, regions=regions)
        assert memory == f"{made.bits_per_key:.2f}"
        for load, share in zip((0.25, 0.5, 0.75, 1, 1.5), shares, strict=True):
            told = sizing.removable_share(10**7, 0.01, regions=regions, load=load)
            assert share == f"{100 * told:.1f}%"
