"""Replies taken from redis-py's parser are those that it would give one by one."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ResponseError

from bloomery.errors import StoreRefused
from bloomery.integrations.redis import RedisFilter
from bloomery.integrations.redis.wire import redis_internals
from bloomery.integrations.redis.wire.flow import Ask, commands
from bloomery.integrations.redis.wire.link import Link
from integration.redis.either import Either
from integration.servers import RedisServer, wait_until

ASKED = commands(
    b"k",
    ("SET", "k", "v" * 5000),
    ("GET", "k"),
    ("STRLEN", "k"),
    ("GET", "nothing"),
    ("LPUSH", "k", "x"),
    ("BITFIELD", "k", "GET", "u8", 0, "GET", "u4", 0),
    ("NO", "SUCH"),
    ("LRANGE", "none", 0, -1),
    ("INCRBYFLOAT", "f", "1.5"),
)


def shown(found: list[list[Any]]) -> list[Any]:
    """Replies that can be compared."""
    return [repr(type(one)) if isinstance(one, Exception) else one for one in found[0]]


@pytest.mark.parametrize("protocol", [2, 3])
def test_as_one_by_one(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    """Values, nothing, lists and errors: all of them, in order."""
    many = Ask(ASKED.key, ASKED.data * 300, ASKED.replies * 300)
    with redis_server.client(protocol=protocol) as client:
        quick = Link(client).exchange([many])
        client.delete("k", "f")
        with monkeypatch.context() as patch:
            patch.setattr(redis_internals, "buffered", lambda _: None)
            slow = Link(client).exchange([many])
    assert shown(quick) == shown(slow)
    assert sum(isinstance(one, ResponseError) for one in quick[0]) == 600


@pytest.mark.parametrize("protocol", [2, 3])
def test_by_the_connection_at_hand(redis_server: RedisServer, protocol: int) -> None:
    """A single ask of one who gave a URL goes by a shorter way, with the same replies; a
    connection that was closed, or brought more than was asked for, is not used again."""
    with redis_server.client(protocol=protocol) as client:
        right = shown(Link(client).exchange([ASKED]))
        one = Link(f"{redis_server.url}?protocol={protocol}")
        try:
            plain = commands(b"p", ("GET", "nothing"), ("SET", "p", "v"), ("GET", "p"))
            for _ in range(3):
                client.delete("k", "f")
                assert shown(one.exchange([ASKED])) == right
                assert shown(one.exchange([plain])) == [None, b"OK", b"v"]
            [kept] = one.spare.kept
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            assert shown(one.exchange([plain])) == [None, b"OK", b"v"]
            other = one.spare.kept[0].connection
            other.send_packed_command([b"*1\r\n$4\r\nPING\r\n"])
            assert wait_until(lambda: other.can_read())
            assert shown(one.exchange([plain])) == [None, b"OK", b"v"]
            assert not kept.is_idle()
        finally:
            one.close()


@pytest.mark.parametrize("protocol", [2, 3])
def test_this_redis_py_is_known(either: Either, redis_server: RedisServer, protocol: int) -> None:
    """The private attributes of redis-py that `redis_internals` uses are there in the installed
    version. Where this fails everything still works, slowly: change that module, then the bound of
    redis in pyproject.toml."""
    pool = either.client(redis_server.url, protocol=protocol).connection_pool
    connection = either.do(pool.get_connection())
    try:
        assert redis_internals.buffered(connection) is not None
        if not either.loop:
            kept = redis_internals.KeptConnection(pool, connection)
            assert kept.direct
            assert kept.polls
            assert kept.is_idle()
            assert kept.exchange(b"*1\r\n$4\r\nPING\r\n", 1) == ([b"PONG"], False)
    finally:
        either.do(pool.release(connection))


def test_refused_at_once(redis_server: RedisServer) -> None:
    """What Redis says no to is told, and not asked again."""
    with RedisFilter.create(redis_server.url, "seen", 1000) as made:
        assert made.add("a")
        with redis_server.client() as client:
            client.set("{seen}:bits", "")
            client.lpush("other", "x")
            client.rename("other", "{seen}:bits")
            client.config_resetstat()
            with pytest.raises(StoreRefused, match="another value"):
                made.add("b")
            told = client.info("commandstats")
        assert told["cmdstat_bitfield"]["calls"] <= 2, told
        made.delete()


def test_messages_in_between(redis_server: RedisServer) -> None:
    """What RESP3 sends unasked goes to redis-py, and is no reply."""
    with redis_server.client(protocol=3) as client:
        made = RedisFilter.create(client, "seen", 1000)
        made.update(range(500))
        # Whoever tracks a key is told, on this connection, that somebody changed it.
        client.execute_command("CLIENT", "TRACKING", "ON", "BCAST")
        for turn in range(5):
            for number in range(20):
                redis_server.run("SET", f"other-{turn}-{number}", "x")
            assert all(made.contains_many(range(500)))
            assert not any(made.contains_many(["nobody", "nothing"]))


def test_without_hiredis(
    either: Either, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redis-py's own parser works as well."""
    import redis.asyncio.connection
    import redis.connection
    from redis._parsers.resp2 import _AsyncRESP2Parser, _RESP2Parser

    kind: Any = redis.asyncio.connection if either.loop else redis.connection
    parser = _AsyncRESP2Parser if either.loop else _RESP2Parser
    monkeypatch.setattr(kind, "DefaultParser", parser)
    client = either.client(redis_server.url, protocol=2, parser_class=parser)
    made = either.create(client, "seen", 1000, shards=2)
    assert made.add_many(range(300)).count(True) > 290
    assert all(made.contains_many(range(300)))
    assert made.info()["estimated_count"] > 290
