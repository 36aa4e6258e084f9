"""What redis-py raises and Redis refuses, as errors of bloomery: unavailable, refused, nonsense."""

from __future__ import annotations

from functools import cache
from typing import Any

from bloomery.errors import BloomeryError, CorruptData, StoreRefused, StoreUnavailable

# By the code that a reply begins with. redis-py takes some of them off, and has classes instead.
_HINTS = {
    "OOM": "Redis has reached its maxmemory: give it more, or make smaller filters",
    "READONLY": "this Redis is a replica: give the master, Sentinel.master_for or the cluster",
    "MISCONF": "Redis cannot save to its disk and refuses writes: its log says why",
    "NOAUTH": "Redis wants a password: redis://user:password@host",
    "WRONGPASS": "Redis knows no such user and password",
    "NOPERM": "this user of Redis may not do that: ACL SETUSER gives more",
    "WRONGTYPE": "another value is in the place of the filter: delete it, or take another name",
    "MOVED": "this Redis is a node of a cluster: give a RedisCluster, or redis+cluster://host:port",
    "SENTINEL": "this is a Redis and no Sentinel: redis://host:port",
    "NOREPLICAS": "Redis has fewer replicas than its min-replicas-to-write",
}
_CLASSES = {
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "NoPermissionError": "NOPERM",
    "MovedError": "MOVED",
    "AskError": "MOVED",
}


@cache
def troubles() -> tuple[type[Exception], ...]:
    """What redis-py raises if it cannot reach a server, or gets nonsense when it connects."""
    from redis.exceptions import RedisClusterException, RedisError

    return (RedisError, RedisClusterException, OSError, ValueError, TypeError, LookupError)


@cache
def reply_failures() -> tuple[tuple[type[Exception], ...], type[Exception]]:
    """What redis-py raises when no reply comes; and when Redis replies with an error."""
    from redis.exceptions import ConnectionError, ResponseError, TimeoutError

    return (ConnectionError, TimeoutError, OSError), ResponseError


def unavailable(problem: BaseException, place: str = "", seconds: float | None = None) -> Any:
    """Return the error for a Redis that cannot be reached, or does not answer in time."""
    where = f"Redis at {place}" if place else "Redis"
    patience = "" if seconds is None else f" within {seconds:g} s"
    return StoreUnavailable(f"{where} cannot be reached{patience}: {_text(problem)}")


def unknown(problem: BaseException, place: str) -> BloomeryError:
    """Return the error for what was sent, cannot be sent twice, and was not answered."""
    return StoreUnavailable(
        f"Redis at {place} was asked and did not answer, so it may or may not have been done, for "
        f"some keys or for all: {_text(problem)}"
    )


def nonsense(problem: BaseException, place: str) -> BloomeryError:
    """Return the error for a reply that is none of the protocol."""
    return CorruptData(
        f"Redis at {place} answered what is no answer of Redis: {type(problem).__name__}"
    )


def refused(problem: BaseException) -> BloomeryError:
    """Return the error for what Redis replied."""
    text = " ".join(str(problem).split())
    code = _CLASSES.get(type(problem).__name__, text.partition(" ")[0])
    if type(problem).__name__ == "AuthenticationError" and code not in _HINTS:
        code = "WRONGPASS" if "invalid" in text or "AUTH <password>" in text else "NOAUTH"
    if text.startswith("unknown command 'SENTINEL'"):
        code = "SENTINEL"
    if code in _HINTS:
        return StoreRefused(f"{_HINTS[code]} ({text[:200]})")
    return StoreRefused(f"Redis refused: {text[:200]}")


def checked(replies: list[Any]) -> list[Any]:
    """Return the replies; raise the first that is an error."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise refused(reply) from reply
    return replies


def _text(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
