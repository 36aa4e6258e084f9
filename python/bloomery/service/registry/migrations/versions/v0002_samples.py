"""What a sample tells beside the two first figures. Frozen, as every revision."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_TABLE = "BloomFilterStats"
_INDEX = "BloomFilterStats_span_sampled_at"
_COLUMNS: dict[str, sa.types.TypeEngine[Any]] = {
    "seconds": sa.Double(),
    "items": sa.BigInteger(),
    "fill_ratio": sa.Double(),
    "nbytes": sa.BigInteger(),
    "adds_per_second": sa.Double(),
    "checks_per_second": sa.Double(),
    "maybe_share": sa.Double(),
    "canary_probes": sa.BigInteger(),
    "canary_hits": sa.BigInteger(),
    "observed_error_rate": sa.Double(),
    "observed_low": sa.Double(),
    "observed_high": sa.Double(),
    "full_in_seconds": sa.Double(),
}


def upgrade() -> None:
    """Add them, and an index for those whose time is over."""
    # Not by op.add_column, which quotes the table's name; PostgreSQL does not fold those.
    dialect = op.get_bind().dialect
    op.execute(f"ALTER TABLE {_TABLE} ADD COLUMN span INTEGER DEFAULT '0' NOT NULL")
    for name, sort in _COLUMNS.items():
        op.execute(f"ALTER TABLE {_TABLE} ADD COLUMN {name} {sort.compile(dialect)}")
    op.execute(f"CREATE INDEX {_INDEX} ON {_TABLE} (span, sampled_at)")


def downgrade() -> None:
    """Remove them."""
    op.execute(f"DROP INDEX {_INDEX}")
    for name in ["span", *_COLUMNS]:
        op.execute(f"ALTER TABLE {_TABLE} DROP COLUMN {name}")
