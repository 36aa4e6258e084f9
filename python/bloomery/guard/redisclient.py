"""A client of redis-py from what a user gives: a URL, or a client of their own."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from bloomery.errors import InvalidParameter, MissingExtra

__all__ = ["RedisClient", "redis_client"]


@dataclass(frozen=True)
class RedisClient:
    """A client, whether it is ours to close, and where it leads, without secrets."""

    client: Any
    own: bool
    place: str
    cluster: bool
    module: Any

    def told(self, problem: Exception) -> str:
        """What a client raised, without keys and secrets."""
        said = " ".join(str(problem).split()).partition(", with args")[0]
        return f"Redis at {self.place}: {type(problem).__name__}: {said}"


def redis_client(
    given: Any, what: str, *, for_asyncio: bool, timeout: float, hurried: bool = False
) -> RedisClient:
    """Check what was given for `what`, a cache or a queue. For a URL: who is `hurried` tries a
    second time at most, which suffices for a connection that went stale, and not for seconds."""
    try:
        import redis
        import redis.asyncio.retry
        import redis.backoff
        import redis.retry
    except ImportError:
        raise MissingExtra(
            f"a {what} in Redis needs redis: pip install 'bloomery[guard]'"
        ) from None
    module: Any = redis.asyncio if for_asyncio else redis
    client = given
    if isinstance(given, str):
        options: dict[str, Any] = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        if hurried:
            lost = (redis.exceptions.ConnectionError,)
            options["retry"] = module.retry.Retry(
                redis.backoff.NoBackoff(), 1, supported_errors=lost
            )
        try:
            client = module.Redis.from_url(given, **options)
        except (ValueError, TypeError):  # whose text shows parts of the URL
            raise InvalidParameter(
                f"the URL of a {what} cannot be read, must be redis://user:password@host:6379/0, "
                "rediss://… or unix://…"
            ) from None
    send = getattr(client, "execute_command", None)
    if send is None or not hasattr(client, "pipeline"):
        raise InvalidParameter(
            f"redis is a {type(given).__name__}, must be a URL or a client of redis-py"
        )
    if inspect.iscoroutinefunction(send) != for_asyncio:
        raise InvalidParameter(
            f"the client is for threads: give one of redis.asyncio, or use Redis{what.title()}"
            if for_asyncio
            else f"the client is for asyncio: give one for threads, or use AsyncRedis{what.title()}"
        )
    if client.get_encoder().decode_responses:
        raise InvalidParameter("the client decodes what it reads: make it without decode_responses")
    cluster = isinstance(client, module.RedisCluster)
    place = "a Redis Cluster" if cluster else _place(client.get_connection_kwargs())
    return RedisClient(client, client is not given, place, cluster, redis)


def _place(known: dict[str, Any]) -> str:
    """Where connections with these options lead; behind a Sentinel they do not say."""
    host = f"{known['host']}:{known.get('port', 6379)}" if "host" in known else "a Redis"
    return known.get("path") or host
