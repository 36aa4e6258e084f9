"""What may be given as a Redis, without one."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from bloomery.errors import MissingExtra
from bloomery.integrations.redis.wire.clients import given

URLS: list[tuple[str, str, str]] = [
    ("redis://user:secret@host:7/3", "single", "host:7"),
    ("rediss://host", "single", "host:6379"),
    ("unix:///run/redis.sock", "single", "/run/redis.sock"),
    ("redis+cluster://user:secret@a:1,b:2", "cluster", "the cluster of a:1,b:2"),
    ("rediss+cluster://[::1]:5,b?ssl_ca_certs=/ca.pem", "cluster", "the cluster of ::1:5,b:6379"),
    ("redis+sentinel://a,b:2/main", "sentinel", "the master of 'main'"),
    ("rediss+sentinel://:s%40cret@a/main/3", "sentinel", "the master of 'main'"),
]


@pytest.mark.parametrize("for_asyncio", [False, True])
@pytest.mark.parametrize(("url", "kind", "place"), URLS)
def test_urls(url: str, kind: str, place: str, for_asyncio: bool) -> None:
    """Each form is known, and told without its secrets."""
    found = given(url, for_asyncio=for_asyncio, timeout=1.0)
    assert (found.kind, found.place, found.own) == (kind, place, True)


def test_options_of_sentinels() -> None:
    """The password is Redis's, that of the Sentinels is their own; both have TLS."""
    url = "rediss+sentinel://me:s%40cret@a:1/main/3?sentinel_password=other&ssl_ca_certs=/ca.pem"
    client: Any = given(url, for_asyncio=False, timeout=1.0).make()
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


def test_without_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without redis-py the error says what to install; importing needs none."""
    for name in [one for one in sys.modules if one == "redis" or one.startswith("redis.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingExtra, match=r"bloomery\[redis\]"):
        given("redis://localhost", for_asyncio=False, timeout=1.0)
    program = "import sys; sys.modules['redis'] = None; import bloomery.integrations.redis"
    subprocess.run([sys.executable, "-c", program], check=True)
