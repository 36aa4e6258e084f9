"""Whoever waits for a key of another's batch waits for that key, and for no other of the batch."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.errors import SourceUnavailable
from bloomery.guard import Answer, Guard
from bloomery.guard.protocols import Cached
from bloomery.guard.singleflight import Flights, PartialAnswers
from privates import core_of
from unit.guard.table import Memory
from unit.guard.test_stampede import waiting
from waiting import wait_until


class Hanging:
    """A source that hangs until `go_on`, and then is away."""

    def __init__(self) -> None:
        self.asked, self.go_on = threading.Event(), threading.Event()

    def get_many(self, keys: Sequence[Any]) -> Mapping[Any, Any]:
        """In vain."""
        self.asked.set()
        assert self.go_on.wait(30)
        raise ConnectionError("away")


class Halting(Memory):
    """A cache whose first answer comes when somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.joined = threading.Event(), threading.Event()

    def get_many(self, keys: Sequence[bytes]) -> list[Cached | None]:
        """What is held."""
        self.began.set()
        assert self.joined.wait(30)
        return super().get_many(keys)


@pytest.fixture
def source() -> Iterator[Hanging]:
    """One that hangs, but not for ever."""
    made = Hanging()
    yield made
    made.go_on.set()


def asked(guard: Guard, keys: list[str]) -> tuple[threading.Thread, list[Any]]:
    """Ask in another thread; what it gets."""
    got: list[Any] = []

    def ask() -> None:
        try:
            got.extend(guard.get_many(keys))
        except SourceUnavailable as problem:
            got.append(problem)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, got


def known(*keys: str) -> BloomFilter:
    """A filter with these."""
    filter = BloomFilter(100)
    filter.update(keys)
    return filter


def test_what_is_cached_does_not_wait_for_the_source(source: Hanging) -> None:
    """Another's batch asks the source for a second key: the first is answered all the same, to who
    waited before the cache had answered and to who comes later."""
    cache = Halting()
    cache.held[b"\0cached"] = Cached(True, 1, 2e12, 2e12)
    guard = Guard(known("cached", "missing"), source, cache=cache)
    batch, failed = asked(guard, ["cached", "missing"])
    assert cache.began.wait(30)
    early, heard = asked(guard, ["cached"])
    assert wait_until(waiting(guard, 1))
    cache.joined.set()
    assert source.asked.wait(30)
    early.join(30)
    assert heard == [Answer(True, 1, "cache")]
    assert guard.get("cached") == Answer(True, 1, "cache")
    assert not source.go_on.is_set()
    source.go_on.set()
    batch.join(30)
    assert [type(one) for one in failed] == [SourceUnavailable]
    assert core_of(guard).flights.table == {}


def test_what_is_stale_is_not_lost_with_the_batch(source: Hanging) -> None:
    """A batch fails since the cache never had one of its keys; who waits for another has that."""
    cache = Memory()
    cache.held[b"\0old"] = Cached(True, 1, 0.0, 2e12)
    guard = Guard(known("old", "missing"), source, cache=cache, on_outage="stale")
    batch, failed = asked(guard, ["old", "missing"])
    assert source.asked.wait(30)
    joiner, heard = asked(guard, ["old"])
    both, failed_too = asked(guard, ["old", "missing"])
    assert wait_until(waiting(guard, 2))
    source.go_on.set()
    for thread in (batch, joiner, both):
        thread.join(30)
    assert heard == [Answer(True, 1, "stale")]
    assert [type(one) for one in failed + failed_too] == [SourceUnavailable] * 2
    assert core_of(guard).flights.table == {}


def test_some_land_and_the_rest_waits_on() -> None:
    """Those who joined get what there is, and where to wait for the rest; the key is free again."""
    flights = Flights()
    first, second = (
        flights.claim(dict.fromkeys([b"a", b"b"])),
        flights.claim(dict.fromkeys([b"a", b"b"])),
    )
    (landed,) = second.theirs
    first.land_some({b"a": 1})
    some = landed.result(0)
    assert isinstance(some, PartialAnswers)
    assert some == {b"a": 1}
    assert list(flights.claim(dict.fromkeys([b"a"])).mine) == [b"a"]
    (rest,) = flights.claim(dict.fromkeys([b"b"])).theirs
    assert rest is some.rest
    first.land({b"a": 1, b"b": 2})
    assert rest.result(0) == {b"a": 1, b"b": 2}
