"""How often a classic filter errs: the maths behind `bloom` for bits that lie anywhere.

The textbook takes the share of bits that are set for its mean, and a key's positions for
independent of each other. With many keys both are so; with few, or at very low rates, neither is.
"""

from __future__ import annotations

import math

from bloomery.sizing.blocked import Line, line_rate

# Up to so many bits the rate is counted out; beyond, the textbook's formula is within 0.5% of it.
EXACT_BITS = 1 << 16
# With fewer, how the positions of one key fall depends on each other in ways that no formula here
# has: one key at 0.1% in 15 bits errs 1.25 times as often as said. Memory comes in 512 anyway.
MIN_BITS = 64


def classic_rate(num_bits: int, num_hashes: int, count: float) -> float:
    """The chance that a key never added finds all of its bits set, after `count` keys."""
    if num_bits <= 1:
        return 1.0
    if num_bits <= EXACT_BITS:
        rate = line_rate(num_hashes, num_hashes, math.ceil(count), 1, Line(num_bits, 1))
    else:
        clear = num_hashes * count * math.log1p(-1.0 / num_bits)
        rate = (-math.expm1(clear)) ** num_hashes
    return min(1.0, rate + _alike(num_bits, num_hashes, count) * (1.0 - rate))


def _alike(num_bits: int, num_hashes: int, count: float) -> float:
    """The chance that a key errs because a single other one has nearly the same positions.

    All positions of a key come from two numbers, a start and a step (enhanced double hashing). Two
    keys whose starts differ by x bits, and steps by y, are x + i*y bits apart at their position i:
    on the same bit with the chance 1 - |x + i*y|, else on any bit, which is set with the chance of
    the fill. The product of these over k positions is near exp(-(1 - fill) * sum of |x + i*y|),
    whose integral over all x and y is (16 + 4 pi) / (k**3 * (1 - fill)**2). With few positions that
    is too much, since two of them are independent anyway: simulated filters of 1 to 100 keys and 3
    to 23 hashes agree with a share of 1 - 4 / k of it.
    """
    k = num_hashes
    clear = math.exp((count - 1.0) * k * math.log1p(-1.0 / num_bits)) if count > 1 else 1.0
    near = (16.0 + 4.0 * math.pi) * max(0.0, 1.0 - 4.0 / k) / max(k**3 * clear**2, 1e-9)
    return count * min(near, 4.0 / k) / (float(num_bits) ** 2)
