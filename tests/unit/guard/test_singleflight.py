"""Look-ups under way: whoever asks for a claimed key gets that look-up's answer."""

import pytest

from bloomery.guard.singleflight import Flights, LookupInterrupted


def test_each_key_is_claimed_once() -> None:
    """Of two look-ups that overlap, the second waits for the first one's keys, and claims the
    others; one future serves all the keys that it waits for."""
    flights = Flights()
    first, second = (
        flights.claim(dict.fromkeys([b"a", b"b"])),
        flights.claim(dict.fromkeys([b"a", b"b", b"c"])),
    )
    assert list(first.mine) == [b"a", b"b"]
    assert list(second.mine) == [b"c"]
    ((landed, joined),) = second.theirs.items()
    assert joined == [b"a", b"b"]
    assert not landed.done()
    first.land({b"a": 1, b"b": 2})
    assert landed.result(0) == {b"a": 1, b"b": 2}
    second.land({b"c": 3})
    assert flights.table == {}


def test_a_look_up_that_began_before_is_known_for_it() -> None:
    """Who asked before it began takes its answer; of those who asked afterwards the first leads one
    that follows it, for all of them, and for whoever comes before that begins."""
    flights = Flights()
    asked_before = flights.begun
    first = flights.claim({b"a": "a"})
    asked_after = flights.begun
    assert list(flights.claim({b"a": "a"}, asked_before).theirs) == [first.join()]
    ((landed, following),) = flights.claim({b"a": "a"}, asked_after).leads
    assert landed is first.join()
    late = flights.claim({b"a": "a"}, flights.begun)
    assert (list(late.theirs), late.leads) == ([following.join()], [])
    first.land({b"a": "old"})
    assert flights.table == {b"a": following}
    assert list(flights.claim({b"a": "a"}, flights.begun).theirs) == [following.join()]
    assert following.begin([b"a"]) == {b"a": "a"}
    ((_, next_one),) = flights.claim({b"a": "a"}, flights.begun).leads
    following.land({b"a": "new"})
    assert late.theirs.popitem()[0].result(0) == {b"a": "new"}
    next_one.crash(KeyboardInterrupt())
    assert flights.table == {}


def test_a_problem_is_told_to_all_who_wait() -> None:
    """They get the same error; but an interruption of the one is not that of the others."""
    flights = Flights()
    for problem, told in ((ValueError("no"), ValueError), (KeyboardInterrupt(), LookupInterrupted)):
        first, second = flights.claim(dict.fromkeys([b"a"])), flights.claim(dict.fromkeys([b"a"]))
        first.crash(problem)
        (landed,) = second.theirs
        with pytest.raises(told):
            landed.result(0)
    assert flights.table == {}


def test_who_waits_is_not_left_without_an_answer() -> None:
    """A look-up that lands without some of its keys was interrupted, for those who wait."""
    flights = Flights()
    first, second = flights.claim(dict.fromkeys([b"a", b"b"])), flights.claim(dict.fromkeys([b"b"]))
    first.land({b"a": 1})
    (landed,) = second.theirs
    with pytest.raises(LookupInterrupted):
        landed.result(0)


def test_nobody_joins_a_look_up_of_a_key_that_was_written() -> None:
    """It answers those who asked before; who asks after the write begins anew, and keeps its claim
    when the older one lands."""
    flights = Flights()
    old, before = flights.claim(dict.fromkeys([b"a"])), flights.claim(dict.fromkeys([b"a"]))
    flights.spoil(b"a")
    after = flights.claim(dict.fromkeys([b"a"]))
    assert old.spoiled == {b"a"}
    assert list(after.mine) == [b"a"]
    old.land({b"a": "old"})
    (landed,) = before.theirs
    assert landed.result(0) == {b"a": "old"}
    assert flights.table == {b"a": after}
