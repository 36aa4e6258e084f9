"""The registry's tables, one schema for SQLite and PostgreSQL.

`BloomFilterConfig` has a row for each filter, `BloomFilterStats` one for each sample of one. In
SQL they are written without quotes: PostgreSQL then folds their names to lower case, on making
them as on asking, and SQLite keeps them as they are written here and asks without regard to case.

An `id` is the registry's own: several servers may share one registry, and each numbers its filters
from 1. `server` and `number` are which server's filter a row is. A row that somebody inserted, and
that is no filter yet, has no number.
"""

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

METADATA = MetaData()
# Only an INTEGER is SQLite's own row number; it has 64 bits there too.
_ID = BigInteger().with_variant(Integer(), "sqlite")
_NOW = text("CURRENT_TIMESTAMP")


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
