"""Clients of redis-py, from a URL or a client of the user's: for filters, the guard and nodes.

    redis://user:password@host:6379/0       one server; filters notice if it is a cluster's node
    rediss://…, unix:///path                the same with TLS, by a socket
    redis+cluster://host:6379,host:6380     a cluster, by some of its nodes; rediss+cluster://
    redis+sentinel://host:26379,host/main   the master that Sentinels name; rediss+sentinel://

Whatever redis-py takes behind a `?` is taken here: `?ssl_ca_certs=/etc/ca.pem`. The password is
Redis's own; that of the Sentinels is `?sentinel_password=`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from bloomery import extras
from bloomery.errors import InvalidParameter

# `maybe`: one server by its URL, which can turn out to be a node of a cluster.
Routing: TypeAlias = Literal["single", "maybe", "sentinel", "cluster"]

_LONGEST_TIMEOUT = 86_400.0  # seconds
_SCHEMES = {"redis", "rediss", "unix"} | {"redis+cluster", "rediss+cluster"}
_SCHEMES |= {"redis+sentinel", "rediss+sentinel"}
_FORMS = (
    "must be redis://user:password@host:6379/0, rediss://…, unix://…, redis+cluster://host:port or "
    "redis+sentinel://host:port,host:port/service"
)


@dataclass(frozen=True)
class _Target:
    """Where Redis is, without secrets, and how a client of it is made."""

    routing: Routing
    place: str
    make: Callable[[], Any]  # of a cluster, for threads, this connects
    own: bool = False  # made here, so ours to close
    as_cluster: Callable[[], _Target] | None = None  # of a URL that may be that of a node


class RedisClient:
    """A client of redis-py, made when it is first used, and closed here unless the user gave it.

    Threads may share it.
    """

    def __init__(self, target: _Target, module: Any) -> None:
        """Use `redis_client`."""
        self.module = module  # `redis`, which is imported only when a client is wanted
        # What its methods raise if Redis cannot be reached, or refuses.
        self.failures: tuple[type[Exception], ...] = (
            module.exceptions.RedisError,
            module.exceptions.RedisClusterException,
            OSError,
            asyncio.TimeoutError,  # which is no OSError in Python 3.10
        )
        self._target = target
        self._client: Any = None
        self._ours: list[Any] = []  # clients to be closed
        self._lock = threading.RLock()

    @property
    def client(self) -> Any:
        """The client; one of a cluster, by a URL and for threads, connects when it is made."""
        client = self._client
        return self._use(self._target, self._target) if client is None else client

    def _use(self, target: _Target, before: _Target) -> Any:
        """Return the client of a target that takes the place of the one before; if another thread
        was faster, its client. None waits for another's, which may try to connect for long."""
        client = target.make()
        with self._lock:
            if self._target is before and (self._client is None or target is not before):
                if target.own:
                    self._ours.append(client)
                self._target, self._client = target, client
            elif target.own and client is not self._client:
                client.close()
            return self._client

    @property
    def place(self) -> str:
        """Where Redis is, without secrets."""
        return self._target.place

    @property
    def routing(self) -> Routing:
        """Whether there are several servers, and what says which of them to ask."""
        return self._target.routing

    @property
    def cluster(self) -> bool:
        """Whether this is a Redis Cluster."""
        return self._target.routing == "cluster"

    @property
    def own(self) -> bool:
        """Whether the client was made here, from a URL."""
        return self._target.own

    def switch_to_cluster(self) -> bool:
        """Use the whole cluster from now on, where a URL turned out to be that of one node; False
        if it is one server."""
        before = self._target
        if before.as_cluster is not None:
            self._use(before.as_cluster(), before)
        return self.cluster

    def close(self) -> None:
        """Close what was made here; a client that was given is its owner's to close."""
        for client in self._owned():
            client.close()

    async def aclose(self) -> None:
        """The same for a client of redis.asyncio."""
        for client in self._owned():
            await client.aclose()

    def _owned(self) -> list[Any]:
        """The clients that are ours to close, each with those of the Sentinels that it asks."""
        with self._lock:
            ours, self._ours, self._client = self._ours, [], None
        clients = []
        for client in ours:
            manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
            clients += [client, *getattr(manager, "sentinels", [])]
        return clients

    def describe(self, problem: Exception) -> str:
        """Say what a client raised, and where, without keys and secrets."""
        return f"Redis at {self.place}: {describe(problem)}"


def describe(problem: Exception) -> str:
    """Say what a client raised, without keys and secrets."""
    text = " ".join(str(problem).split()).partition(", with args")[0]
    return f"{type(problem).__name__}: {text}"


def redis_client(
    url_or_client: Any,
    what: Literal["filter", "cache", "queue", "log", "users"],
    *,
    for_asyncio: bool,
    timeout: Any,
    retries: int | None = None,
) -> RedisClient:
    """Check a URL or a client that is to be used for `what`; nothing is sent yet.

    `timeout` and `retries` are for a URL, since a client brings its own: seconds for each reply,
    and how often redis-py itself tries again at once if a connection is lost. Without `retries` it
    does so as it usually does, which may take seconds.
    """
    extra = "redis" if what in ("filter", "log", "users") else "guard"
    with extras.needed("redis", f"a {what} in Redis", extra):
        import redis
        import redis.asyncio
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not 0 < timeout <= _LONGEST_TIMEOUT:
        raise InvalidParameter(
            f"timeout is {timeout!r}, must be seconds in (0, {_LONGEST_TIMEOUT:g}]"
        )
    if isinstance(url_or_client, str):
        try:
            target = _target_of_url(url_or_client, for_asyncio, timeout, retries)
            decodes = bool(parse_qs(urlsplit(url_or_client).query).get("decode_responses"))
        except (ValueError, TypeError):  # whose text shows parts of the URL
            raise InvalidParameter(
                f"the URL of Redis {_mistake(url_or_client)}, {_FORMS}"
            ) from None
    else:
        target = _target_of_client(url_or_client, what, for_asyncio)
        decodes = url_or_client.get_encoder().decode_responses
    if decodes and what != "filter":  # whose replies are read undecoded in any case
        raise InvalidParameter("the client decodes what it reads: make it without decode_responses")
    return RedisClient(target, redis)


def _mistake(url: str) -> str:
    """What is wrong with a URL, of which no part that may be a password is shown."""
    scheme, colon, rest = url.partition("://")
    if not colon or not scheme.replace("+", "").isalnum():
        return "has no scheme"
    if scheme not in _SCHEMES:
        return f"begins with {scheme!r}"
    if scheme.endswith("sentinel") and not rest.partition("?")[0].partition("/")[2]:
        return "names no service"
    return "cannot be read"


def _target_of_client(client: Any, what: str, for_asyncio: bool) -> _Target:
    import redis.sentinel
    from redis.asyncio.sentinel import Sentinel

    if isinstance(client, redis.sentinel.Sentinel | Sentinel):
        raise InvalidParameter(
            "this is a Sentinel, which knows where Redis is: give its master_for(service)"
        )
    send = getattr(client, "execute_command", None)
    pool = getattr(client, "connection_pool", None)
    if send is None or hasattr(client, "command_stack"):
        raise InvalidParameter(
            f"redis is a {type(client).__name__}, must be a URL or a client of redis-py"
        )
    if inspect.iscoroutinefunction(send) != for_asyncio:
        if for_asyncio:
            theirs, give, other = "threads", "one of redis.asyncio", f"Redis{what.title()}"
        else:
            theirs, give, other = "asyncio", "one for threads", f"AsyncRedis{what.title()}"
        instead = f"take the filter for {theirs}" if what == "filter" else f"use {other}"
        raise InvalidParameter(f"the client is for {theirs}: give {give}, or {instead}")
    if isinstance(client, redis.RedisCluster | redis.asyncio.RedisCluster):
        return _Target("cluster", "a Redis Cluster", lambda: client)
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
        return _Target("sentinel", f"the master of {service!r}", lambda: client)
    return _Target("single", _place(pool.connection_kwargs), lambda: client)


def _target_of_url(url: str, for_asyncio: bool, timeout: float, retries: int | None) -> _Target:
    import redis
    import redis.asyncio
    from redis import connection

    parse_url: Any = connection.parse_url  # which has no types
    scheme, _, rest = url.partition("://")
    plain, _, kind = scheme.partition("+")
    if scheme not in _SCHEMES:
        raise ValueError(scheme)
    options = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        # With RESP3 redis-py's pools expect messages that nobody asked for, and so do not see that
        # a connection is out of step.
        "protocol": 2,
        **({} if retries is None else {"retry": _retry(for_asyncio, retries)}),
    }
    if kind:
        return _target_of_hosts(f"{plain}://{rest}", kind, for_asyncio, options)
    parts = parse_url(url)  # a typing error shows now, and not at the first use
    clients: Any = redis.asyncio.Redis if for_asyncio else redis.Redis
    client = clients.from_url(url, **options)
    if plain == "unix":
        return _Target("single", _place(parts), lambda: client, own=True)
    cluster_url = f"{plain}+cluster://{rest}"
    return _Target(
        "maybe",
        _place(parts),
        lambda: client,
        own=True,
        as_cluster=lambda: _target_of_url(cluster_url, for_asyncio, timeout, retries),
    )


def _target_of_hosts(url: str, kind: str, for_asyncio: bool, ours: dict[str, Any]) -> _Target:
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
    addresses = [_address(host, usual) for host in hosts.split(",")]
    at = f"{user}@" if user else ""
    options = parse_url(f"{parts.scheme}://{at}localhost?{parts.query}")
    del options["host"]
    secure = options.pop("connection_class", None) is connection.SSLConnection
    options = {**ours, **options, **({"ssl": True} if secure else {})}
    if kind == "cluster":
        options.pop("db", None)  # a cluster has one
        clusters: Any = redis.asyncio.cluster if for_asyncio else redis.cluster

        def cluster() -> Any:
            nodes = [clusters.ClusterNode(host, port) for host, port in addresses]
            return clusters.RedisCluster(startup_nodes=nodes, **options)

        names = ",".join(f"{host}:{port}" for host, port in addresses)
        return _Target("cluster", f"the cluster of {names}", cluster, own=True)
    service, _, db = unquote(parts.path).strip("/").partition("/")
    if not service:
        raise ValueError("no service")
    if db:
        options["db"] = int(db)
    of_sentinels = {
        name: value
        for name, value in options.items()
        if name.startswith(("socket_", "ssl_")) or name in ("retry", "ssl")
    }
    for name in ("username", "password"):
        of_sentinels[name] = options.pop(f"sentinel_{name}", None)
    sentinels: Any = redis.asyncio.sentinel if for_asyncio else redis.sentinel

    def master() -> Any:
        sentinel = sentinels.Sentinel(addresses, sentinel_kwargs=of_sentinels, **options)
        return sentinel.master_for(service)

    return _Target("sentinel", f"the master of {service!r}", master, own=True)


def _retry(for_asyncio: bool, retries: int) -> Any:
    import redis.asyncio.retry
    import redis.retry
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError

    kind: Any = redis.asyncio.retry.Retry if for_asyncio else redis.retry.Retry
    return kind(NoBackoff(), retries, supported_errors=(ConnectionError,))


def _address(text: str, usual: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("no host")
    return parts.hostname, parts.port or usual


def _place(options: dict[str, Any]) -> str:
    return options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
