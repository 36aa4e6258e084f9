"""A client of redis-py from what a user gives: a URL, or a client of their own.

    redis://user:password@host:6379/0       one server; a node of a cluster is found out
    rediss://…, unix:///path                the same with TLS, by a socket
    redis+cluster://host:6379,host:6380     a cluster, by some of its nodes; rediss+cluster://
    redis+sentinel://host:26379,host/main   the master that Sentinels name; rediss+sentinel://

Whatever redis-py takes behind a `?` is taken here: `?ssl_ca_certs=/etc/ca.pem`. The password is
Redis's own; that of the Sentinels is `?sentinel_password=`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from bloomery.errors import InvalidParameter, MissingExtra
from bloomery.integrations.redis.wire.retry import Kind

__all__ = ["Given", "given", "watchers"]

_LONGEST = 86_400.0  # seconds
_SCHEMES = {"redis", "rediss", "unix"} | {"redis+cluster", "rediss+cluster"}
_SCHEMES |= {"redis+sentinel", "rediss+sentinel"}
_FORMS = (
    "must be redis://user:password@host:6379/0, rediss://…, unix://…, redis+cluster://host:port or "
    "redis+sentinel://host:port,host:port/service"
)


@dataclass(frozen=True)
class Given:
    """Where Redis is, without secrets, and how a client of it is had."""

    kind: Literal["single", "cluster", "sentinel"]
    place: str
    make: Callable[[], Any]  # of a cluster, for threads, this connects
    own: bool = False  # made here, so ours to close
    as_cluster: Callable[[], Given] | None = None  # of a URL that may be that of a node

    @property
    def routing(self) -> Kind:
        """Are there nodes to choose from?"""
        if self.kind != "single":
            return self.kind
        return "single" if self.as_cluster is None else "maybe"


def watchers(client: Any) -> list[Any]:
    """Return the clients of the Sentinels that name this one's master: closed with it, if ours."""
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    return list(getattr(manager, "sentinels", []))


def given(what: Any, *, for_asyncio: bool, timeout: Any) -> Given:
    """Check what was given; nothing is sent yet."""
    try:
        import redis.asyncio  # noqa: F401
    except ImportError:
        raise MissingExtra("filters in Redis need redis: pip install 'bloomery[redis]'") from None
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not 0 < timeout <= _LONGEST:
        raise InvalidParameter(f"timeout is {timeout!r}, must be seconds in (0, {_LONGEST:g}]")
    if isinstance(what, str):
        try:
            return _of_url(what, for_asyncio, timeout)
        except (ValueError, TypeError):  # whose text shows parts of the URL
            raise InvalidParameter(f"the URL of Redis {_trouble(what)}, {_FORMS}") from None
    return _of_client(what, for_asyncio)


def _trouble(url: str) -> str:
    """What is wrong with it, of which no part that may be a password is shown."""
    scheme, colon, rest = url.partition("://")
    if not colon or not scheme.replace("+", "").isalnum():
        return "has no scheme"
    if scheme not in _SCHEMES:
        return f"begins with {scheme!r}"
    if scheme.endswith("sentinel") and not rest.partition("?")[0].partition("/")[2]:
        return "names no service"
    return "cannot be read"


def _of_client(client: Any, for_asyncio: bool) -> Given:
    import redis.sentinel
    from redis.asyncio.sentinel import Sentinel

    if isinstance(client, redis.sentinel.Sentinel | Sentinel):
        raise InvalidParameter(
            "this is a Sentinel, which knows where Redis is: give its master_for(service)"
        )
    clusters = (redis.RedisCluster, redis.asyncio.RedisCluster)
    send = getattr(client, "execute_command", None)
    pool = getattr(client, "connection_pool", None)
    if send is None or hasattr(client, "command_stack"):
        raise InvalidParameter(
            f"redis is a {type(client).__name__}, must be a client of redis-py or a URL"
        )
    if inspect.iscoroutinefunction(send) != for_asyncio:
        raise InvalidParameter(
            "the client is for threads: give one of redis.asyncio, or take the filter for threads"
            if for_asyncio
            else "the client is for asyncio: give one for threads, or take the filter for asyncio"
        )
    if isinstance(client, clusters):
        return Given("cluster", "a cluster", lambda: client)
    if pool is None:
        raise InvalidParameter(
            f"redis is a {type(client).__name__}, which has no connections of its own: give a "
            "Redis, a RedisCluster or what Sentinel.master_for returned"
        )
    service = getattr(pool, "service_name", None)
    if service is not None:
        if not getattr(pool, "is_master", True):
            raise InvalidParameter(
                "the client is for replicas, which may be behind: give Sentinel.master_for(service)"
            )
        return Given("sentinel", f"the master of {service!r}", lambda: client)
    return Given("single", _place(pool.connection_kwargs), lambda: client)


def _of_url(url: str, for_asyncio: bool, timeout: float) -> Given:
    import redis
    import redis.asyncio
    from redis import connection
    from redis.backoff import NoBackoff

    parse_url: Any = connection.parse_url  # which has no types
    scheme, _, rest = url.partition("://")
    plain, _, kind = scheme.partition("+")
    if scheme not in _SCHEMES:
        raise ValueError(scheme)
    retry: Any = _retry(for_asyncio)
    # Tries are counted in `retry`: those of the client would come on top, for each of ours.
    ours = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": retry(NoBackoff(), 0),
        # With RESP3 redis-py's pools expect messages that nobody asked for, and so do not see that
        # a connection is out of step.
        "protocol": 2,
    }
    if not kind:
        parts = parse_url(url)  # a typing error shows now, and not at the first use
        single: Any = redis.asyncio.Redis if for_asyncio else redis.Redis
        made = single.from_url(url, **ours)
        if plain == "unix":
            return Given("single", _place(parts), lambda: made, own=True)
        upgraded = f"{plain}+cluster://{rest}"
        return Given(
            "single",
            _place(parts),
            lambda: made,
            own=True,
            as_cluster=lambda: _of_url(upgraded, for_asyncio, timeout),
        )
    return _of_hosts(f"{plain}://{rest}", kind, for_asyncio, ours)


def _of_hosts(url: str, kind: str, for_asyncio: bool, ours: dict[str, Any]) -> Given:
    """A cluster or Sentinels, which have several hosts."""
    import redis.asyncio.cluster
    import redis.asyncio.sentinel
    import redis.cluster
    import redis.sentinel
    from redis import connection

    parse_url: Any = connection.parse_url  # which has no types
    parts = urlsplit(url)
    user, _, hosts = parts.netloc.rpartition("@")
    usual = 26379 if kind == "sentinel" else 6379
    addresses = [_address(one, usual) for one in hosts.split(",")]
    at = f"{user}@" if user else ""
    options = parse_url(f"{parts.scheme}://{at}localhost?{parts.query}")
    del options["host"]
    secure = options.pop("connection_class", None) is connection.SSLConnection
    options = {**ours, **options, **({"ssl": True} if secure else {})}
    shown = ",".join(f"{host}:{port}" for host, port in addresses)
    if kind == "cluster":
        options.pop("db", None)  # a cluster has one
        clusters: Any = redis.asyncio.cluster if for_asyncio else redis.cluster

        def cluster() -> Any:
            nodes = [clusters.ClusterNode(host, port) for host, port in addresses]
            return clusters.RedisCluster(startup_nodes=nodes, **options)

        return Given("cluster", f"the cluster of {shown}", cluster, own=True)
    service, _, db = unquote(parts.path).strip("/").partition("/")
    if not service:
        raise ValueError("no service")
    if db:
        options["db"] = int(db)
    watching = {name: value for name, value in options.items() if name.startswith("socket_")}
    for name in ("username", "password"):
        watching[name] = options.pop(f"sentinel_{name}", None)
    watching |= {"retry": ours["retry"], **({"ssl": True} if secure else {})}
    watching |= {name: value for name, value in options.items() if name.startswith("ssl_")}
    kinds: Any = redis.asyncio.sentinel if for_asyncio else redis.sentinel

    def master() -> Any:
        watchers = kinds.Sentinel(addresses, sentinel_kwargs=watching, **options)
        return watchers.master_for(service)

    return Given("sentinel", f"the master of {service!r}", master, own=True)


def _retry(for_asyncio: bool) -> Any:
    import redis.asyncio.retry
    import redis.retry

    return redis.asyncio.retry.Retry if for_asyncio else redis.retry.Retry


def _address(text: str, usual: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("no host")
    return parts.hostname, parts.port or usual


def _place(known: dict[str, Any]) -> str:
    return known.get("path") or f"{known.get('host', 'localhost')}:{known.get('port', 6379)}"
