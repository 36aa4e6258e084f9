"""A sample: the state of one filter at a moment, and what was done to it since the sample before.

Several samples in a row become one that stands for all of them, for a minute or an hour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from bloomery.service.registry.rows import moment, sql_integer

RAW = 0  # the span of a sample that stands for itself
MINUTE, HOUR = 60, 3600
SPANS = (RAW, MINUTE, HOUR)


@dataclass(kw_only=True, slots=True)
class Sample:
    """One sample of a filter; `filter_id` is the server's number for it, `sampled_at` an epoch.

    What a kind cannot tell is nan.
    """

    filter_id: int
    sampled_at: float  # of several: that of the first
    estimated_count: float
    estimated_error_rate: float
    span: int = RAW
    seconds: float = 0.0  # since the sample before, by a clock that does not jump; 0.0: the first
    capacity: int = 0
    items: int = 0  # keys that were new when they were added, less those removed
    fill_ratio: float = math.nan
    nbytes: int = 0
    # In those seconds.
    adds: int = 0
    checks: int = 0
    maybes: int = 0
    probes: int = 0
    hits: int = 0
    # Of the canary's window, or of look-ups.
    observed_error_rate: float = math.nan
    observed_low: float = math.nan
    observed_high: float = math.nan
    observed_by: str | None = None  # canary or lookups; None: nobody could
    full_in: float | None = None  # seconds, at this rate; None: it does not fill

    @property
    def adds_per_second(self) -> float | None:
        """Keys that were added, whether new or not; None if it is not known over which time."""
        return self.adds / self.seconds if self.seconds > 0 else None

    @property
    def checks_per_second(self) -> float | None:
        """Keys that were asked for."""
        return self.checks / self.seconds if self.seconds > 0 else None

    @property
    def maybe_share(self) -> float | None:
        """The share of keys asked for that were answered *maybe*."""
        return self.maybes / self.checks if self.checks else None

    @property
    def active(self) -> bool:
        """Did anybody use the filter since the sample before?"""
        return self.adds > 0 or self.checks > 0

    def standing_for(self, span: int) -> Sample:
        """A copy that begins a span."""
        return replace(self, span=span)

    def absorb(self, later: Sample) -> None:
        """Stand for a later one too: sums of what was done, the larger of rates (a peak is not to
        be lost), and else what is true at the end."""
        self.seconds += later.seconds
        self.adds += later.adds
        self.checks += later.checks
        self.maybes += later.maybes
        self.probes += later.probes
        self.hits += later.hits
        if not later.estimated_error_rate <= self.estimated_error_rate:
            self.estimated_error_rate = later.estimated_error_rate
        if not later.fill_ratio <= self.fill_ratio:
            self.fill_ratio = later.fill_ratio
        self.estimated_count = later.estimated_count
        self.capacity = later.capacity
        self.items = later.items
        self.nbytes = later.nbytes
        self.observed_error_rate = later.observed_error_rate
        self.observed_low = later.observed_low
        self.observed_high = later.observed_high
        self.observed_by = later.observed_by
        self.full_in = later.full_in

    def values(self) -> dict[str, Any]:
        """Its columns in BloomFilterStats; the filter by its number."""
        return {
            "of_number": self.filter_id,
            "estimated_elements": sql_integer(self.estimated_count),
            "false_positive_estimate": _none_if_nan(self.estimated_error_rate),
            "sampled_at": moment(self.sampled_at),
            "span": self.span,
            "seconds": self.seconds,
            "items": sql_integer(self.items),
            "fill_ratio": _none_if_nan(self.fill_ratio),
            "nbytes": sql_integer(self.nbytes),
            "adds_per_second": self.adds_per_second,
            "checks_per_second": self.checks_per_second,
            "maybe_share": self.maybe_share,
            "canary_probes": self.probes,
            "canary_hits": self.hits,
            "observed_error_rate": _none_if_nan(self.observed_error_rate),
            "observed_low": _none_if_nan(self.observed_low),
            "observed_high": _none_if_nan(self.observed_high),
            "observed_by": self.observed_by,
            "full_in_seconds": self.full_in,
        }

    def as_dict(self) -> dict[str, Any]:
        """As clients get it, ready for JSON: the names of the columns, but for the two old ones."""
        return columns_as_dict(self.values() | {"sampled_at": self.sampled_at})


def columns_as_dict(columns: dict[str, Any]) -> dict[str, Any]:
    """Columns of BloomFilterStats as clients get them; the time is an epoch already."""
    rest = {name: value for name, value in columns.items() if name != "of_number"}
    estimate = rest.pop("false_positive_estimate")
    # Only a kind without a fill ratio has no estimate; older rows of it have 0.
    return {
        "at": rest.pop("sampled_at"),
        "estimated_count": rest.pop("estimated_elements"),
        "estimated_error_rate": None if rest["fill_ratio"] is None else estimate,
        **rest,
    }


def _none_if_nan(value: float) -> float | None:
    return None if value != value else value
