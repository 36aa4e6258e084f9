"""The canary: measures how often a filter errs. At each sample a few random keys that nobody added
are asked for; the share that is a *maybe* is the observed error rate.

Probes of the last while count together, so that rare errors are seen too. A filter that fills errs
more and more often: probes from when it erred less are left out as soon as they would mislead.
"""

from __future__ import annotations

import math
from itertools import pairwise

PROBES = 256  # of one sample: 4 to 10 microseconds
_MOST_PROBES = 1 << 16
# So many hits measure a rate within a tenth; with more, the window would only be slower to see a
# change.
_MOST_HITS = 400
_BUCKETS = 4


class Window:
    """The probes of a filter that count: the latest ones, of a time when it erred as it does now.

    They are in a few buckets, oldest first, each with the estimated error rate at its beginning;
    the two smallest neighbours become one when there are too many.
    """

    __slots__ = ("_buckets", "hits", "probes")

    def __init__(self) -> None:
        self.probes = 0
        self.hits = 0
        self._buckets: list[tuple[int, int, float]] = []

    def take(self, probes: int, hits: int, estimate: float) -> None:
        """Count in the probes of one sample, and by the estimated error rate leave out what is no
        longer so. Without an estimate (nan) the probes only grow old."""
        buckets = self._buckets
        buckets.append((probes, hits, estimate))
        self.probes += probes
        self.hits += hits
        while len(buckets) > 1 and self._outdated(estimate):
            gone = buckets.pop(0)
            self.probes -= gone[0]
            self.hits -= gone[1]
        if len(buckets) > _BUCKETS:
            sums = [a[0] + b[0] for a, b in pairwise(buckets)]
            at = sums.index(min(sums))
            (one, its, begun), (other, others, _) = buckets[at : at + 2]
            buckets[at : at + 2] = [(one + other, its + others, begun)]

    def _outdated(self, estimate: float) -> bool:
        """Is the oldest bucket to go? If it is not needed, or if the rate has changed since by more
        than half a standard error: then the mean is off by a quarter of one, which does no harm."""
        _, hits, then = self._buckets[0]
        if self.probes > _MOST_PROBES or self.hits - hits >= _MOST_HITS:
            return True
        error = math.sqrt(max(estimate * (1 - estimate), 1 / self.probes) / self.probes)
        return abs(estimate - then) > error / 2

    def __len__(self) -> int:
        return len(self._buckets)

    @property
    def rate(self) -> float:
        """The observed error rate; nan before the first probe."""
        return self.hits / self.probes if self.probes else math.nan
