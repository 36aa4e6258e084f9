"""Rotating filters in a real Redis: nothing added within the window is forgotten, by any client."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bloomery.errors import FilterExists, IncompatibleFilters, InvalidParameter, UnknownFilter
from bloomery.integrations.redis import AsyncRedisRotatingFilter, RedisFilter, RedisRotatingFilter
from bloomery.integrations.redis.bits.rotation_clock import KnownGenerations, RotationSchedule
from bloomery.types import Layout
from conftest import effort, require
from integration.servers import RedisServer, wait_until

redis = require("redis")


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Any]:
    """A client of an empty Redis."""
    with redis_server.client() as made:
        yield made


class Shared:
    """Some clients of one filter, who are ahead of Redis's time together."""

    def __init__(self, client: Any, count: int, **options: Any) -> None:
        options = {"window": 400, "generations": 4, "capacity": 200, "error_rate": 1e-6} | options
        RedisRotatingFilter.create(client, "seen", **options)
        self.clients = [RedisRotatingFilter.open(client, "seen") for _ in range(count)]
        self.turn(0)

    def turn(self, seconds: float) -> None:
        """So many seconds later, for all of them. They begin in the middle of a generation."""
        each = self.clients[0].window / self.clients[0].generations
        for one in self.clients:
            generations = one.store
            shift = (
                generations.schedule.shift + seconds if seconds else each / 2 - time.time() % each
            )
            generations.schedule = RotationSchedule(each, generations.schedule.whole, shift)


@settings(
    max_examples=effort(5, 20, 200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 1),
            st.sampled_from(["add", "many", "turn", "turn"]),
            st.lists(st.integers(0, 50), min_size=1, max_size=20),
        ),
        max_size=25,
    ),
    layout=st.sampled_from(["blocked", "classic"]),
)
def test_no_key_of_the_window_is_forgotten(
    client: Any, steps: list[tuple[int, str, list[int]]], layout: Layout
) -> None:
    """Across generations and clients: found for the window, gone after it and one generation."""
    client.flushall()
    shared, now = Shared(client, 2, layout=layout), 0
    added: dict[int, int] = {}
    for who, what, keys in steps:
        filter = shared.clients[who]
        if what == "turn":
            now += keys[0] * 3
            shared.turn(keys[0] * 3)
        elif what == "add":
            new = filter.add(keys[0])
            assert not new or now - added.get(keys[0], -1000) > 400 - 1
            added[keys[0]] = now
        else:
            news = filter.add_many(keys)
            for key, new in zip(keys, news, strict=True):
                assert not new or now - added.get(key, -1000) > 400 - 1
                added[key] = now
        for one in shared.clients:
            found = dict(zip(range(51), one.contains_many(range(51)), strict=True))
            for key, then in added.items():
                if now - then < 400:
                    assert found[key], (key, then, now)
                if now - then > 500 + 1:
                    assert not found[key], (key, then, now)
            assert not any(found[key] for key in found if key not in added)


def test_what_is_new(client: Any) -> None:
    """A key is new if no generation of the window has it; adding it again makes it new again."""
    shared = Shared(client, 2)
    one, two = shared.clients
    assert list(one.add_many(["a", "b", "a"])) == [True, True, False]
    shared.turn(390)
    assert two.add("a") is False
    assert one.add("c") is True
    shared.turn(390)
    assert "b" not in one
    assert "a" in one
    assert one.add("b") is True


def test_how_long(client: Any) -> None:
    """Added in the middle of a generation, a key stays for the window and half of one more."""
    shared = Shared(client, 1)
    [seen] = shared.clients
    seen.add("a")
    shared.turn(440)
    assert "a" in seen
    shared.turn(20)
    assert "a" not in seen


def test_a_generation_ends_meanwhile(client: Any) -> None:
    """What is added to a generation that has just ended goes into the next one too."""
    shared = Shared(client, 2)
    one, two = shared.clients
    one.add("a")
    known = one.store.known
    assert known is not None
    shared.turn(100)
    one.store.known = KnownGenerations(
        known.now, known.made, known.ahead - 100
    )  # it does not know yet
    assert one.add("b") is True
    shared.turn(390)
    assert "a" not in two
    assert "b" in two


def test_wrong_clocks(client: Any) -> None:
    """A client whose idea of the time is wrong is put right by Redis before anything counts."""
    one, two = Shared(client, 2, window=40_000).clients
    one.add("a")
    for wrong in (-1e6, 1e6, 15_000):
        known = one.store.known
        assert known is not None
        two.store.known = KnownGenerations(known.now, known.made, known.ahead + wrong)
        assert "a" in two
        two.store.known = KnownGenerations(known.now, known.made, known.ahead + wrong)
        assert two.add(f"b{wrong}") is True
        assert f"b{wrong}" in one
    # Nothing stays of the generations that were not now.
    strings = list(client.scan_iter("*bits*"))
    assert all(client.pttl(name) > 0 for name in strings), strings


def test_forgotten_by_redis_itself(client: Any) -> None:
    """With a short window, in real time: strings end, and keys with them."""
    seen = RedisRotatingFilter.create(client, "seen", 100, window=0.6, generations=2)
    began = time.monotonic()
    assert seen.add("a")
    while time.monotonic() - began < 0.5:
        known = "a" in seen
        assert known or time.monotonic() - began > 0.6  # who was kept waiting may hear it later
    assert wait_until(lambda: "a" not in seen)
    assert time.monotonic() - began > 0.6
    assert seen.add("a")
    assert wait_until(lambda: not list(client.scan_iter("*bits*")))
    assert seen.add("a")


@pytest.mark.parametrize("part", ["string", "hash"])
def test_evicted(client: Any, part: str) -> None:
    """A generation that was evicted is an error for everybody, and no empty one."""
    shared = Shared(client, 2)
    one, two = shared.clients
    one.add("a")
    shared.turn(100)
    one.add("b")
    [first, _] = sorted(client.scan_iter("{seen}:bits:*"))
    client.delete(first if part == "string" else "{seen}:generations")
    for filter in (one, two, RedisRotatingFilter.open(client, "seen")):
        filter.store.schedule = one.store.schedule
        with pytest.raises(UnknownFilter, match="no longer whole"):
            filter.add("c")
        with pytest.raises(UnknownFilter, match="no longer whole"):
            filter.contains_many(["a"])
    again = RedisRotatingFilter.create(client, "seen", 200, 1e-6, window=400, generations=4)
    with pytest.raises(UnknownFilter, match="no longer whole"):
        again.add("c")
    shared.turn(400)  # the window is over for what was lost, but not for "b"
    if part == "string":
        assert list(two.contains_many(["a", "b"])) == [False, True]
    again.delete()
    RedisRotatingFilter.create(client, "seen", 200, window=4).add("c")


def test_evicted_while_it_is_written(client: Any) -> None:
    """Adding to a generation that was evicted makes none that looks whole."""
    [one] = Shared(client, 1).clients
    one.add("a")
    [name] = client.scan_iter("{seen}:bits:*")
    client.delete(name)
    with pytest.raises(UnknownFilter, match="no longer whole"):
        one.add_many(range(1000))  # sets the last bits too
    assert not client.exists(name)


def test_deleted(client: Any) -> None:
    """Nothing stays of one that is deleted."""
    shared = Shared(client, 1)
    shared.clients[0].add("a")
    shared.turn(100)
    shared.clients[0].add("a")
    shared.clients[0].delete()
    assert not client.keys()
    with pytest.raises(UnknownFilter, match="there is no filter 'seen'"):
        RedisRotatingFilter.open(client, "seen")


def test_error_rate(client: Any) -> None:
    """With all keys in every generation it errs no more often than was asked for."""
    shared = Shared(client, 1, capacity=2000, error_rate=0.02)
    [seen] = shared.clients
    for _ in range(5):
        seen.add_many(range(2000))
        shared.turn(100)
    shared.turn(-100)
    wrong = sum(seen.contains_many(range(10_000, 30_000))) / 20_000
    assert all(seen.contains_many(range(2000)))
    assert wrong <= 0.02 * 1.15
    assert len(list(client.scan_iter("*bits*"))) == 5


def test_settings(client: Any) -> None:
    """What it was made with is there; another like it is opened, and one that differs refused."""
    seen = RedisRotatingFilter.create(client, "seen", 1000, window="1h", per_generation=300)
    assert (seen.capacity, seen.window, seen.generations) == (1000, 3600, 4)
    assert seen.error_rate == pytest.approx(0.01)
    assert repr(seen).startswith("<RedisRotatingFilter('seen', capacity=1000, error_rate=0.01,")
    RedisRotatingFilter.create(client, "seen", 1000, window=3600, per_generation=300)
    others: list[tuple[dict[str, Any], str]] = [
        ({"window": "2h", "per_generation": 300}, "window"),
        ({"window": "1h", "generations": 5, "per_generation": 300}, "generations"),
        ({"window": "1h"}, "per_generation"),
    ]
    for other, why in others:
        with pytest.raises(FilterExists, match=why):
            RedisRotatingFilter.create(client, "seen", 1000, **other)
    with pytest.raises(IncompatibleFilters, match="open it with RedisRotatingFilter"):
        RedisFilter.open(client, "seen")
    wrongs: list[dict[str, Any]] = [{"generations": 0}, {"generations": 65}]
    for wrong in [*wrongs, {"window": None}, {"window": "soon"}]:
        with pytest.raises(InvalidParameter, match=next(iter(wrong))):
            RedisRotatingFilter.create(client, "wrong", 1000, **wrong)
    assert not client.exists("{wrong}:config")


def test_asyncio(redis_server: RedisServer) -> None:
    """The same for asyncio."""

    async def all_of_it() -> None:
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            seen = await AsyncRedisRotatingFilter.create(client, "async", 1000, window=60)
            assert await seen.add("a")
            assert list(await seen.add_many(["a", "b"])) == [False, True]
            again = await AsyncRedisRotatingFilter.open(client, "async")
            assert await again.contains("b")
            assert list(await again.contains_many(["a", "c"])) == [True, False]
            await again.delete()
            assert not await client.keys("*async*")

    asyncio.run(all_of_it())


def test_too_large_for_a_string(client: Any) -> None:
    """A generation that does not fit into one string is refused, with what to do."""
    with pytest.raises(InvalidParameter, match="per_generation"):
        RedisRotatingFilter.create(client, "seen", 10**9)
    RedisRotatingFilter.create(client, "seen", 10**9, per_generation=1000)
