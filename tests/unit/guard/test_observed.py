"""The error rate that really happens: true of real filters, whoever asks, and as time goes."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.errors import SourceUnavailable
from bloomery.guard import Guard
from bloomery.guard.observed import LockFreeCount, Observed
from bloomery.guard.sources.breaker import Breaker
from privates import core_of
from unit.clocks import Clock
from unit.filters.together import switching_often


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A steady clock that stands until it is moved."""
    made = Clock(1000.0)
    monkeypatch.setattr(time, "monotonic", made)
    return made


def filled(seed: int, keys: int = 2000) -> BloomFilter:
    """A filter that is as full as it may be, so that it errs in 1% of cases."""
    filter = BloomFilter(keys, 0.01, seed=seed)
    filter.update(range(keys))
    return filter


@pytest.mark.slow
@pytest.mark.parametrize("reads", ["each key once", "Zipf"])
def test_the_interval_covers_the_true_rate(reads: str) -> None:
    """In 95% of runs with real filters, also where few keys are read again and again: counted by
    reads, one popular false positive would look like a thousand."""
    runs, covered, by_reads = 60, 0, 0
    weights = [1 / (rank + 1) ** 1.1 for rank in range(4000)]
    for seed in range(runs):
        chance = random.Random(seed)
        filter = filled(seed)
        truth = sum(filter.contains_many(range(10**6, 10**6 + 40_000))) / 40_000
        keys = range(10**7 * (seed + 1), 10**7 * (seed + 1) + 4000)
        asked = chance.choices(keys, weights, k=8000) if reads == "Zipf" else list(keys)
        observed, wrong = Observed(), filter.contains_many(asked)
        for key, maybe in zip(asked, wrong, strict=True):
            if maybe:
                observed.false(key)
            else:
                observed.no(key)
        seen = observed.take()
        low, high = seen.interval
        covered += low <= truth <= high
        naive = sum(wrong) / len(asked)
        by_reads += abs(naive - truth) < 2 * (truth / len(asked)) ** 0.5
        # Nearly all distinct keys were counted: the two small filters miss 1%.
        assert 0.97 * len(set(asked)) <= seen.keys <= len(set(asked))
    assert covered >= 0.93 * runs  # 95%, less one deviation of so few runs
    if reads == "Zipf":
        assert by_reads < 0.7 * runs


def test_batches_and_single_keys_count_alike() -> None:
    """`nos` is `no` for each, repetitions too."""
    one, many = Observed(), Observed()
    keys = [n % 700 for n in range(2000)]
    for key in keys:
        one.no(key)
    many.nos(keys[:1000])
    many.nos(keys[1000:])
    for observed in (one, many):
        assert observed.denied == 2000
        assert not observed.false(5)
        assert observed.false(10**6)
        assert not observed.false(10**6)
    assert one.take().true_negatives == many.take().true_negatives >= 690
    assert one.take().false_positives == 1


def test_the_window_moves(clock: Clock) -> None:
    """What was seen is forgotten when its half of the window is over, and not before."""
    observed = Observed(window=100)
    observed.nos(["a", "b"])
    observed.false("x")
    clock.now += 60
    observed.nos(["c"])
    assert (observed.take().keys, observed.take().seconds) == (4, 60)
    clock.now += 60
    assert (observed.take().keys, observed.take().seconds) == (1, 60)
    clock.now += 200
    seen = observed.take()
    assert (seen.keys, seen.seconds) == (0, 0)
    assert seen.as_json()["observed_error_rate"] is None
    assert seen.interval == (0.0, 1.0)
    assert observed.denied == 3


@pytest.mark.parametrize("batched", [False, True])
def test_keys_that_are_asked_for_all_the_time_count_alike(clock: Clock, batched: bool) -> None:
    """The same absent keys in each half of many windows: the rate stays what it is, whoever said
    no and whoever erred, one by one or in batches."""
    observed = Observed(window=100)
    for _ in range(8):
        if batched:
            observed.nos(list(range(1000)))
        else:
            for key in range(1000):
                observed.no(key)
        for key in range(1000, 1010):
            observed.false(key)
        assert observed.take().error_rate == pytest.approx(0.01, abs=0.002)
        clock.now += 51


def test_very_many_keys_shorten_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its two filters hold so many keys each, and stay as exact as they are."""
    from bloomery.guard import observed as module

    monkeypatch.setattr(module, "_KEYS", 1000)
    observed = Observed()
    for start in range(0, 20_000, 100):
        observed.nos(list(range(start, start + 100)))
    assert 900 < observed.take().keys <= 2100
    assert observed.denied == 20_000


def test_a_new_filter_begins_anew() -> None:
    """After `restart` nothing of the old one is left, and its keys count again."""
    observed = Observed()
    observed.nos(["a"])
    observed.false("b")
    observed.restart()
    assert observed.take().keys == 0
    observed.no("a")
    assert observed.false("b")
    assert observed.take().keys == 2


def test_threads_lose_no_count() -> None:
    """Those who count and those who look."""
    observed, tally = Observed(), LockFreeCount()
    seen: list[int] = []

    def work(number: int) -> None:
        for n in range(2000):
            observed.no(f"{number} {n}")
            tally.increment()
            if number == 0 and n % 100 == 0:
                seen.append(tally.value())
                observed.take()

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    with switching_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert tally.value() == 8000
    assert tally.value() == 8000
    assert seen == sorted(seen)
    assert observed.denied == 8000
    assert 7900 <= observed.take().true_negatives <= 8000


@pytest.mark.slow
def test_a_filter_that_errs_too_often_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """When it surely does; one that keeps its promise is not spoken of."""
    for keys, warnings in ((1000, 0), (5000, 1)):
        caplog.clear()
        filter = BloomFilter(1000, 0.01)
        filter.update(range(keys))
        guard = Guard(filter, lambda key: key if key < 5000 else None)
        core_of(guard).deny("one that is unlucky")
        for start in range(10**6, 10**6 + 20_000, 500):
            guard.get_many(range(start, start + 500))
        assert len(caplog.messages) == warnings
    assert "errs more often than asked" in caplog.messages[0]
    assert "rebuild it with a larger capacity" in caplog.messages[0]


def test_nothing_is_counted_while_the_source_is_down() -> None:
    """Of the maybes nobody knows which were wrong: to count the noes alone would flatter."""
    breaker = Breaker(failures=1)
    observed = Observed(breaker=breaker)
    observed.no("a")
    breaker.failed()
    observed.no("b")
    observed.nos(["c", "d"])
    breaker.succeeded()
    observed.nos(["b"])
    assert (observed.take().true_negatives, observed.denied) == (2, 5)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["raise", "maybe"])
@pytest.mark.parametrize("present", [0, 2000], ids=["absent keys", "half of them there"])
def test_a_source_that_fails_now_and_then_does_not_flatter_the_filter(
    policy: Any, present: int
) -> None:
    """Half of its answers are missing: the rate is the true one all the same, and the interval,
    which is wider, has it."""
    filter = BloomFilter(2000, 0.05, seed=7)
    filter.update(range(2000))
    keys = range(10**6, 10**6 + 20_000)
    truth = sum(filter.contains_many(keys)) / len(keys)
    calls = 0

    def flaky(key: int) -> int | None:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise ConnectionError("away for a moment")
        return key if key < 2000 else None

    guard = Guard(filter, flaky, on_outage=policy, failures=10**6, timeout=None)
    asked = [*keys, *range(present)]
    random.Random(1).shuffle(asked)
    for key in asked:
        with suppress(SourceUnavailable):
            guard.get(key)
    info = guard.info()
    assert info["observed_error_rate"] == pytest.approx(truth, rel=0.15)
    assert info["observed_low"] < truth < info["observed_high"]
    assert info["unconfirmed"] > 300
    width = info["observed_high"] - info["observed_low"]
    for key in asked:  # now it answers each, the second time
        for _ in range(2):
            with suppress(SourceUnavailable):
                guard.get(key)
    info = guard.info()
    assert info["observed_error_rate"] == pytest.approx(truth, rel=0.05)
    assert info["unconfirmed"] < 20
    assert info["observed_high"] - info["observed_low"] < width
