"""A clock for tests, and filters that go by it."""

from __future__ import annotations

from typing import Any

from bloomery import RotatingBloomFilter


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def timed(window: float, generations: int, **options: Any) -> tuple[RotatingBloomFilter, Clock]:
    """A filter with a window of so many seconds, and the clock it goes by."""
    clock = Clock(options.pop("now", 1_000_000.0))
    made = {"capacity": 1000, "error_rate": 1e-9, **options}
    return RotatingBloomFilter(**made, window=window, generations=generations, clock=clock), clock
