"""How often a filter really errs: of the keys that were not there, the share that it let through.

    observed_error_rate = false positives / (false positives + true negatives)

A true negative is the filter's *no*; a false positive its *maybe* that the source denied. Each key
counts once in a window: readers ask for a few keys again and again, and one popular false positive
would else look like a thousand. Which keys were counted is kept in two small filters, an older and
a newer half of the window; what those take wrongly for known is left out of both counts alike.
Maybes that the source did not answer are `unconfirmed`.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bloomery.filters.bloom import BloomFilter
from bloomery.filters.cuckoo import CuckooFilter
from bloomery.guard.sources.breaker import Breaker
from bloomery.sizing.intervals import wilson_interval

_KEYS = 1 << 16  # of half a window at most: 65,536 absent keys tell a rate of 1% within 0.08%


@dataclass(frozen=True, slots=True)
class Observation:
    """What was observed in a window: distinct keys, their share, and its 95% interval."""

    false_positives: int
    true_negatives: int
    seconds: float
    unconfirmed: int = 0  # maybes that the source did not answer
    denied_share: float = 0.0  # of those that it did: which were wrong

    @property
    def keys(self) -> int:
        """Distinct keys that were not there."""
        return self.false_positives + self.true_negatives

    @property
    def error_rate(self) -> float:
        """The share of them that the filter let through; nan if there were none."""
        wrong = self.false_positives + self.denied_share * self.unconfirmed
        return wrong / (wrong + self.true_negatives) if self.keys else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true rate is, with a confidence of 95%, whatever is unconfirmed."""
        low, high = wilson_interval(self.keys, self.false_positives)
        if self.unconfirmed:
            wrong = self.false_positives + self.unconfirmed
            high = wilson_interval(wrong + self.true_negatives, wrong)[1]
        return low, high

    def surely_above(self, allowed: float) -> bool:
        """Does the filter err more often than allowed? This is asked after every error: by the
        interval's own end one window of three accuses a full filter that keeps to its rate; by an
        end twice as far away, and of 1,000 keys or more, none of 1,000 windows did."""
        low, _ = self.interval
        return self.keys >= 1000 and self.error_rate - 2 * (self.error_rate - low) > allowed

    def as_json(self) -> dict[str, Any]:
        """The figures, ready for JSON."""
        low, high = self.interval
        known = self.keys > 0
        return {
            "observed_error_rate": self.error_rate if known else None,
            "observed_low": low if known else None,
            "observed_high": high if known else None,
            "false_positives": self.false_positives,
            "true_negatives": self.true_negatives,
            "unconfirmed": self.unconfirmed,
            "window_seconds": round(self.seconds, 3),
        }


class LockFreeCount:
    """A count that threads add to without a lock, which took 300 ns where this takes 30.
    `increment` returns how many there were; `value` is called by one thread at a time."""

    __slots__ = ("_asked", "increment")

    def __init__(self) -> None:
        self.increment = itertools.count().__next__
        self._asked = 0

    def value(self) -> int:
        """How many there are."""
        self._asked += 1
        return self.increment() - self._asked + 1


class Unconfirmed:
    """Maybes of one half of a window of which nobody knows whether they were wrong, each key once:
    the source did not answer. And what the source said of others meanwhile.

    To count the noes of that time, and not these, would flatter the filter. As many of them are
    taken for wrong as of the maybes that the source did answer, and the interval is as wide as all
    or none.
    """

    def __init__(self) -> None:
        self.count = 0
        # Maybes that the source answered since the first it did not, and those that it denied.
        self.asked = self.absent = 0
        self._keys: CuckooFilter | None = None  # most windows have none
        self._answered: BloomFilter | None = None

    def __contains__(self, key: Any) -> bool:
        return self._keys is not None and key in self._keys

    def add(self, key: Any) -> None:
        """Count a key of which the source did not say."""
        if self.count < _KEYS and key not in self:
            if self._keys is None:
                self._keys, self._answered = CuckooFilter(_KEYS, 0.001), BloomFilter(_KEYS, 0.01)
            self._keys.add(key)
            self.count += 1

    def answered(self, keys: Iterable[Any], absent: bool) -> None:
        """Count keys that the source did answer meanwhile, each once."""
        if self._answered is not None:
            for key in keys:
                new = self._answered.add(key)
                self.asked += new
                self.absent += new and absent

    def settle(self, key: Any) -> bool:
        """Take a key out that is known now; False if it was not one of these."""
        if key not in self:
            return False
        assert self._keys is not None
        self._keys.discard(key)
        self.count -= 1
        return True


class Observed:
    """How often one filter erred within a window of time. Any thread may count."""

    def __init__(self, window: float = 3600.0, breaker: Breaker | None = None) -> None:
        """`window` in seconds; with very many keys it is shorter. While the source's breaker is
        open nothing is counted: of the maybes nobody knows which were wrong."""
        self.window = window
        self._breaker = breaker or Breaker()
        self.forked()
        self._older = BloomFilter(1)
        self._newer = BloomFilter(_KEYS, 0.01)
        self._before = (0, 0)  # of the older half: false positives, true negatives
        self._false = 0  # of the newer half
        self._true, self._true_more = LockFreeCount(), 0  # one by one, and in batches
        self._unconfirmed = (Unconfirmed(), Unconfirmed())  # of the older half, and the newer
        self._denied, self._denied_more = LockFreeCount(), 0
        self._began = self._before_began = time.monotonic()

    def forked(self) -> None:
        """A lock that a thread of the parent held would be held for ever."""
        self._lock = threading.Lock()

    def no(self, key: Any) -> None:
        """Count a key that the filter denied: by far the most frequent of all that is counted."""
        # Now and then the clock is asked: each time would cost as much as all else here.
        if not self._denied.increment() & 31:
            with self._lock:
                self._pass_time()
        # What the older half knows stays out of the newer one, as in `false`: a key that is asked
        # for all the time counts again when that half is over, whatever the filter says to it.
        if self._breaker.since is None and key not in self._older and self._newer.add(key):
            self._true.increment()

    def nos(self, keys: Sequence[Any]) -> None:
        """Count keys that the filter denied."""
        with self._lock:
            self._pass_time()  # first: else these would be counted in a half that is over
            older, newer = self._older, self._newer
        known = older.contains_many(keys)
        down = self._breaker.since is not None
        fresh = [key for key, old in zip(keys, known, strict=True) if not (old or down)]
        new = sum(newer.add_many(fresh)) if fresh else 0
        with self._lock:
            self._denied_more += len(keys)
            self._true_more += new

    @property
    def counting(self) -> bool:
        """Whether keys that are asked for now are counted."""
        return self._breaker.since is None

    def false(self, key: Any, counting: bool = True) -> bool:
        """Count a key that the filter let through and that is not there; True if it was not counted
        before. `counting`: as it was when the key was asked for."""
        with self._lock:
            self._pass_time()
            if not (self._settle(key) or counting):
                return False
            new = key not in self._older and self._newer.add(key)
            self._false += new
        return new

    def unknown(self, keys: Iterable[Any]) -> None:
        """Count keys that the filter let through while the source did not answer."""
        with self._lock:
            self._pass_time()
            older, newer = self._unconfirmed
            for key in keys:
                if not (key in older or key in self._older or key in self._newer):
                    newer.add(key)

    def answered(self, present: Iterable[Any], denied: Iterable[Any]) -> None:
        """Settle unconfirmed keys: the source has some, and denied others."""
        older, newer = self._unconfirmed
        if not (older.count or newer.count):
            return
        with self._lock:
            newer.answered(denied, absent=True)
            newer.answered(present, absent=False)
            for key in present:
                self._settle(key)

    def _settle(self, key: Any) -> bool:
        older, newer = self._unconfirmed
        return (newer.count > 0 and newer.settle(key)) or (older.count > 0 and older.settle(key))

    def take(self) -> Observation:
        """What was observed, as of now."""
        with self._lock:
            self._pass_time()
            seconds = time.monotonic() - self._before_began
            false, true = self._before
            older, newer = self._unconfirmed
            return Observation(
                false + self._false,
                true + self._trues(),
                seconds,
                older.count + newer.count,
                (older.absent + newer.absent) / max(1, older.asked + newer.asked),
            )

    @property
    def denied(self) -> int:
        """How often the filter said no, ever; to the same key too."""
        with self._lock:
            return self._denied.value() + self._denied_more

    def restart(self) -> None:
        """Forget all, since another filter answers now."""
        with self._lock:
            self._turn_over(time.monotonic())
            self._turn_over(time.monotonic())

    def _trues(self) -> int:
        return self._true.value() + self._true_more

    def _pass_time(self) -> None:
        now = time.monotonic()
        if now - self._began >= self.window:  # both halves are over
            self._turn_over(now)
            self._turn_over(now)
        elif now - self._began >= self.window / 2 or self._false + self._trues() >= _KEYS:
            self._turn_over(now)

    def _turn_over(self, now: float) -> None:
        self._before, self._before_began = (self._false, self._trues()), self._began
        self._false = self._true_more = 0
        self._true = LockFreeCount()
        self._began = now
        self._older, self._newer = self._newer, BloomFilter(_KEYS, 0.01)
        self._unconfirmed = (self._unconfirmed[1], Unconfirmed())
