"""Who is down is asked by one, now and then, and by all when it answers."""

from __future__ import annotations

import threading
import time

import pytest

from bloomery.guard.sources.breaker import Breaker
from unit.clocks import Clock
from waiting import wait_until


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A steady clock that stands until it is moved."""
    made = Clock(1000.0)
    monkeypatch.setattr(time, "monotonic", made)
    return made


def opened(failures: int = 3, retry: float = 1.0, most_retry: float = 5.0) -> Breaker:
    """A breaker that has just opened."""
    breaker = Breaker(failures, retry, most_retry)
    for _ in range(failures):
        assert breaker.enter()
        breaker.failed()
    return breaker


def test_it_opens_after_failures_in_a_row(clock: Clock) -> None:
    """An answer in between begins the count anew."""
    breaker = Breaker(3)
    for outcome in "ffsff":
        assert breaker.enter()
        breaker.failed() if outcome == "f" else breaker.succeeded()
    assert (breaker.state, breaker.since, breaker.retry_in) == ("closed", None, 0.0)
    breaker.failed()
    assert breaker.state == "open"
    assert breaker.since is not None
    assert not breaker.enter()
    assert breaker.retry_in == 1.0


def test_one_may_ask_when_the_time_has_come(clock: Clock) -> None:
    """Half open, only the first; its answer lets all ask again."""
    breaker = opened()
    clock.now += 0.9
    assert not breaker.enter()
    clock.now += 0.2
    assert (breaker.enter(), breaker.state) == (True, "half-open")
    assert not any(breaker.enter() for _ in range(10))
    breaker.succeeded()
    assert breaker.state == "closed"
    assert all(breaker.enter() for _ in range(10))


def test_each_failed_try_doubles_the_wait(clock: Clock) -> None:
    """Up to the longest; after an answer it begins with the shortest again."""
    breaker, waits = opened(), []
    for _ in range(5):
        waits.append(breaker.retry_in)
        clock.now += breaker.retry_in
        assert breaker.enter()
        breaker.failed()
    assert waits == [1, 2, 4, 5, 5]
    clock.now += 5
    assert breaker.enter()
    breaker.succeeded()
    for _ in range(3):
        breaker.failed()
    assert breaker.retry_in == 1


def test_late_failures_do_not_lengthen_the_wait(clock: Clock) -> None:
    """Many who asked before it opened fail after; the next try is due when it was."""
    breaker = opened()
    for _ in range(50):
        breaker.failed()
    assert breaker.retry_in == 1.0


def test_who_gave_up_leaves_the_try_to_the_next(clock: Clock) -> None:
    """A cancelled try is no answer and no failure."""
    breaker = opened()
    clock.now += 1
    assert breaker.enter()
    breaker.gave_up()
    assert breaker.state == "open"
    assert breaker.enter()


def test_a_try_that_never_ends_is_not_the_last(clock: Clock) -> None:
    """Its thread may be gone: after the longest wait another one may ask."""
    breaker = opened()
    clock.now += 1
    assert breaker.enter()
    clock.now += 4.9
    assert not breaker.enter()
    clock.now += 0.2
    assert breaker.enter()


def test_of_many_threads_one_may_ask() -> None:
    """At the moment a try is due they all come at once."""
    breaker = opened(retry=0.001)
    assert wait_until(lambda: breaker.retry_in == 0.0, pause=0.001)
    barrier, entered = threading.Barrier(16), list[bool]()

    def ask() -> None:
        barrier.wait()
        entered.append(breaker.enter())

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entered) == [False] * 15 + [True]
