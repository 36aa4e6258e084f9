"""How a guard is to behave, checked once."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict, get_args

from bloomery.boottime import boottime
from bloomery.errors import InvalidParameter
from bloomery.guard.protocols import Cached

OnOutage: TypeAlias = Literal["raise", "stale", "queue", "maybe"]
_LONGEST = 10 * 365 * 86400.0
_LONG = 30.0


class GuardOptions(TypedDict, total=False):
    """The same as keyword arguments; what each means stands at `Options`."""

    ttl: float
    negative_ttl: float
    jitter: float
    stale_for: float
    on_outage: OnOutage
    timeout: float | None
    failures: int
    retry: float
    most_retry: float
    max_queries: int
    window: float


@dataclass(frozen=True)
class Options:
    """The options of a guard; times in seconds."""

    ttl: float = 300.0  # for which a confirmed value is served from the cache
    negative_ttl: float = 30.0  # the same for a key that is not there; 0: not cached
    jitter: float = 0.1  # each TTL is shorter by up to this share, so that not all end at once
    stale_for: float = 86400.0  # after its TTL, for on_outage="stale"
    on_outage: OnOutage = "raise"
    timeout: float | None = 5.0  # for the source; None: wait for ever, in the caller's thread
    failures: int = 3  # in a row, until the source counts as down
    retry: float = 1.0  # between tries of one that is down, doubled with each up to most_retry
    most_retry: float = 30.0
    max_queries: int = 32  # to the source at once
    window: float = 3600.0  # of the observed error rate

    def __post_init__(self) -> None:
        if self.on_outage not in get_args(OnOutage):
            raise InvalidParameter(
                f"on_outage is {self.on_outage!r}, must be one of {', '.join(get_args(OnOutage))}"
            )
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is None and name == "timeout":
                continue
            if not _is_number(value) or not least <= value <= _LONGEST:
                raise InvalidParameter(f"{name} is {value!r}, must be a number from {least:g} up")
            if name in ("failures", "max_queries") and not isinstance(value, int):
                raise InvalidParameter(f"{name} is {value!r}, must be a whole number")
        if self.jitter >= 1:
            raise InvalidParameter(f"jitter is {self.jitter!r}, must be at least 0 and below 1")

    @property
    def stale(self) -> float:
        """For how long past its TTL an answer is kept."""
        return self.stale_for if self.on_outage == "stale" else 0.0

    @property
    def longest(self) -> float:
        """For how long a cache holds anything."""
        return max(self.ttl, self.negative_ttl) + self.stale

    @property
    def lease(self) -> float:
        """For how long a look-up may take, and be cached."""
        return (_LONG if self.timeout is None else self.timeout) + _LONG

    def cached(self, found: bool, value: Any, token: Any = None) -> Cached | None:
        """An answer of the source as it is cached; None: it is not."""
        ttl = self.ttl if found else self.negative_ttl
        if ttl <= 0:
            return None
        # Only ever shorter: a TTL is a promise of how old an answer can be.
        fresh = boottime() + ttl * (1 - self.jitter * random.random())
        return Cached(found, value, fresh, fresh + self.stale, token)


_LEAST = {
    "ttl": 0,
    "negative_ttl": 0,
    "jitter": 0,
    "stale_for": 0,
    "timeout": 0.001,
    "failures": 1,
    "retry": 0.001,
    "most_retry": 0.001,
    "max_queries": 1,
    "window": 1,
}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
