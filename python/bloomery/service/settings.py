"""What can be set: by flag when the server starts, some of it by CONFIG SET while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from bloomery import errors

__all__ = ["Settings"]

_UNITS = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1 << 10,
    "m": 1000**2,
    "mb": 1 << 20,
    "g": 1000**3,
    "gb": 1 << 30,
}


def _nbytes(text: str) -> int:
    """A number of bytes as Redis writes it: 100mb, 1gb, 4096."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    unit = _UNITS.get(text[len(digits) :].lower())
    if unit is None:
        raise ValueError
    return int(digits) * unit


def _between(low: float, high: float, read: Callable[[str], Any] = int) -> Callable[[str], Any]:
    def check(text: str) -> Any:
        value = read(text)
        if not low <= value <= high:
            raise ValueError
        return value

    check.__doc__ = f"must be in the range [{low:.17g}, {high:.17g}]"
    return check


def _rate(text: str) -> float:
    """must be in the range (0, 1)"""
    value = float(text)
    if not 0 < value < 1:
        raise ValueError
    return min(value, 0.25)  # as RedisBloom does


def _one_of(*words: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text.lower() not in words:
            raise ValueError
        return text.lower()

    check.__doc__ = f"must be one of {', '.join(words)}"
    return check


def _url(text: str) -> str:
    """must be empty, or an http:// or https:// URL with a host"""
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError
    return text


def _secret(text: str) -> str:
    """must be 16 to 1,024 printable characters"""
    if not 16 <= len(text) <= 1024 or not text.isprintable():
        raise ValueError
    return text


def _set(
    default: Any, check: Callable[[str], Any], live: bool = True, *, secret: bool = False
) -> Any:
    return field(default=default, metadata={"check": check, "live": live, "secret": secret})


_COUNT = _between(1, 1 << 30)
_BYTES = _between(0, 1 << 50, _nbytes)


@dataclass
class Settings:
    """Every setting, with its default. CONFIG names have dashes for underscores."""

    bf_layout: str = _set("bloomery", _one_of("bloomery", "redisbloom"))
    bf_error_rate: float = _set(0.01, _rate)
    bf_initial_size: int = _set(100, _COUNT)
    bf_expansion_factor: int = _set(2, _between(0, 32768))
    cf_bucket_size: int = _set(2, _between(1, 255))
    cf_initial_size: int = _set(1024, _COUNT)
    cf_max_iterations: int = _set(20, _between(1, 65535))
    cf_expansion_factor: int = _set(1, _between(0, 32768))
    cf_max_expansions: int = _set(32, _between(1, 65536))
    maxmemory: int = _set(0, _BYTES)  # of all filters; 0: no limit
    max_filters: int = _set(1_000_000, _COUNT)
    max_capacity: int = _set(1 << 40, _between(1, 1 << 40))
    maxclients: int = _set(10_000, _between(1, 1_000_000))
    timeout: int = _set(0, _between(0, 1 << 31))  # seconds without a command; 0: none
    max_arguments: int = _set(1 << 20, _between(8, 1 << 24), live=False)
    proto_max_bulk_len: int = _set(64 << 20, _between(1 << 10, 1 << 30, _nbytes), live=False)
    max_request_bytes: int = _set(128 << 20, _between(1 << 10, 1 << 31, _nbytes), live=False)
    client_output_limit: int = _set(64 << 20, _between(1 << 16, 1 << 40, _nbytes))
    slow_client_seconds: int = _set(60, _between(1, 1 << 31))
    fsync: str = _set("everysec", _one_of("always", "everysec", "never"), live=False)
    snapshot_seconds: int = _set(3600, _between(0, 1 << 31))  # 0: only when asked
    snapshot_log_bytes: int = _set(
        256 << 20, _between(1 << 16, 1 << 50, _nbytes), live=False
    )  # a log this long calls for a snapshot
    webhook_url: str = _set("", _url, live=False, secret=True)  # it may have a token in it
    webhook_secret: str = _set("", _secret, live=False, secret=True)

    def names(self) -> list[str]:
        """Return the names as CONFIG has them."""
        return [item.name.replace("_", "-") for item in fields(self)]

    def get(self, name: str) -> str:
        """Return a value as CONFIG GET shows it."""
        value = getattr(self, name.replace("-", "_"))
        if value and self.__dataclass_fields__[name.replace("-", "_")].metadata["secret"]:
            return "***"
        return f"{value:g}" if isinstance(value, float) else str(value)

    def set(self, name: str, text: str, *, running: bool = True) -> None:
        """Set a value from its text; InvalidParameter says what is right."""
        known = {item.name: item for item in fields(self)}
        item = known.get(name.lower().replace("-", "_"))
        if item is None:
            raise errors.InvalidParameter(f"there is no setting named {name[:60]!r}")
        if running and not item.metadata["live"]:
            raise errors.InvalidParameter(f"{name} can only be set when the server starts")
        check = item.metadata["check"]
        try:
            value = check(text)
        except (ValueError, OverflowError):
            raise errors.InvalidParameter(
                f"{name} is {text[:60]!r}, {check.__doc__ or 'must be a number'}"
            ) from None
        setattr(self, item.name, value)
