"""The rotating filter, which forgets keys once their window is over."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat, TypeAlias

import bloomery._native as _native
from bloomery import errors, sizing
from bloomery.filters.filter import Filter, float_bits
from bloomery.sizing import limits
from bloomery.suggestions import known_keywords

if TYPE_CHECKING:
    from datetime import timedelta

    from typing_extensions import Self

    from bloomery.types import Hasher, Key

MAX_GENERATIONS = 254
MAX_WINDOW = 1e11  # seconds, some 3,000 years
MAX_TIME = 1e12  # seconds before or after 1970
_Clock: TypeAlias = Callable[[], SupportsFloat]
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}


class Generation(NamedTuple):
    """When a key was last added: `age` whole generations ago, that is, between two times ago."""

    age: int
    newest: float  # seconds ago, at least
    oldest: float  # seconds ago, at most; both are nan where keys, not time, turn generations over

    def __str__(self) -> str:
        if math.isnan(self.oldest):
            ago = f"{self.age} generation{'s' if self.age > 1 else ''} ago"
            return f"seen {ago}" if self.age else "seen in the current generation"
        if self.age == 0:
            return f"seen in the last {_for_a_person(self.oldest)}"
        return f"seen {_for_a_person(self.newest)} to {_for_a_person(self.oldest)} ago"


class RotatingBloomFilter(Filter):
    """Seen in the last 7 days? A key added within the window is certainly seen; it is forgotten at
    the latest after the window and one generation more.

    >>> seen = RotatingBloomFilter(capacity=1_000_000, window="7d", generations=7)
    >>> seen.add("alice"), str(seen.generation_of("alice"))
    (True, 'seen in the last 1 s')

    `capacity` is how many distinct keys come in a window. More make the filter grow: none is
    forgotten early. With `window=None` keys turn the generations over instead of time: the last
    `capacity` keys are certainly seen. Adding a key again makes it new again.
    """

    __slots__ = ()
    kind = "rotating"
    _UNMERGED = "add the keys of both to one filter"

    @known_keywords
    def __new__(
        cls,
        capacity: int,
        error_rate: float | str = 0.01,
        *,
        window: str | float | timedelta | None = "7d",
        generations: int = 8,
        clock: _Clock | None = None,
        hasher: Hasher = "xxh3",
        seed: int = 0,
    ) -> Self:
        """Make an empty filter. `clock` gives Unix time in seconds; by default the machine's."""
        count, rate = sizing.check_sizes(capacity, error_rate)
        seconds = 0.0 if window is None else parse_window(window)
        number = _check_generations(generations)
        table = _native.rotating_table(count, rate, number)
        started = _now(_check_clock(clock) or time.time) if seconds else 0.0
        times = float_bits(seconds), float_bits(started)
        filter = cls._make_table(count, rate, hasher, seed, table, 0, 0, *times, number)
        filter.set_clock(clock)
        return filter

    @property
    def window(self) -> float | None:
        """Seconds for which a key is certainly remembered; None if keys turn generations over."""
        return self._facts()["window"] or None

    @property
    def generations(self) -> int:
        """How many whole generations make up the window."""
        return int(self._facts()["generations"])

    def rotate(self) -> None:
        """Begin a new generation now and forget the oldest, before its time.

        `generation_of` takes the one that ended early for a whole one.
        """
        self._act("rotate", self._time())

    def generation_of(self, key: Key) -> Generation | None:
        """When the key was last added; None: definitely not in the window."""
        age = self._ask("generation", key)
        if age is None:
            return None
        window = self.window
        if window is None:
            return Generation(int(age), math.nan, math.nan)
        each, since = window / self.generations, self._time() - self._facts()["generation_started"]
        since = max(0.0, since)
        newest = 0.0 if age == 0 else since + (age - 1) * each
        return Generation(int(age), newest, since + age * each)

    def set_clock(self, clock: _Clock | None) -> None:
        """Take the time from here: a filter that was loaded takes the machine's again."""
        self._set_clock(_check_clock(clock))

    def _repr_fields(self) -> dict[str, tuple[object, object]]:
        window = self.window
        shown = None if window is None else _for_a_person(window).replace(" ", "")
        own = {"window": (shown, "7d"), "generations": (self.generations, 8)}
        return own | super()._repr_fields()

    def info(self) -> dict[str, Any]:
        """All that is known about the filter, ready for JSON."""
        facts = super().info()
        return {**facts, "window": facts["window"] or None}

    def copy(self) -> Self:
        """Return a filter with the same keys and clock, in memory of its own."""
        copy = super().copy()
        copy._set_clock(self._clock())
        return copy


def parse_window(value: object) -> float:
    """Seconds from a number, a timedelta, or text such as "15min", "12h", "7d"."""
    seconds = limits.number(value) or 0
    if hasattr(value, "total_seconds"):  # a timedelta, for which datetime is not imported here
        seconds = value.total_seconds()
    elif isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9.]+)\s*(s|m|min|h|d|w)\s*", value)
        if match is not None and match[1].count(".") <= 1 and match[1] != ".":
            seconds = float(match[1]) * _UNITS[match[2]]
    if 1e-3 <= seconds <= MAX_WINDOW:
        return float(seconds)
    raise errors.InvalidParameter(
        f"window is {sizing.show(value)}, must be seconds, a timedelta, or text such as '15min', "
        "'12h' or '7d'; None to rotate by fill"
    )


def _check_generations(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_GENERATIONS:
        return value
    raise errors.InvalidParameter(
        f"generations is {sizing.show(value)}, must be an int from 1 to {MAX_GENERATIONS}"
    )


def _check_clock(value: _Clock | None) -> _Clock | None:
    if value is None or callable(value):
        return value
    raise errors.InvalidParameter(
        f"clock is {sizing.show(value)}, must be a function that gives seconds since 1970, or None"
    )


def _now(clock: _Clock) -> float:
    now = float(clock())
    if abs(now) <= MAX_TIME:
        return now
    raise errors.InvalidParameter(f"the clock says {now}, must be seconds since 1970")


def _for_a_person(seconds: float) -> str:
    """'15 min', '2 d', '36 h': the largest unit that leaves a small number."""
    for unit in ("d", "h", "min"):
        if seconds >= 2 * _UNITS[unit] or (seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0):
            return f"{seconds / _UNITS[unit]:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{math.ceil(seconds)} s"
