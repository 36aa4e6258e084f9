"""Maybes of a filter of which nobody knows whether they were wrong: the source did not answer.

To count the noes of that time, and not these, would flatter the filter. As many of them are taken
for wrong as of the maybes that the source did answer, and the interval is as wide as all or none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bloomery.filters import BloomFilter, CuckooFilter

__all__ = ["Unconfirmed"]

_KEYS = 1 << 16


class Unconfirmed:
    """Those of one half of a window, each key once; and what the source said of others."""

    def __init__(self) -> None:
        self.count = 0
        # Maybes that the source answered since the first it did not, and those that it denied.
        self.asked = self.absent = 0
        self._keys: CuckooFilter | None = None  # most windows have none
        self._answered: BloomFilter | None = None

    def __contains__(self, key: Any) -> bool:
        return self._keys is not None and key in self._keys

    def add(self, key: Any) -> None:
        """The source did not say."""
        if self.count < _KEYS and key not in self:
            if self._keys is None:
                self._keys, self._answered = CuckooFilter(_KEYS, 0.001), BloomFilter(_KEYS, 0.01)
            self._keys.add(key)
            self.count += 1

    def answered(self, keys: Iterable[Any], absent: bool) -> None:
        """The source said of these whether they are there; each counts once."""
        if self._answered is not None:
            for key in keys:
                new = self._answered.add(key)
                self.asked += new
                self.absent += new and absent

    def settle(self, key: Any) -> bool:
        """Now it is known; False if it was not one of these."""
        if key not in self:
            return False
        assert self._keys is not None
        self._keys.discard(key)
        self.count -= 1
        return True
