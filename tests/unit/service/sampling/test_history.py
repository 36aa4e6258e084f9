"""What becomes of a filter's figures: samples, minutes, hours, whatever the clock does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bloomery
from bloomery.service.domain.entry import Entry
from bloomery.service.sampling.history import Figures, FilterHistory
from bloomery.service.sampling.sample import HOUR, MINUTE, RAW, Sample
from unit.service.rows import NOW, sample

START = NOW // HOUR * HOUR


def entry(kind: str = "bloom", **settings: Any) -> Entry:
    """A filter of the server."""
    made: dict[str, Any] = {
        "bloom": bloomery.BloomFilter(1000),
        "scalable": bloomery.ScalableBloomFilter(1000),
        "cuckoo": bloomery.CuckooFilter(1000, grow=settings.get("grow", False)),
    }
    return Entry(
        1, b"one", made[kind], START, settings={"kind": kind, "capacity": 1000, **settings}
    )


def figures(items: int = 0, adds: int = 0, checks: int = 0, maybes: int = 0) -> Figures:
    """As the shelf tells them."""
    return (items, adds, checks, maybes, items / 2000, items / 1e5, float(items), 1280, 2)


class Filter:
    """A filter under a clock that a test sets, and what was written of it."""

    def __init__(self, one: Entry | None = None) -> None:
        self.entry = one or entry()
        self.history = FilterHistory()
        self.now, self.steady = START, 1000.0
        self.adds = self.checks = 0
        self.written: list[Sample] = []

    def pass_time(self, seconds: float, adds: int = 0, checks: int = 0, jump: float = 0) -> Sample:
        """Some seconds in which keys came; then a sample."""
        self.steady += seconds
        self.now = max(0.0, self.now + seconds + jump)
        self.adds += adds
        self.checks += checks
        found = figures(self.adds, self.adds, self.checks, self.checks // 2)
        taken = self.history.take(self.entry, found, 256, self.now, self.steady)
        self.written += self.history.rows(taken, self.steady)
        return taken

    def of(self, span: int) -> list[Sample]:
        """What was written of a span."""
        return [one for one in self.written if one.span == span]


def test_rates_are_of_the_time_between() -> None:
    """Adds and checks a second, and the share of maybes; of the first sample nothing is known."""
    one = Filter()
    first = one.pass_time(0, adds=100)
    assert (first.adds_per_second, first.checks_per_second, first.maybe_share) == (None,) * 3
    assert first.items == 100
    second = one.pass_time(5, adds=50, checks=20)
    assert (second.adds_per_second, second.checks_per_second, second.maybe_share) == (10, 4, 0.5)
    third = one.pass_time(5)
    assert (third.adds_per_second, third.maybe_share) == (0.0, None)


def test_the_forecast_of_a_sample() -> None:
    """A filter with room for 1,000 keys that takes 10 a second and has 500 is full in 50 s."""
    one = Filter()
    one.pass_time(0, adds=450)
    assert one.pass_time(5, adds=50).full_in == pytest.approx(50)
    assert one.pass_time(5, adds=500).full_in == 0.0


@pytest.mark.parametrize(
    ("one", "fills"),
    [
        (entry("scalable"), False),
        (entry("cuckoo", grow=True), False),
        (entry("cuckoo"), True),
    ],
)
def test_what_grows_does_not_fill(one: Entry, fills: bool) -> None:
    """There is no forecast for a kind that grows."""
    filter = Filter(one)
    filter.pass_time(0)
    assert (filter.pass_time(5, adds=100).full_in is not None) == fills


def test_a_cleared_filter_has_removed_nothing() -> None:
    """The keys that a CLEAR or MERGE took or brought are no rate at which keys come."""
    one = Filter()
    one.pass_time(0, adds=100)
    one.pass_time(5, adds=50)
    one.entry.changes += 1
    one.adds = 0
    cleared = one.pass_time(5)
    assert cleared.adds == 0
    assert cleared.full_in == pytest.approx(100)


def test_minutes_and_hours() -> None:
    """Each stands for its samples: sums of what was done, peaks, and the end."""
    one = Filter()
    for _ in range(2 * 720 + 13):
        one.pass_time(5, adds=10, checks=2)
    assert len(one.of(RAW)) == 1453
    minutes, hours = one.of(MINUTE), one.of(HOUR)
    assert (len(minutes), len(hours)) == (121, 2)
    minute = minutes[7]
    assert minute.seconds == 60
    assert (minute.adds, minute.checks, minute.probes, minute.hits) == (120, 24, 3072, 24)
    assert minute.adds_per_second == 2
    assert minute.sampled_at // MINUTE == START // MINUTE + 7
    hour = hours[1]
    assert (hour.seconds, hour.adds) == (3600, 7200)
    assert hour.items == 14_390
    assert hour.fill_ratio == pytest.approx(14_390 / 2000)


def test_a_peak_is_not_averaged_away() -> None:
    """The error rate of a minute is the largest in it; what a kind cannot tell stays unknown."""
    low, high, end = (sample(1, NOW + n, rate=rate) for n, rate in enumerate((0.01, 0.4, 0.02)))
    merged = low.standing_for(MINUTE)
    merged.absorb(high)
    merged.absorb(end)
    assert low.estimated_error_rate == 0.01
    assert merged.estimated_error_rate == 0.4
    assert merged.sampled_at == NOW
    assert merged.fill_ratio != merged.fill_ratio


@pytest.mark.slow
def test_a_filter_at_rest_is_written_rarely() -> None:
    """Once after it was last used, then each half hour; an hour's row once a day."""
    one = Filter()
    one.pass_time(5, adds=1)
    one.pass_time(5, adds=1)
    for _ in range(3 * 24 * 720):
        one.pass_time(5)
    assert len(one.of(RAW)) == pytest.approx(3 + 3 * 48, abs=1)
    assert len(one.of(MINUTE)) == 1
    assert len(one.of(HOUR)) in (3, 4)
    last = one.of(RAW)[2]
    assert (last.items, last.adds_per_second) == (2, 0.0)


def test_the_rest_is_written_at_the_end() -> None:
    """What is of a minute and an hour that are not over is not lost."""
    one = Filter()
    for _ in range(20):
        one.pass_time(5, adds=1)
    one.written += one.history.rest()
    assert sum(row.adds for row in one.of(MINUTE)) == sum(row.adds for row in one.of(HOUR)) == 19
    assert one.history.rest() == []


_STEPS = st.lists(
    st.tuples(
        st.floats(0.001, 200),
        st.integers(0, 1000),
        st.integers(0, 1000),
        st.one_of(st.just(0.0), st.floats(-1e9, 1e9), st.floats(-100, 100)),
    ),
    max_size=60,
)


@given(_STEPS)
def test_clocks_may_jump(steps: list[tuple[float, int, int, float]]) -> None:
    """Whatever the clock does: no rate is below 0, no span comes twice, and each key that was added
    is in exactly one sample, one minute and one hour."""
    one = Filter()
    one.pass_time(0)
    for seconds, adds, checks, jump in steps:
        taken = one.pass_time(seconds, adds, checks, jump)
        assert taken.seconds == pytest.approx(seconds)
        assert taken.adds_per_second == pytest.approx(adds / taken.seconds)
        assert taken.full_in is None or taken.full_in >= 0
    one.written += one.history.rest()
    for span in (RAW, MINUTE, HOUR):
        rows = one.of(span)
        assert sum(row.adds for row in rows) == one.adds
        assert sum(row.checks for row in rows) == one.checks
        assert len({row.sampled_at for row in rows}) == len(rows) or not _moves(steps)
        assert all(row.seconds < 2 * span + 400 for row in rows if span)
    assert len(one.written) <= 3 * (len(steps) + 2)


def _moves(steps: list[tuple[float, int, int, float]]) -> bool:
    """Does the clock never show the same time twice?"""
    now, seen = START, {START}
    for seconds, _, _, jump in steps:
        now = max(0.0, now + seconds + jump)
        if now in seen:
            return False
        seen.add(now)
    return True
