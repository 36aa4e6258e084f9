"""Back-pressure on input: one budget for all that clients have sent and the server has not yet
done, so that requests that are begun and never ended take no more memory than it allows.

The first bytes of each connection do not count, so small requests are always taken. A request that
would exceed the budget is refused, and what it had is given back.
"""

from __future__ import annotations

from bloomery import _native, errors
from bloomery.service.config.settings import Settings

RESERVED = 64 << 10  # bytes of each connection that do not count
_RATE = 64 << 10  # bytes a second, in which a large request comes at least


def patience(seconds: float, nbytes: int) -> float:
    """How long a request may take that has so many bytes by now: the time that it may take in any
    case, and more for a long one."""
    return seconds + nbytes / _RATE


class InputBudget:
    """The bytes of input that all connections may have together (`max-input-bytes`). Workers charge
    theirs in native code."""

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
    """What one request takes of the budget, until its end."""

    def __init__(self, budget: InputBudget) -> None:
        self._budget = budget
        self._taken = 0

    def weigh(self, nbytes: int) -> None:
        """Take so many bytes in all; ServerUnavailable if there is no room."""
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
