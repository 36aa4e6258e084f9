"""Filters in Redis merged, from the same Redis, another, or from here."""

from collections.abc import Iterator
from typing import Any

import pytest

from bloomery import BloomFilter, CountingBloomFilter
from bloomery.errors import IncompatibleFilters, UnknownFilter
from bloomery.integrations.redis import RedisFilter
from bloomery.integrations.redis.transfer import reading
from conftest import require
from integration.servers import RedisServer, StartRedis

redis = require("redis")


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Any]:
    """A client of an empty Redis."""
    with redis_server.client() as made:
        yield made


def held(client: Any, name: str, *keys: str, **options: Any) -> RedisFilter:
    """A filter in Redis with these keys."""
    made = RedisFilter.create(client, name, 20_000, 0.01, **options)
    made.add_many(list(keys))
    return made


def here(*keys: str) -> BloomFilter:
    """The same here."""
    made = BloomFilter(20_000, 0.01)
    made.update(list(keys))
    return made


@pytest.mark.parametrize("shards", [1, 3])
def test_in_one_redis(client: Any, shards: int) -> None:
    """Redis itself merges what lies beside each other; the other filter stays as it is."""
    mine = held(client, "mine", "a", shards=shards)
    other = held(client, "other", "b", shards=shards)
    mine.merge(other)
    assert mine.to_local() == here("a", "b")
    assert other.to_local() == here("b")
    mine.merge(mine)
    assert mine.to_local() == here("a", "b")


def test_from_another_redis(
    client: Any, start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another Redis, and from other shards, it comes in chunks, and nothing stays behind."""
    monkeypatch.setattr(reading, "CHUNK", 1000)
    told = []
    with start_redis().client() as second:
        other = held(second, "mine", "b", shards=3)
        mine = held(client, "mine", "a", shards=4)
        mine.merge(other, progress=lambda *some: told.append(some))
        assert mine.to_local() == here("a", "b")
        assert len(client.keys()) == 5
    size = here().nbytes
    assert told[0] == (0, size)
    assert told[-1] == (size, size)


def test_from_here(client: Any) -> None:
    """A local filter is merged, also into one that others push meanwhile."""
    mine = held(client, "mine", "a", shards=2)
    mine.merge(here("b"))
    assert mine.to_local() == here("a", "b")
    assert len(client.keys()) == 3


def test_what_differs(client: Any) -> None:
    """Filters whose bits do not mean the same are not merged, and the error says why."""
    mine = held(client, "mine", "a")
    for other, why in [
        (BloomFilter(30_000, 0.01), "num_bits"),
        (BloomFilter(20_000, 0.01, layout="classic"), "layout"),
        (BloomFilter(20_000, 0.01, seed=7), "same seed: this one has 0, the other 7"),
        (held(client, "other", "b", seed=3), "same seed"),
        (CountingBloomFilter(20_000), "not CountingBloomFilter"),
        (None, "not NoneType"),
    ]:
        with pytest.raises(IncompatibleFilters, match=why):
            mine.merge(other)  # type: ignore[arg-type]
    assert mine.to_local() == here("a")


def test_one_that_is_gone(client: Any) -> None:
    """Merging from or into a filter that is gone is an error, and makes no filter of it."""
    mine, other = held(client, "mine", "a"), held(client, "other", "b")
    client.delete("{other}:bits")
    with pytest.raises(UnknownFilter, match="'other' is no longer whole"):
        mine.merge(other)
    client.delete("{mine}:bits")
    for source in (other, here("b")):
        with pytest.raises(UnknownFilter, match="'mine' is no longer whole"):
            mine.merge(source)
    assert not client.exists("{mine}:bits")
