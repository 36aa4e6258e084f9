"""How large an exact set is, why, and how far that is from what it must be at least.

A set holds one side, r keys, against s of the other. Its first level is a static filter of the r
with fingerprints of w bits, which s / 2^w of the others pass by chance; its second has one bit for
each key that passes the first: r + s / 2^w. A bit of a level costs 1.13 to 1.17 bits of memory
(docs/decisions/0012-binary-fuse.md), so that all in all

    1.15 * (r * w + r + s / 2^w)  bits, least where 2^w is about 0.69 * s / r.

That is r * (log2(s / r) + 1.91) without the 1.15. Which r of r + s keys are the members takes
log2 C(r + s, r) bits, about r * (log2(s / r) + 1.44): no structure can have less. A cascade of
filters at a rate of 1/2 from the second level on, as CRLite had it first, takes
r * (log2(s / r) + 2.91) of ideal filters, which would cost nothing beyond their information.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import bloomery._native as _native
from bloomery.errors import InvalidParameter
from bloomery.sizing.limits import MAX_CAPACITY, check_error_rate, number, show
from bloomery.suggestions import known_keywords

MIN_EXACT_RATE = 2.0**-32
_MAX_WIDTH = 40


class ExactPlan(NamedTuple):
    """An exact set's size: its two levels, and what it is measured by."""

    members: int
    non_members: int
    # The share of keys of neither side that is answered with a yes.
    error_rate: float
    # Does its first level hold the non-members? Then a key of neither side is mostly a yes.
    holds_non_members: bool
    fingerprint_bits: int  # of the first level; 0: there is none
    first_keys: int
    first_nbytes: int
    second_keys: int  # expected: which of the other side pass the first level is chance
    second_nbytes: int

    @property
    def nbytes(self) -> int:
        """Bytes of memory, and of the file without its header."""
        return self.first_nbytes + self.second_nbytes

    @property
    def least_bits(self) -> float:
        """Bits that telling the members among all keys takes at least: log2 C(all, members)."""
        both = self.members + self.non_members
        logs = math.lgamma(both + 1) - math.lgamma(self.members + 1)
        return max(0.0, (logs - math.lgamma(self.non_members + 1)) / math.log(2))

    @property
    def cascade_bits(self) -> float:
        """Bits of the best cascade of ideal filters, at a rate of 1/2 from its second level on."""
        held, others = sorted((self.members, self.non_members))
        if held == 0:
            return 0.0
        rate = min(1.0, held / (2 * others * math.log(2)))
        return held * math.log2(1 / rate) + 2 * others * rate + held

    def as_dict(self) -> dict[str, Any]:
        """All figures, ready for JSON."""
        return {
            **self._asdict(),
            "nbytes": self.nbytes,
            "least_bits": self.least_bits,
            "cascade_bits": self.cascade_bits,
        }


@known_keywords
def exact_plan(
    members: int, non_members: int, *, error_rate: float | str | None = None
) -> ExactPlan:
    """The size ExactSet takes for so many distinct members and non-members.

    With an `error_rate`, at most that share of keys of neither side is answered with a yes; without
    one it is as small as can be, and holds whichever side takes less.
    """
    counts = _check_count("members", members), _check_count("non_members", non_members)
    rate = None if error_rate is None else check_error_rate(error_rate, MIN_EXACT_RATE)
    plans = _plans(*counts, False, rate)
    if rate is None:
        plans = [*plans, *_plans(*counts, True, None)]
    # Of several that take the same lines of memory, the one that errs least about other keys.
    return min(
        plans, key=lambda plan: (plan.nbytes, plan.holds_non_members, -plan.fingerprint_bits)
    )


def _plans(
    members: int, non_members: int, holds_non_members: bool, rate: float | None
) -> list[ExactPlan]:
    """A plan for each width that is worth a look: beyond some width every bit more costs more."""
    held, others = (non_members, members) if holds_non_members else (members, non_members)

    def candidates() -> Iterator[ExactPlan]:
        for width in range(_MAX_WIDTH + 1):
            chance = 0.0 if held == 0 else 0.5 ** (width + 1)
            if rate is not None and chance > rate:
                continue
            second = 0 if held == 0 else held + math.ceil(others * 0.5**width)
            yield ExactPlan(
                members,
                non_members,
                1 - chance if holds_non_members else chance,
                holds_non_members,
                width,
                held if width else 0,
                _native.static_nbytes(held, width) if width else 0,
                second,
                _native.static_nbytes(second, 1),
            )
            if rate is None and others * 0.5**width < 1 and held > 512:
                return

    return list(candidates())


def _check_count(name: str, value: object) -> int:
    count = number(value)
    if isinstance(count, float) and count.is_integer():
        count = int(count)
    if isinstance(count, int) and 0 <= count <= MAX_CAPACITY:
        return count
    raise InvalidParameter(
        f"{name} must be a whole number from 0 to {MAX_CAPACITY:,}, not {show(value)}"
    )
