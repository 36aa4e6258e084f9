"""The rows of the registry, and how SQL has their numbers and times. Apart from the tables, so that
the server can start before SQLAlchemy is imported."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from bloomery.names import printable

_LARGEST = 2**63 - 1
_FIRST = datetime(1970, 1, 1, tzinfo=timezone.utc)
_YEARS = (datetime(9999, 12, 31, tzinfo=timezone.utc) - _FIRST).total_seconds()


def moment(seconds: float) -> datetime:
    """Seconds since the epoch as SQL keeps them: UTC, from 1970 to the last year there is."""
    return _FIRST + timedelta(seconds=min(max(0.0, seconds), _YEARS))


def seconds_of(at: datetime) -> float:
    """A time of SQL as seconds since the epoch; SQLite's has no zone, and is UTC."""
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()


def sql_integer(number: float) -> int:
    """Return a count as SQL's integers can hold it; the estimate of a full filter is infinite."""
    return _LARGEST if math.isinf(number) else max(0, min(round(number), _LARGEST))


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryRow:
    """One filter as the registry shows it; `id` is the server's number for it, times are epochs."""

    id: int
    name: bytes
    kind: str
    capacity: int
    error_rate: float | None
    num_bits: int
    num_hashes: int | None
    created_at: float
    nbytes: int
    items: int
    layout: str | None = None
    hasher: str | None = None
    seed: int | None = None
    window_seconds: float | None = None
    counter_bits: int | None = None
    expansion: int | None = None
    expires_at: float | None = None

    def values(self) -> dict[str, Any]:
        """Its columns in BloomFilterConfig, in the issue's words, but for those of the writer."""
        secret = self.hasher == "siphash"  # whoever knows the seed can pick keys that collide
        return {
            "number": self.id,
            "name": printable(self.name),
            "kind": self.kind,
            "expected_elements": sql_integer(self.capacity),
            "fp_rate": 1.0 if self.error_rate is None else self.error_rate,
            "m_bits": sql_integer(self.num_bits),
            "k_hashes": self.num_hashes or 0,
            "created_at": moment(self.created_at),
            "nbytes": sql_integer(self.nbytes),
            "items": sql_integer(self.items),
            "layout": self.layout,
            "hasher": self.hasher,
            "seed": None if secret or self.seed is None else str(self.seed),
            "window_seconds": self.window_seconds,
            "counter_bits": self.counter_bits,
            "expansion": self.expansion,
            "expires_at": None if self.expires_at is None else moment(self.expires_at),
        }
