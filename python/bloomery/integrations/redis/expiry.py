"""The time to live of a filter in Redis: checked, set and asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bloomery.errors import InvalidParameter, UnknownFilter
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Flow, command

if TYPE_CHECKING:
    from bloomery.integrations.redis.naming import Keys

__all__ = ["expire_command", "milliseconds", "time_left"]

_LONGEST_LIFE = 1e10  # seconds: 300 years


def milliseconds(seconds: Any, what: str = "ttl") -> int | None:
    """Check a time to live in seconds; return it as Redis takes it."""
    if seconds is None:
        return None
    right = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not right or not 0.001 <= seconds <= _LONGEST_LIFE:
        raise InvalidParameter(
            f"{what} is {seconds!r}, must be None or in the range [0.001, {_LONGEST_LIFE:g}]"
        )
    return max(1, round(float(seconds) * 1000))


def expire_command(key: bytes, life: int | None, more: int = 0) -> tuple[bytes | str | int, ...]:
    """Return the command that lets a key expire in so many milliseconds, or never."""
    return ("PERSIST", key) if life is None else ("PEXPIRE", key, life + more)


def time_left(keys: Keys) -> Flow[float | None]:
    """Return the seconds until a filter expires, or None if it does not; UnknownFilter if it is
    gone."""
    [some] = yield [command(keys.config, "PTTL", keys.config)]
    [rest] = checked(some)
    if not isinstance(rest, int) or rest == -2:
        raise UnknownFilter(f"there is no filter {keys.name!r} in this Redis")
    return None if rest < 0 else rest / 1000
