"""Filters in a real Redis answer as local ones, and hold the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bloomery import BloomFilter
from bloomery.errors import FilterExists, InvalidParameter, UnknownFilter
from integration.redis.either import Either
from integration.servers import RedisServer


def str_of(string: bytes) -> bytes:
    """The bits of a string."""
    assert string.endswith(b"\0")
    return string[:-1]


def held(server: RedisServer, name: str, shards: int) -> bytes:
    """All strings of a filter, one behind the other, without the byte that ends each."""
    names = [f"{{{name}}}:bits"] if shards == 1 else [f"{{{name}:{i}}}:bits" for i in range(shards)]
    with server.client() as client:
        return b"".join(str_of(client.get(one)) for one in names)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(
    ("layout", "rate"), [("blocked", 0.01), ("blocked", 1e-6), ("classic", 0.01)]
)
def test_the_bytes_of_a_local_filter(
    either: Either, redis_server: RedisServer, layout: Any, rate: float, shards: int
) -> None:
    """Whatever the layout and the shards, answers and bytes are those of a BloomFilter."""
    local = BloomFilter(3000, rate, layout=layout)
    there = either.create(redis_server.url, "seen", 3000, rate, layout=layout, shards=shards)
    assert (there.shards, there.nbytes, there.layout) == (shards, local.nbytes, layout)
    keys = [f"key-{i % 700}" for i in range(1000)]
    assert there.add_many(keys) == local.add_many(keys)
    assert [there.add(1), there.add(1), 1 in there, 2 in there] == [True, False, True, False]
    local.add(1)
    asked = [f"key-{i}" for i in range(20_000)]
    assert there.contains_many(asked) == local.contains_many(asked)
    there.update([b"more", ("a", 2)])
    local.update([b"more", ("a", 2)])
    assert held(redis_server, "seen", shards) == bytes(memoryview(local))
    info, expected = there.info(), local.info()
    for field in ("fill_ratio", "estimated_count", "num_bits", "num_hashes", "capacity", "hasher"):
        assert info[field] == expected[field], field
    assert info["estimated_error_rate"] == pytest.approx(expected["estimated_error_rate"], rel=0.5)
    assert (info["shards"], info["ttl"]) == (shards, None)


def test_batches_of_columns(either: Either, redis_server: RedisServer) -> None:
    """NumPy and Arrow columns are taken, and answered with arrays; a big batch is several trips."""
    there = either.create(redis_server.url, "seen", 200_000)
    new = there.add_many(np.arange(100_000))
    assert isinstance(new, np.ndarray)
    assert new.sum() > 99_000
    assert there.contains_many(pa.array(range(100_000))).all()
    assert there.contains_many(np.arange(100_000, 200_000)).mean() < 0.02
    assert there.add_many([]) == []
    assert not there.add_many(np.arange(10)).any()


def test_opening_and_creating_again(either: Either, redis_server: RedisServer) -> None:
    """Who asks for the same filter shares it; who asks for another is told what differs."""
    first = either.create(redis_server.url, "seen", 1000, 0.01, seed=7)
    first.add("alice")
    again = either.create(redis_server.url, "seen", 1000, 0.01, seed=7)
    opened = either.open(redis_server.url, "seen")
    assert "alice" in again
    assert "alice" in opened
    assert (opened.capacity, opened.error_rate, opened.seed, opened.hasher) == (
        1000,
        0.01,
        7,
        "xxh3",
    )
    with pytest.raises(FilterExists, match=r"capacity 1,000 and not 2,000, seed 7 and not 0: open"):
        either.create(redis_server.url, "seen", 2000, 0.01)
    with pytest.raises(UnknownFilter, match="no filter 'other'"):
        either.open(redis_server.url, "other")


def test_a_secret_seed_is_not_shown(either: Either, redis_server: RedisServer) -> None:
    """Neither an error nor info nor repr shows the key of siphash, or a password."""
    made = either.create(redis_server.url, "seen", 1000, hasher="siphash", seed=123456789)
    assert "123456789" not in f"{made.info()} {made.made!r}"
    with pytest.raises(FilterExists) as caught:
        either.create(redis_server.url, "seen", 1000, hasher="siphash", seed=987654321)
    assert "123456789" not in str(caught.value)
    assert "987654321" not in str(caught.value)


def test_clear_and_delete(either: Either, redis_server: RedisServer) -> None:
    """A cleared filter is empty and goes on; a deleted one is gone for all who had it open."""
    made = either.create(redis_server.url, "seen", 1000, shards=2, ttl=100)
    other = either.open(redis_server.url, "seen")
    made.update(range(100))
    made.clear()
    assert not any(other.contains_many(range(100)))
    assert made.info()["estimated_count"] == 0
    assert 90 < made.ttl() <= 100
    other.add(5)
    assert 5 in made
    other.delete()
    with redis_server.client() as client:
        assert client.dbsize() == 0
    for use in (lambda: made.add(1), lambda: 1 in made, made.clear, made.info, made.ttl):
        with pytest.raises(UnknownFilter):
            use()
    with redis_server.client() as client:
        assert client.dbsize() == 0, "adding has left a string behind"


def test_a_lost_shard_is_told(either: Either, redis_server: RedisServer) -> None:
    """A string that was evicted is no empty filter: whoever asks is told, and so is who creates."""
    made = either.create(redis_server.url, "seen", 10_000, shards=3)
    made.update(range(5000))
    with redis_server.client() as client:
        client.delete("{seen:1}:bits")
        with pytest.raises(UnknownFilter, match="no longer whole"):
            made.contains_many(range(100))
        with pytest.raises(UnknownFilter, match="no longer whole"):
            made.update(range(100))
        assert not client.exists("{seen:1}:bits")
        again = either.create(redis_server.url, "seen", 10_000, shards=3)
        with pytest.raises(UnknownFilter):
            again.contains_many(range(100))
    again.delete()
    assert not any(
        either.create(redis_server.url, "seen", 10_000, shards=3).contains_many(range(9))
    )


@pytest.mark.parametrize("layout", ["blocked", "classic"])
def test_a_lost_filter_does_not_come_back_empty(
    either: Either, redis_server: RedisServer, layout: Any
) -> None:
    """Whatever is added to a filter that was flushed, also its very last bit, it stays lost."""
    made = either.create(redis_server.url, "seen", 100, layout=layout)
    made.add("alice")
    redis_server.run("FLUSHALL")
    with redis_server.client() as client:
        # As others do who had asked for the length just before.
        client.execute_command("BITFIELD", "{seen}:bits", "SET", "u1", made.nbytes * 8 - 1, 1)
        with pytest.raises(UnknownFilter):
            assert "alice" not in made
        assert client.dbsize() == 0
    for _ in range(2):
        with pytest.raises(UnknownFilter):
            made.update(range(10_000))
        with pytest.raises(UnknownFilter):
            assert "alice" not in made
    assert redis_server.run("DBSIZE") == 0


NAMES = ["a name with spaces", "{braces}", "}{", "ünïcode", "%7B", "a:b", "\n", "{}:0", "x" * 1024]


def test_odd_names(either: Either, redis_server: RedisServer) -> None:
    """Whatever the name, its filter is its own."""
    for number, name in enumerate(NAMES):
        either.create(redis_server.url, name, 1000, shards=2).add(number)
    for number, name in enumerate(NAMES):
        found = either.open(redis_server.url, name).contains_many(range(len(NAMES)))
        assert found == [other == number for other in range(len(NAMES))]


@pytest.mark.parametrize("name", ["", "x" * 1025, 5, None, b"", "\ud800"])
def test_names_that_are_none(either: Either, redis_server: RedisServer, name: Any) -> None:
    """A name that cannot be is refused before anything is sent."""
    with pytest.raises(InvalidParameter, match="name"):
        either.create(redis_server.url, name, 1000)


@pytest.mark.parametrize(
    "options",
    [
        *({"shards": value} for value in (0, -1, True, "two", 10**6, 1.5, None)),
        *({"ttl": value} for value in (0, -1, "1d", float("nan"), 1e12, True)),
        *({"timeout": value} for value in (0, -1, "5", None, float("inf"))),
        {"layout": "x"},
    ],
)
def test_options_that_are_none(either: Either, redis_server: RedisServer, options: Any) -> None:
    """Absurd options are one clear error, and nothing is made."""
    with pytest.raises(InvalidParameter, match="must be"):
        either.create(redis_server.url, "seen", 1000, **options)
    assert redis_server.run("DBSIZE") == 0


def test_keys_that_are_none(either: Either, redis_server: RedisServer) -> None:
    """What is no key adds nothing, as in a local filter."""
    made = either.create(redis_server.url, "seen", 1000)
    with pytest.raises(TypeError):
        made.add_many(["a", object()])
    assert made.info()["estimated_count"] == 0


def test_whose_client_is_closed(either: Either, redis_server: RedisServer) -> None:
    """A filter closes what it opened itself, and leaves alone what it was given."""
    client = either.client(redis_server.url)
    given = either.create(client, "seen", 1000)
    given.close()
    assert either.do(client.ping())
    own = either.create(redis_server.url, "seen", 1000)
    own.add(1)
    own.close()
    assert "redis://" not in repr(own.made)


def test_a_smaller_one_has_its_name(either: Either, redis_server: RedisServer) -> None:
    """Who has a filter that was deleted meanwhile asks and gets an error; the one that was made in
    its place, with less room, keeps its keys."""
    old = either.create(redis_server.url, "seen", 100_000)
    old.delete()
    new = either.create(redis_server.url, "seen", 100)
    new.add("alice")
    with pytest.raises(UnknownFilter, match="no longer whole"):
        old.contains_many(["bob"])
    assert list(new.contains_many(["alice"])) == [True]
