"""Retention of samples: which are old enough to be removed, by the server's clock; none is removed
because that clock jumped."""

from __future__ import annotations

from collections.abc import Mapping

_JUMP = 60.0  # seconds by which two clocks may differ


class Retention:
    """From when on samples are kept.

    A clock that jumps ahead makes all samples look old, and so does one that is wrong when the
    server starts. So after a jump (of more than a minute; or, at the start, since the newest sample
    there is) what was there before goes by the time for which the server has run since, until it
    has run for as long as such samples are kept. Time that goes back removes nothing.
    """

    def __init__(self, now: float, steady: float, newest: float | None) -> None:
        self._own = now if newest is None else min(now, newest)  # the time without the jump …
        self._steady = steady  # … at this of the steady clock
        self._jumped: float | None = None  # when, by the steady clock
        self._ahead = 0.0  # by how much
        self._see(now, steady)

    def before(self, keep: Mapping[int, float], now: float, steady: float) -> dict[int, float]:
        """By span: samples from before this time may go, if they are kept for so many seconds."""
        self._see(now, steady)
        ran = None if self._jumped is None else steady - self._jumped
        if ran is not None and ran >= max(keep.values(), default=0.0):
            self._jumped = None
            self._own, self._steady = now, steady
        own = self._own + steady - self._steady
        return {
            span: (now if ran is None or ran >= seconds else min(own, now)) - seconds
            for span, seconds in keep.items()
        }

    def _see(self, now: float, steady: float) -> None:
        """Compare the clocks."""
        ahead = now - (self._own + steady - self._steady)
        if ahead < 0 or (self._jumped is None and ahead <= _JUMP):
            self._own, self._steady = now, steady  # all steps back, and small ones ahead
            self._ahead = 0.0
        elif abs(ahead - self._ahead) > _JUMP:
            self._jumped, self._ahead = steady, ahead
