"""Who observed an error rate: the canary, or look-ups. Frozen, as every revision."""

from alembic import op

revision = "0003"
down_revision = "0002"

_TABLE = "BloomFilterStats"


def upgrade() -> None:
    """Add the column; in older rows it is null, and it was the canary."""
    # Not by op.add_column, which quotes the table's name; PostgreSQL does not fold those.
    op.execute(f"ALTER TABLE {_TABLE} ADD COLUMN observed_by TEXT")


def downgrade() -> None:
    """Remove it."""
    op.execute(f"ALTER TABLE {_TABLE} DROP COLUMN observed_by")
