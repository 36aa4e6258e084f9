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
    module: Any

    def told(self, problem: Exception) -> str:
        """What a client raised, without keys and secrets."""
        said = " ".join(str(problem).split()).partition(", with args")[0]
        return f"Redis at {self.place}: {type(problem).__name__}: {said}"


def redis_client(given: Any, what: str, *, for_asyncio: bool, timeout: float) -> RedisClient:
    """Check what was given; `what` needs it, and is named in messages."""
    try:
        import redis
        import redis.asyncio
    except ImportError:
        raise MissingExtra(f"{what} in Redis needs redis: pip install 'bloomery[guard]'") from None
    client = given
    if isinstance(given, str):
        kind: Any = redis.asyncio.Redis if for_asyncio else redis.Redis
        try:
            client = kind.from_url(given, socket_timeout=timeout, socket_connect_timeout=timeout)
        except (ValueError, TypeError):  # whose text shows parts of the URL
            raise InvalidParameter(
                f"the URL of {what} cannot be read, must be redis://user:password@host:6379/0, "
                "rediss://… or unix://…"
            ) from None
    send = getattr(client, "execute_command", None)
    if send is None:
        raise InvalidParameter(
            f"redis is a {type(given).__name__}, must be a URL or a client of redis-py"
        )
    if inspect.iscoroutinefunction(send) != for_asyncio:
        raise InvalidParameter(
            "the client is for threads: give one of redis.asyncio"
            if for_asyncio
            else f"the client is for asyncio: give one for threads, or use the {what.split()[-1]} "
            "for asyncio"
        )
    if client.get_encoder().decode_responses:
        raise InvalidParameter("the client decodes what it reads: make it without decode_responses")
    known = client.get_connection_kwargs()
    place = known.get("path") or f"{known.get('host', 'localhost')}:{known.get('port', 6379)}"
    return RedisClient(client, client is not given, place, redis)
