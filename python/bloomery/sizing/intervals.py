"""How sure an observed rate is: its Wilson interval, for canaries and confirmed answers."""

from __future__ import annotations

import math

_Z = 1.959963984540054  # 95% of a normal distribution are within so many deviations


def wilson_interval(probes: int, hits: int) -> tuple[float, float]:
    """A 95% confidence interval for the rate of which `hits` of `probes` were seen.

    Wilson's, with the correction for continuity (Newcombe 1998): summed exactly, it covers the true
    rate in at least 95% of runs at nearly every rate, and in 94.9% at the worst.
    """
    if probes <= 0:
        return 0.0, 1.0
    rate, square = hits / probes, _Z * _Z
    spread = square - 1 / probes + 4 * hits * (1 - rate)
    middle, scale = 2 * hits + square, 2 * (probes + square)
    low = (middle - 1 - _Z * math.sqrt(max(0.0, spread + 4 * rate - 2))) / scale
    high = (middle + 1 + _Z * math.sqrt(max(0.0, spread - 4 * rate + 2))) / scale
    return (max(0.0, low) if hits else 0.0), (min(1.0, high) if hits < probes else 1.0)
