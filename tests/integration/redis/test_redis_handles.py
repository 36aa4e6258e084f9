"""What all filters in Redis have in common, of every kind, for threads and asyncio."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import bloomery.integrations.redis as public
from bloomery.errors import (
    FilterExists,
    IncompatibleFilters,
    InvalidParameter,
    UnknownFilter,
    UnsupportedKey,
)
from integration.redis.either import BOTH, Either
from integration.servers import RedisServer, wait_until

KINDS = ["RedisFilter", "RedisCountingFilter", "RedisRotatingFilter"]


@pytest.fixture(params=BOTH, ids=["threads", "asyncio"])
def either(request: Any) -> Iterator[Either]:
    """For threads, then for asyncio."""
    made = Either(request.param)
    yield made
    made.close()


def use(either: Either, kind: str) -> None:
    """Let it make filters of this kind."""
    either.kind = getattr(public, f"Async{kind}" if either.loop else kind)


@pytest.mark.parametrize("kind", KINDS)
def test_life(either: Either, redis_server: RedisServer, kind: str) -> None:
    """It ends when it is told to, for everybody, and is UnknownFilter then."""
    use(either, kind)
    made = either.create(redis_server.url, "seen", 100, ttl=100)
    made.add("alice")
    opened = either.open(redis_server.url, "seen")
    assert 90 < opened.ttl() <= 100
    opened.expire(None)
    assert made.ttl() is None
    if kind == "RedisRotatingFilter":
        # A generation has its own end, whatever becomes of the filter.
        kept = ["{seen}:config", "{seen}:generations"]
    else:
        kept = ["{seen}:config", "{seen}:bits"]
    with redis_server.client() as client:
        assert [client.pttl(name) for name in kept] == [-1, -1]
        made.expire(0.05)
        assert all(0 < client.pttl(name) <= 1050 for name in kept)
        assert wait_until(lambda: not client.exists(*kept))
    for ask in (made.ttl, made.info, lambda: made.add("bob"), lambda: "alice" in made):
        with pytest.raises(UnknownFilter):
            ask()
    for seconds in (0, "1d", float("inf")):
        with pytest.raises(InvalidParameter, match="seconds is"):
            made.expire(seconds)


@pytest.mark.parametrize("kind", KINDS)
def test_clear(either: Either, redis_server: RedisServer, kind: str) -> None:
    """Nothing is left of its keys, and what is added next is there; also for another client."""
    use(either, kind)
    made = either.create(redis_server.url, "seen", 1000, ttl=100)
    opened = either.open(redis_server.url, "seen")
    made.update(range(100))
    assert all(opened.contains_many(range(100)))
    made.clear()
    assert not any(opened.contains_many(range(100)))
    assert opened.add(5)
    assert made.contains_many([5, 6]) == [True, False]
    assert 0 < made.ttl() <= 100
    made.delete()
    with pytest.raises(UnknownFilter):
        made.clear()
    assert redis_server.run("DBSIZE") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_tells(either: Either, redis_server: RedisServer, kind: str) -> None:
    """Settings, and a `repr` that says where it is, without secrets."""
    use(either, kind)
    made = either.create(redis_server.url, "seen", 1000, 0.02, hasher="siphash", seed=7654321)
    made.add("alice")
    told = made.info()
    assert (told["kind"], told["capacity"]) == (made.kind, made.capacity)
    assert told["error_rate"] == made.error_rate == pytest.approx(0.02)
    assert 0 < told["nbytes"] <= made.nbytes
    assert told["ttl"] is None
    shown = repr(made.made)
    assert shown.startswith(f"<{either.kind.__name__}('seen', capacity=1000, error_rate=0.02")
    assert "bytes in" in shown
    assert str(redis_server.port) in shown
    assert "7654321" not in shown + str(told)
    with pytest.raises(FilterExists, match="seed") as caught:
        either.create(redis_server.url, "seen", 1000, 0.02, hasher="siphash", seed=8)
    assert "7654321" not in str(caught.value)
    with pytest.raises(FilterExists, match=r"error_rate 0\.02 and not 0\.03"):
        either.create(redis_server.url, "seen", 1000, 0.03, hasher="siphash", seed=7654321)
    with pytest.raises(FilterExists, match=r"capacity 1,000 and not 2,000"):
        either.create(redis_server.url, "seen", 2000, 0.02, hasher="siphash", seed=7654321)


@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds(either: Either, redis_server: RedisServer, kind: str) -> None:
    """One kind is not opened as another, and the error says with which class it is."""
    use(either, kind)
    either.create(redis_server.url, "seen", 1000)
    for other in {*KINDS} - {kind}:
        use(either, other)
        with pytest.raises(IncompatibleFilters, match=f"open it with {kind}$"):
            either.open(redis_server.url, "seen")
        with pytest.raises(FilterExists, match="with kind"):
            either.create(redis_server.url, "seen", 1000)


def test_connections_end(redis_server: RedisServer) -> None:
    """Of what a URL opened none is left: behind `with`, and if the filter cannot be made."""

    async def later() -> None:
        for kind in KINDS:
            one: Any = getattr(public, f"Async{kind}")
            async with await one.create(redis_server.url, kind, 100) as made:
                await made.add("alice")
            with pytest.raises(FilterExists):
                await one.create(redis_server.url, kind, 200)

    with redis_server.client() as client:
        before = len(client.client_list())
        for kind in KINDS:
            one: Any = getattr(public, kind)
            with one.create(redis_server.url, kind, 100) as made:
                made.add("alice")
            with pytest.raises(UnknownFilter):
                one.open(redis_server.url, "nobody's")
        asyncio.run(later())
        assert len(client.client_list()) == before


@pytest.mark.parametrize("kind", KINDS)
def test_usual_mistakes(either: Either, redis_server: RedisServer, kind: str) -> None:
    """None, a constructor instead of `create`, `in` where one must wait: each is told what is
    right."""
    use(either, kind)
    made = either.create(redis_server.url, "seen", 100)
    for ask in (lambda: made.add(None), lambda: None in made):
        with pytest.raises(UnsupportedKey, match="leave None out"):
            ask()
    with pytest.raises(InvalidParameter, match=rf"{kind}\.create\(redis, name, capacity\)"):
        either.kind(redis_server.url, "seen")
    with pytest.raises(UnknownFilter, match="create it first"):
        either.open(redis_server.url, "another")
    if either.loop:
        with pytest.raises(TypeError, match=r"await \.contains"):
            assert "alice" in made.made
    if kind == "RedisRotatingFilter":
        with pytest.raises(InvalidParameter, match="must be a time"):
            either.create(redis_server.url, "never", 100, window=None)
