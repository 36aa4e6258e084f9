"""What a request's body is written as: JSON, compact, and one line a key where there are many."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from bloomery import errors

__all__ = ["dumped", "lines", "loaded"]


@lru_cache
def _encoder(between: str) -> Callable[[Any], str]:
    """What writes JSON. Made once: `json.dumps` would make one for each key."""
    import json  # not before it is needed: `bloomery dedup` starts without it

    return json.JSONEncoder(ensure_ascii=False, separators=(between, ":")).encode


def dumped(value: Any, between: str = ",") -> bytes:
    """JSON bytes; InvalidKey for a string that has no UTF-8."""
    try:
        return _encoder(between)(value).encode()
    except UnicodeEncodeError:
        raise errors.InvalidKey("a str with a lone surrogate has no UTF-8 and is no key") from None


def loaded(content: bytes) -> Any:
    """The value of JSON bytes."""
    import json

    return json.loads(content)


def lines(keys: list[Any]) -> bytes:
    """Strings and ints, each as a line of JSON."""
    return dumped(keys, "\n")[1:-1] + b"\n"
