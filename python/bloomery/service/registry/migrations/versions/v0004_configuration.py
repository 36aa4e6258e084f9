"""Rows that anybody may insert: defaults, and columns that are null until a server has taken the
row; which figures are always known; the index by its usual name. Frozen, as every revision."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.sql.elements import quoted_name

revision = "0004"
down_revision = "0003"

_METADATA = sa.MetaData()
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NOW = sa.text("CURRENT_TIMESTAMP")
_CONFIG = sa.Table(
    quoted_name("BloomFilterConfig", quote=False),
    _METADATA,
    sa.Column("id", _ID, primary_key=True, autoincrement=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("expected_elements", sa.BigInteger, nullable=False),
    sa.Column("fp_rate", sa.Double, nullable=False),
    sa.Column("m_bits", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("k_hashes", sa.Integer, nullable=False, server_default="0"),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=_NOW),
    sa.Column("kind", sa.Text, nullable=False, server_default="bloom"),
    sa.Column("layout", sa.Text),
    sa.Column("hasher", sa.Text),
    sa.Column("seed", sa.Text),
    sa.Column("window_seconds", sa.Double),
    sa.Column("counter_bits", sa.Integer),
    sa.Column("expansion", sa.Integer),
    sa.Column("nbytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("items", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("expires_at", sa.DateTime(timezone=True)),
    sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=_NOW),
    sa.Column("server", sa.Text),
    sa.Column("number", sa.BigInteger),
    sa.Column("problem", sa.Text),
    sa.UniqueConstraint("server", "number"),
    sqlite_autoincrement=True,
)
_STATS = sa.Table(
    quoted_name("BloomFilterStats", quote=False),
    _METADATA,
    sa.Column("id", _ID, primary_key=True, autoincrement=True),
    sa.Column("filter_id", _ID, sa.ForeignKey(_CONFIG.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("estimated_elements", sa.BigInteger),
    sa.Column("false_positive_estimate", sa.Double),
    sa.Column("sampled_at", sa.DateTime(timezone=True), nullable=False, server_default=_NOW),
    sa.Column("span", sa.Integer, nullable=False, server_default="0"),
    sa.Column("seconds", sa.Double),
    sa.Column("items", sa.BigInteger),
    sa.Column("fill_ratio", sa.Double),
    sa.Column("nbytes", sa.BigInteger),
    sa.Column("adds_per_second", sa.Double),
    sa.Column("checks_per_second", sa.Double),
    sa.Column("maybe_share", sa.Double),
    sa.Column("canary_probes", sa.BigInteger),
    sa.Column("canary_hits", sa.BigInteger),
    sa.Column("observed_error_rate", sa.Double),
    sa.Column("observed_low", sa.Double),
    sa.Column("observed_high", sa.Double),
    sa.Column("full_in_seconds", sa.Double),
    sa.Column("observed_by", sa.Text),
)
_INDEX = "BloomFilterStats_filter_id_sampled_at"
sa.Index("idx_bfs_filter_sampled", _STATS.c.filter_id, _STATS.c.sampled_at)
sa.Index(
    quoted_name("BloomFilterStats_span_sampled_at", quote=False), _STATS.c.span, _STATS.c.sampled_at
)

_POSTGRESQL = (
    "UPDATE BloomFilterConfig SET fp_rate = COALESCE(fp_rate, 1), k_hashes = COALESCE(k_hashes, 0)"
    " WHERE fp_rate IS NULL OR k_hashes IS NULL",
    "ALTER TABLE BloomFilterConfig"
    " ALTER fp_rate SET NOT NULL, ALTER k_hashes SET NOT NULL,"
    " ALTER server DROP NOT NULL, ALTER number DROP NOT NULL,"
    " ALTER m_bits SET DEFAULT '0', ALTER k_hashes SET DEFAULT '0', ALTER nbytes SET DEFAULT '0',"
    " ALTER items SET DEFAULT '0', ALTER kind SET DEFAULT 'bloom',"
    " ALTER created_at SET DEFAULT CURRENT_TIMESTAMP,"
    " ALTER updated_at SET DEFAULT CURRENT_TIMESTAMP, ADD problem TEXT",
    "ALTER TABLE BloomFilterStats ALTER estimated_elements DROP NOT NULL,"
    " ALTER false_positive_estimate DROP NOT NULL,"
    " ALTER sampled_at SET DEFAULT CURRENT_TIMESTAMP",
    f"DROP INDEX {_INDEX}",
    "CREATE INDEX idx_bfs_filter_sampled ON BloomFilterStats (filter_id, sampled_at)",
)


def upgrade() -> None:
    """Change both tables; all rows stay."""
    if op.get_bind().dialect.name == "sqlite":
        _copy_in_sqlite()
    else:
        for statement in _POSTGRESQL:
            op.execute(statement)


def _copy_in_sqlite() -> None:
    """SQLite alters no column: the rows go into new tables. Samples refer to filters ON DELETE
    CASCADE, so theirs is the table that is dropped first."""
    for name in (_INDEX, "BloomFilterStats_span_sampled_at"):
        op.execute(f"DROP INDEX {name}")
    op.execute("PRAGMA legacy_alter_table = ON")  # somebody's views stay views of these names
    for table in (_CONFIG, _STATS):
        op.execute(f"ALTER TABLE {table.name} RENAME TO old_{table.name}")
    op.execute("PRAGMA legacy_alter_table = OFF")
    _METADATA.create_all(op.get_bind(), checkfirst=False)
    # A shell that deletes a filter does not cascade unless it is told to: no sample without one.
    for table, rows in ((_CONFIG, ""), (_STATS, f" WHERE filter_id IN (SELECT id FROM {_CONFIG})")):
        columns = ", ".join(column.name for column in table.c if column.name != "problem")
        known = columns.replace("fp_rate", "COALESCE(fp_rate, 1)")
        known = known.replace("k_hashes", "COALESCE(k_hashes, 0)")
        op.execute(
            f"INSERT INTO {table.name} ({columns}) SELECT {known} FROM old_{table.name}{rows}"
        )
    # An id is never given to a second filter, also if the last one is gone.
    op.execute("DELETE FROM sqlite_sequence WHERE name = 'BloomFilterConfig'")
    op.execute(
        "INSERT INTO sqlite_sequence (name, seq) SELECT 'BloomFilterConfig', seq"
        " FROM sqlite_sequence WHERE name = 'old_BloomFilterConfig'"
    )
    for table in (_STATS, _CONFIG):
        op.execute(f"DROP TABLE old_{table.name}")


def downgrade() -> None:
    """Not possible: rows that no server has taken have no place in the tables before."""
    raise NotImplementedError(downgrade.__doc__)
