"""What Redis says when it does not do something, as errors of ours."""

from __future__ import annotations

from functools import cache
from typing import Any

from bloomery.errors import BloomeryError, StoreRefused, StoreUnavailable

__all__ = ["checked", "failures_of_a_reply", "refused", "troubles", "unavailable", "unknown"]

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
    """What a client raises if it cannot get at a server, or is told nonsense when it connects."""
    from redis.exceptions import RedisClusterException, RedisError

    return (RedisError, RedisClusterException, OSError, ValueError, TypeError, LookupError)


@cache
def failures_of_a_reply() -> tuple[tuple[type[Exception], ...], type[Exception]]:
    """What is raised when none comes; and when Redis says no."""
    from redis.exceptions import ConnectionError, ResponseError, TimeoutError

    return (ConnectionError, TimeoutError, OSError), ResponseError


def unavailable(problem: BaseException, place: str = "", seconds: float | None = None) -> Any:
    """Return the error for a Redis that cannot be reached, or does not answer in time."""
    where = f"Redis at {place}" if place else "Redis"
    patience = "" if seconds is None else f" within {seconds:g} s"
    return StoreUnavailable(f"{where} cannot be reached{patience}: {_said(problem)}")


def unknown(problem: BaseException, place: str) -> BloomeryError:
    """Return the error for what was sent, cannot be sent twice, and was not answered."""
    return StoreUnavailable(
        f"Redis at {place} was asked and did not answer, so it may or may not have been done, for "
        f"some keys or for all: {_said(problem)}"
    )


def refused(problem: BaseException) -> BloomeryError:
    """Return the error for what Redis replied."""
    said = " ".join(str(problem).split())
    code = _CLASSES.get(type(problem).__name__, said.partition(" ")[0])
    if type(problem).__name__ == "AuthenticationError" and code not in _HINTS:
        code = "WRONGPASS" if "invalid" in said or "AUTH <password>" in said else "NOAUTH"
    if said.startswith("unknown command 'SENTINEL'"):
        code = "SENTINEL"
    if code in _HINTS:
        return StoreRefused(f"{_HINTS[code]} ({said[:200]})")
    return StoreRefused(f"Redis refused: {said[:200]}")


def checked(replies: list[Any]) -> list[Any]:
    """Return the replies; raise the first that is an error."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise refused(reply) from reply
    return replies


def _said(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
