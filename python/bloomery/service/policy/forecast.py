"""Forecasts when a filter will be full, if keys go on coming at the same rate."""

from __future__ import annotations

import math

# Seconds over which the pace is averaged. The faster of both counts: a spike is seen within a
# minute, and keys that come in bursts are not forgotten between them.
_SHORT, _LONG = 60.0, 600.0
_FEW = 10.0  # keys: of fewer in such a time it cannot be told at which pace they come
_FURTHEST = 100.0  # times as far ahead as has been looked back
_NEVER = 10 * 365 * 86400.0  # what takes longer is not worth telling
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


class Forecast:
    """The rate at which keys come to one filter."""

    __slots__ = ("_long", "_long_weight", "_short", "_short_weight", "_watched")

    def __init__(self) -> None:
        self._short = self._long = 0.0
        self._short_weight = self._long_weight = 0.0  # less than 1 until a span is over
        self._watched = 0.0  # seconds

    def take(self, keys: int, seconds: float) -> None:
        """Take in that there are so many keys more (or fewer) after so many seconds."""
        if seconds <= 0:
            return
        self._watched += seconds
        pace = keys / seconds
        new = -math.expm1(-seconds / _SHORT)
        self._short += new * (pace - self._short)
        self._short_weight += new * (1 - self._short_weight)
        new = -math.expm1(-seconds / _LONG)
        self._long += new * (pace - self._long)
        self._long_weight += new * (1 - self._long_weight)

    @property
    def pace(self) -> float:
        """Keys a second, more than are removed; 0.0 if there are too few of them to tell."""
        short = self._short / self._short_weight if self._short * _SHORT >= _FEW else 0.0
        long = self._long / self._long_weight if self._long * _LONG >= _FEW else 0.0
        return max(short, long)

    def until(self, keys: float) -> float | None:
        """Seconds until so many keys more have come; None if that will not be, or is too far off to
        be told from what was seen so far."""
        if keys <= 0:
            return 0.0
        pace = self.pace
        seconds = keys / pace if pace > 0 else math.inf
        return seconds if seconds <= min(_NEVER, _FURTHEST * self._watched) else None


def in_words(seconds: float | None) -> str:
    """A forecast for people: `full in 3 h 20 min at this rate`."""
    if seconds is None:
        return "does not fill at this rate"
    if seconds <= 0:
        return "full"
    return f"full in {_duration(seconds)} at this rate"


def _duration(seconds: float) -> str:
    """The two largest units of a time, rounded down: a forecast had better be early."""
    left, parts = max(1, int(seconds)), list[str]()
    for unit, size in _UNITS:
        many, left = divmod(left, size)
        if many or parts:
            parts.append(f"{many} {unit}")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0 "))
