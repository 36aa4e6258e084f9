"""The recent history of one filter, from sample to sample, and which samples of it are written.

    figures, look-ups ──> the sample ──> raw ──> minute ──> hour
                              └──> the canary's window, the forecast

A filter that nobody uses is written once, and then a raw sample each half hour and an hour's each
day: of many filters most are at rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from bloomery.guard.observed import Observation
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.policy import capacity_of, part_of, policy_of
from bloomery.service.policy.forecast import Forecast
from bloomery.service.sampling.canary import Window
from bloomery.service.sampling.sample import HOUR, MINUTE, Sample
from bloomery.sizing.intervals import wilson_interval

# As the shelf tells them: items, adds, checks, maybes, fill ratio, estimated error rate, estimated
# count, bytes, and how many of the probes were a maybe (None: the kind cannot be probed).
Figures = tuple[int, int, int, int, float, float, float, int, "int | None"]

# How often a filter that nobody uses is written all the same, in seconds.
_QUIET_RAW = 1800
_QUIET_HOUR = 86400
_ENOUGH_KEYS = 1000  # absent ones that were looked up: a rate of 1% is then known within 0.7%


@dataclass(slots=True)
class FilterHistory:
    """One filter: its last sample, its canary, its forecast, and the spans that are not over."""

    last: Sample | None = None
    _before: tuple[int, int, int, int] = (0, 0, 0, 0)  # items, adds, checks, maybes of the last one
    _changes: int = 0
    _capacity: int = 0
    _full: int | None = None  # with how many keys
    _taken: float = 0.0  # when that was, by the steady clock
    _window: Window = field(default_factory=Window)
    _forecast: Forecast = field(default_factory=Forecast)
    _minute: Sample | None = None
    _hour: Sample | None = None
    _quiet: bool = False  # was a sample written since it was last used?
    _written: float = -math.inf  # when, by the steady clock
    _written_hour: float = -math.inf

    def take(
        self,
        entry: Entry,
        figures: Figures,
        probes: int,
        at: float,
        steady: float,
        looked_up: Observation | None = None,
    ) -> Sample:
        """Make a sample of these figures, at a time of the server's clock and of the steady one.

        What look-ups saw, of enough keys, tells more than the canary: these are the keys that
        clients really ask for.
        """
        items, adds, checks, maybes, fill, estimate, count, nbytes, hits = figures
        seconds = steady - self._taken if self.last is not None else 0.0
        before, self._before = self._before, (items, adds, checks, maybes)
        self._taken = steady
        if self.last is not None and entry.changes == self._changes:
            self._forecast.take(items - before[0], seconds)
        else:  # the first one; or it was cleared, merged, …, and nobody added or removed these
            self._capacity, self._full = capacity_of(entry), full_with(entry)
            self._changes = entry.changes
        if self.last is None:
            before = self._before
        sample = Sample(
            filter_id=entry.id,
            sampled_at=at,
            estimated_count=count,
            estimated_error_rate=estimate,
            seconds=seconds,
            capacity=self._capacity,
            items=items,
            fill_ratio=fill,
            nbytes=nbytes,
            adds=_more(adds, before[1]),
            checks=_more(checks, before[2]),
            maybes=_more(maybes, before[3]),
            full_in=None if self._full is None else self._forecast.until(self._full - items),
        )
        if hits is not None:
            window = self._window
            window.take(probes, hits, estimate)
            sample.probes, sample.hits = probes, hits
            sample.observed_error_rate = window.rate
            sample.observed_low, sample.observed_high = wilson_interval(window.probes, window.hits)
            sample.observed_by = "canary"
        if looked_up is not None and looked_up.keys >= _ENOUGH_KEYS:
            sample.observed_error_rate = looked_up.error_rate
            sample.observed_low, sample.observed_high = looked_up.interval
            sample.observed_by = "lookups"
        self.last = sample
        return sample

    # What is written.

    def rows(self, sample: Sample, steady: float) -> list[Sample]:
        """What is to be written now that there is this sample: itself, and spans that are over.

        A span ends with the minute or hour of the server's clock, or when it has lasted twice as
        long: a clock that jumps, either way, ends one and begins another, and repeats none.
        """
        rows = []
        if sample.active or not self._quiet or steady - self._written >= _QUIET_RAW:
            self._written, self._quiet = steady, not sample.active
            rows.append(sample)
        if self._minute is not None and _over(self._minute, sample, MINUTE):
            rows += self._end_minute(steady)
        if self._minute is None:
            self._minute = sample.standing_for(MINUTE)
        else:
            self._minute.absorb(sample)
        return rows

    def rest(self) -> list[Sample]:
        """Return the rows to write at the end: the spans that are not over."""
        rows = self._end_minute(-math.inf)
        if self._hour is not None and self._hour.active:
            rows.append(self._hour)
        self._hour = None
        return rows

    def _end_minute(self, steady: float) -> list[Sample]:
        rows: list[Sample] = []
        minute, self._minute = self._minute, None
        if minute is None:
            return rows
        if minute.active:
            rows.append(minute)
        if self._hour is not None and _over(self._hour, minute, HOUR):
            if self._hour.active or steady - self._written_hour >= _QUIET_HOUR:
                self._written_hour = steady
                rows.append(self._hour)
            self._hour = None
        if self._hour is None:
            self._hour = minute.standing_for(HOUR)
        else:
            self._hour.absorb(minute)
        return rows


def full_with(entry: Entry) -> int | None:
    """With how many keys the filter is full; None: it grows, rotates, or takes none."""
    policy = policy_of(entry)
    if policy.on_full in ("reject", "alert"):
        return part_of(policy.full_at, capacity_of(entry))
    return None


def _more(now: int, before: int) -> int:
    """Return by how much a counter grew; one that is lower than before has begun anew."""
    return now - before if now >= before else now


def _over(begun: Sample, sample: Sample, span: int) -> bool:
    same = sample.sampled_at // span == begun.sampled_at // span
    return not same or begun.seconds >= 2 * span
