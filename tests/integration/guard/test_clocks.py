"""A wall clock that is set back an hour: what is past its TTL is not fresh again for that hour."""

import time
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.guard import Guard, LocalCache, RedisCache, SqliteQueue
from conftest import require
from integration.servers import RedisServer, wait_until

require("redis")
require("cachetools")


@pytest.fixture
def set_back(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What sets the wall clock back, of this process; Redis has its own."""
    wall = time.time
    return lambda: monkeypatch.setattr(time, "time", lambda: wall() - 3600)


@pytest.mark.parametrize("where", ["local", "redis"])
@pytest.mark.parametrize("on_outage", ["raise", "stale"])
def test_an_answer_ends_with_its_ttl(
    redis_server: RedisServer, set_back: Any, where: str, on_outage: Any
) -> None:
    """It is cached, the clock is set back, and after the TTL the source is asked again."""
    filter = BloomFilter(100)
    filter.add("a")
    url = f"redis://127.0.0.1:{redis_server.port}"
    cache: Any = LocalCache() if where == "local" else RedisCache(url, "c:")
    guard = Guard(filter, {"a": 1}.get, cache=cache, ttl=1.0, on_outage=on_outage)
    assert (guard.get("a").by, guard.get("a").by) == ("source", "cache")
    set_back()
    assert guard.get("a").by == "cache"
    assert wait_until(lambda: guard.get("a").by == "source", 15)


def test_a_lease_of_a_queue_ends_in_time(tmp_path: Any, set_back: Any) -> None:
    """Its owner was killed, and the clock was set back: another drains when the lease is over."""
    queue = SqliteQueue(tmp_path / "q", fsync=False)
    assert queue.lease("one that dies", 0.5)
    assert not queue.lease("another", 0.5)
    set_back()
    assert wait_until(lambda: queue.lease("another", 0.5), 15)
    queue.close()
