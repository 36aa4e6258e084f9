"""Back-pressure on input: one budget for the bytes that clients of both protocols have sent and the
server has not processed. It bounds the memory of unfinished requests.

The first bytes of each connection do not count, so small requests are always accepted. A request
that exceeds the budget is rejected, and its bytes are released. Workers charge the same
budget in native code (`crates/server/src/input_budget.rs`), and HTTP requests use `Charge`.
"""

from __future__ import annotations

from bloomery import _native, errors
from bloomery.service.config.settings import Settings

RESERVED = 64 << 10  # bytes of each connection that do not count
_RATE = 64 << 10  # bytes per second at which a large request must arrive


def patience(seconds: float, nbytes: int) -> float:
    """Return the seconds in which a request with `nbytes` so far must be complete: `seconds`, plus
    time for its bytes."""
    return seconds + nbytes / _RATE


class InputBudget:
    """The bytes of input that all connections may use together (`max-input-bytes`)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.native = _native.InputBudget(settings.max_input_bytes)

    def charge(self, before: int, after: int) -> bool:
        """Charge `after` bytes instead of `before`; False, without an effect, if the limit is
        exceeded."""
        self.follow_settings()
        return self.native.charge(before, after)

    def follow_settings(self) -> None:
        """Use the limit that is set now."""
        self.native.limit = self._settings.max_input_bytes


class Charge:
    """The share of the budget that one HTTP request uses, until its end."""

    def __init__(self, budget: InputBudget) -> None:
        self._budget = budget
        self._taken = 0

    def weigh(self, nbytes: int) -> None:
        """Charge `nbytes` in total. ServerUnavailable if the budget is exceeded."""
        after = max(nbytes - RESERVED, 0)
        if not self._budget.charge(self._taken, after):
            raise errors.ServerUnavailable(
                "too many large requests at once (max-input-bytes): try again soon"
            )
        self._taken = after

    def __enter__(self) -> Charge:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.charge(self._taken, 0)
        self._taken = 0
