"""Both tables, as the first release has them. Frozen: later changes are revisions of their own."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.sql.elements import quoted_name

revision = "0001"
down_revision = None

# Not by op.create_table: its foreign keys quote the name, and PostgreSQL does not fold those.
_METADATA = sa.MetaData()
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_CONFIG = sa.Table(
    quoted_name("BloomFilterConfig", quote=False),
    _METADATA,
    sa.Column("id", _ID, primary_key=True, autoincrement=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("expected_elements", sa.BigInteger, nullable=False),
    sa.Column("fp_rate", sa.Double),
    sa.Column("m_bits", sa.BigInteger, nullable=False),
    sa.Column("k_hashes", sa.Integer),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("layout", sa.Text),
    sa.Column("hasher", sa.Text),
    sa.Column("seed", sa.Text),
    sa.Column("window_seconds", sa.Double),
    sa.Column("counter_bits", sa.Integer),
    sa.Column("expansion", sa.Integer),
    sa.Column("nbytes", sa.BigInteger, nullable=False),
    sa.Column("items", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.DateTime(timezone=True)),
    sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("server", sa.Text, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("server", "number"),
    sqlite_autoincrement=True,
)
_STATS = sa.Table(
    quoted_name("BloomFilterStats", quote=False),
    _METADATA,
    sa.Column("id", _ID, primary_key=True, autoincrement=True),
    sa.Column("filter_id", _ID, sa.ForeignKey(_CONFIG.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("estimated_elements", sa.BigInteger, nullable=False),
    sa.Column("false_positive_estimate", sa.Double, nullable=False),
    sa.Column("sampled_at", sa.DateTime(timezone=True), nullable=False),
)
sa.Index(
    quoted_name("BloomFilterStats_filter_id_sampled_at", quote=False),
    _STATS.c.filter_id,
    _STATS.c.sampled_at.desc(),
)


def upgrade() -> None:
    """Make them."""
    _METADATA.create_all(op.get_bind(), checkfirst=False)


def downgrade() -> None:
    """Remove them; the server's filters are elsewhere, and fill them again."""
    _METADATA.drop_all(op.get_bind(), checkfirst=False)
