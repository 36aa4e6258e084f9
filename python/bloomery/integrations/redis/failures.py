"""What Redis says when it does not do something, as errors of ours."""

from __future__ import annotations

from typing import Any

from bloomery.errors import BloomeryError, StoreRefused, StoreUnavailable

__all__ = ["checked", "refused", "unavailable"]


def unavailable(problem: Exception) -> BloomeryError:
    """Return the error for a Redis that cannot be reached, or does not answer in time."""
    said = " ".join(str(problem).split())
    return StoreUnavailable(f"Redis cannot be reached: {type(problem).__name__}: {said}")


def refused(problem: Exception) -> BloomeryError:
    """Return the error for what Redis replied."""
    said = " ".join(str(problem).split())
    hints = {
        "OOM": "Redis has reached its maxmemory",
        "READONLY": "this Redis is a replica: writes go to the master",
        "MISCONF": "Redis cannot save to its disk and refuses writes",
        "NOAUTH": "Redis wants a password",
        "WRONGPASS": "Redis refused the password",
        "NOPERM": "this user of Redis may not do that",
        "WRONGTYPE": "another value is in the place of the filter",
    }
    for word, hint in hints.items():
        if word in said[:60] or type(problem).__name__.upper().startswith(word[:6]):
            return StoreRefused(f"{hint} ({said})")
    return StoreRefused(f"Redis refused: {said}")


def checked(replies: list[Any]) -> list[Any]:
    """Return the replies; raise the first that is an error."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise refused(reply) from reply
    return replies
