"""The registry's tables, one schema for SQLite and PostgreSQL, and the rows that go into them.

`BloomFilterConfig` has a row for each filter, `BloomFilterStats` one for each sample of one. In
SQL they are written without quotes: PostgreSQL then folds their names to lower case, on making
them as on asking, and SQLite keeps them as they are written here and asks without regard to case.

An `id` is the registry's own: several servers may share one registry, and each numbers its filters
from 1. `server` and `number` are which server's filter a row is. A row that somebody inserted, and
that is no filter yet, has no number.
"""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.sql.elements import quoted_name

from bloomery.names import printable

METADATA = MetaData()
# Only an INTEGER is SQLite's own row number; it has 64 bits there too.
_ID = BigInteger().with_variant(Integer(), "sqlite")
_NOW = text("CURRENT_TIMESTAMP")
_LARGEST = 2**63 - 1
_FIRST = datetime(1970, 1, 1, tzinfo=timezone.utc)
_YEARS = (datetime(9999, 12, 31, tzinfo=timezone.utc) - _FIRST).total_seconds()


def unquoted(name: str) -> quoted_name:
    """A name that is never quoted, mixed case or not."""
    return quoted_name(name, quote=False)


CONFIG = Table(
    unquoted("BloomFilterConfig"),
    METADATA,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False, unique=True),
    Column("expected_elements", BigInteger, nullable=False),
    Column("fp_rate", Double, nullable=False),
    Column("m_bits", BigInteger, nullable=False, server_default="0"),
    Column("k_hashes", Integer, nullable=False, server_default="0"),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=_NOW),
    Column("kind", Text, nullable=False, server_default="bloom"),
    Column("layout", Text),
    Column("hasher", Text),
    Column("seed", Text),  # has up to 64 bits without a sign: too many for SQL's integers
    Column("window_seconds", Double),
    Column("counter_bits", Integer),
    Column("expansion", Integer),
    Column("nbytes", BigInteger, nullable=False, server_default="0"),
    Column("items", BigInteger, nullable=False, server_default="0"),
    Column("expires_at", DateTime(timezone=True)),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=_NOW),
    Column("server", Text),
    Column("number", BigInteger),
    Column("problem", Text),
    UniqueConstraint("server", "number"),
    sqlite_autoincrement=True,  # an id is never given to a second filter, as on PostgreSQL
)

STATS = Table(
    unquoted("BloomFilterStats"),
    METADATA,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("filter_id", _ID, ForeignKey(CONFIG.c.id, ondelete="CASCADE"), nullable=False),
    Column("estimated_elements", BigInteger),
    Column("false_positive_estimate", Double),
    Column("sampled_at", DateTime(timezone=True), nullable=False, server_default=_NOW),
    Column("span", Integer, nullable=False, server_default="0"),
    Column("seconds", Double),
    Column("items", BigInteger),
    Column("fill_ratio", Double),
    Column("nbytes", BigInteger),
    Column("adds_per_second", Double),
    Column("checks_per_second", Double),
    Column("maybe_share", Double),
    Column("canary_probes", BigInteger),
    Column("canary_hits", BigInteger),
    Column("observed_error_rate", Double),
    Column("observed_low", Double),
    Column("observed_high", Double),
    Column("full_in_seconds", Double),
    Column("observed_by", Text),
)
Index("idx_bfs_filter_sampled", STATS.c.filter_id, STATS.c.sampled_at)
# For those whose time is over.
Index(unquoted("BloomFilterStats_span_sampled_at"), STATS.c.span, STATS.c.sampled_at)


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
