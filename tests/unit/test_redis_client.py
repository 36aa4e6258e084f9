"""What may be given as a Redis, without one; for filters, and for the guard."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest

from bloomery.errors import InvalidParameter, MissingExtra
from bloomery.redis_client import redis_client

Purpose = Literal["filter", "cache", "queue"]
PURPOSES: list[tuple[Purpose, str]] = [("filter", "redis"), ("cache", "guard"), ("queue", "guard")]
URLS: list[tuple[str, str, str]] = [
    ("redis://user:secret@host:7/3", "maybe", "host:7"),
    ("rediss://host", "maybe", "host:6379"),
    ("unix:///run/redis.sock", "single", "/run/redis.sock"),
    ("redis+cluster://user:secret@a:1,b:2", "cluster", "the cluster of a:1,b:2"),
    ("rediss+cluster://[::1]:5,b?ssl_ca_certs=/ca.pem", "cluster", "the cluster of ::1:5,b:6379"),
    ("redis+sentinel://a,b:2/main", "sentinel", "the master of 'main'"),
    ("rediss+sentinel://:s%40cret@a/main/3", "sentinel", "the master of 'main'"),
]


@pytest.mark.parametrize("for_asyncio", [False, True])
@pytest.mark.parametrize(("url", "routing", "place"), URLS)
def test_urls(url: str, routing: str, place: str, for_asyncio: bool) -> None:
    """Each form is known, and told without its secrets."""
    redis = redis_client(url, "filter", for_asyncio=for_asyncio, timeout=1.0)
    assert (redis.routing, redis.place, redis.own) == (routing, place, True)


def test_options_of_sentinels() -> None:
    """The password is Redis's, that of the Sentinels is their own; both have TLS."""
    url = "rediss+sentinel://me:s%40cret@a:1/main/3?sentinel_password=other&ssl_ca_certs=/ca.pem"
    client: Any = redis_client(url, "filter", for_asyncio=False, timeout=1.0).client
    pool = client.connection_pool
    known = pool.connection_kwargs
    assert (known["username"], known["password"], known["db"]) == ("me", "s@cret", 3)
    assert known["ssl_ca_certs"] == "/ca.pem"
    (watcher,) = pool.sentinel_manager.sentinels
    asked = watcher.connection_pool.connection_kwargs
    assert (asked["host"], asked["port"], asked["password"]) == ("a", 1, "other")
    assert asked["ssl_ca_certs"] == "/ca.pem"
    assert (asked["socket_timeout"], known["socket_timeout"]) == (1.0, 1.0)
    client.close()
    watcher.close()


def test_threads_that_come_first_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster connects when its client is made: threads do not wait for each other, and those
    that come second use the client of the first."""
    both, made, closed = threading.Barrier(2), list[Any](), list[Any]()

    class Cluster:
        def __init__(self, **_: Any) -> None:
            made.append(self)
            both.wait(30)

        def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr("redis.cluster.RedisCluster", Cluster)
    redis = redis_client("redis+cluster://a:1", "cache", for_asyncio=False, timeout=1.0)
    with ThreadPoolExecutor(2) as pool:
        used = list(pool.map(lambda _: redis.client, range(2)))
    assert used == [redis.client] * 2
    assert [one for one in made if one is not redis.client] == closed
    redis.close()
    assert set(closed) == set(made)


def test_without_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without redis-py the error says what to install; importing needs none."""
    for name in [one for one in sys.modules if one == "redis" or one.startswith("redis.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    for what, extra in PURPOSES:
        with pytest.raises(MissingExtra, match=rf"a {what} in Redis .*bloomery\[{extra}\]"):
            redis_client("redis://localhost", what, for_asyncio=False, timeout=1.0)
    program = "import sys; sys.modules['redis'] = None; import bloomery.integrations.redis"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
def test_a_url_that_decodes(scheme: str) -> None:
    """The guard stores bytes; filters read theirs undecoded whatever a client says."""
    url = f"{scheme}://localhost/{'main' if 'sentinel' in scheme else '0'}?decode_responses=true"
    redis_client(url, "filter", for_asyncio=False, timeout=1.0)
    with pytest.raises(InvalidParameter, match="without decode_responses"):
        redis_client(url, "cache", for_asyncio=False, timeout=1.0)


@pytest.mark.parametrize("for_asyncio", [False, True])
def test_retries_of_redis_py(for_asyncio: bool) -> None:
    """As often as asked for, at once; else as redis-py usually does."""

    def retries(count: int | None) -> Any:
        redis = redis_client(
            "redis://x", "cache", for_asyncio=for_asyncio, timeout=1, retries=count
        )
        return redis.client.connection_pool.connection_kwargs.get("retry")

    assert [retries(count).get_retries() for count in (0, 1)] == [0, 1]
    assert retries(None) is None or retries(None).get_retries() not in (0, 1)
