"""A table's statistics out of PostgreSQL's catalogue, as ANALYZE left them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from bloomery.building.postgres import Postgres
from bloomery.building.sql import quoted
from bloomery.database_errors import source_error
from bloomery.errors import InvalidParameter, InvalidSource
from bloomery.signatures.advice import Table, TableColumn

_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")

_TABLE = """
SELECT c.oid, n.nspname, c.relname, c.relkind, c.reltuples, c.relpages,
       EXISTS (SELECT FROM pg_extension WHERE extname = 'bloom')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s::regclass
"""
# A type is supported if bloom has a default operator class for it, or for one that it is
# implicitly the same in binary as (varchar is text). Before the extension is created, what it
# brings: int4 and text. The hash index's own function of a type makes an operator class for bloom.
_COLUMNS = """
WITH supported AS (
  SELECT o.opcintype AS type FROM pg_opclass o JOIN pg_am a ON a.oid = o.opcmethod
  WHERE a.amname = 'bloom' AND o.opcdefault
  UNION SELECT 'int4'::regtype UNION SELECT 'text'::regtype
), columns AS (
  SELECT a.attnum, a.attname, coalesce(nullif(t.typbasetype, 0), t.oid) AS type
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
  WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
)
SELECT c.attname, c.type::regtype::text,
  (SELECT DISTINCT ON (s.attname) ARRAY[s.n_distinct, s.null_frac, s.avg_width]::float8[]
   FROM pg_stats s WHERE s.schemaname = %(schema)s AND s.tablename = %(table)s
   AND s.attname = c.attname ORDER BY s.attname, s.inherited DESC),
  EXISTS (SELECT FROM supported s WHERE s.type = c.type OR EXISTS (
    SELECT FROM pg_cast x WHERE x.castsource = c.type AND x.casttarget = s.type
    AND x.castmethod = 'b' AND x.castcontext = 'i')),
  (SELECT p.amproc::regprocedure::text FROM pg_opclass o
   JOIN pg_am a ON a.oid = o.opcmethod AND a.amname = 'hash'
   JOIN pg_amproc p ON p.amprocfamily = o.opcfamily AND p.amprocnum = 1
     AND p.amproclefttype = o.opcintype AND p.amprocrighttype = o.opcintype
   WHERE o.opcdefault AND o.opcintype = c.type)
FROM columns c ORDER BY c.attnum
"""
_INDEXES = """
SELECT pg_get_indexdef(i.indexrelid), pg_relation_size(i.indexrelid)
FROM pg_index i WHERE i.indrelid = %s ORDER BY i.indexrelid
"""


def read_table(url: str, table: str, password: str | None = None) -> Table:
    """The statistics of a table, `name` or `schema.name`, of the database at a URL."""
    scheme = url.partition("://")[0]
    if scheme not in _SCHEMES or "://" not in url:
        raise InvalidParameter(
            "the database must be PostgreSQL's: postgresql://user@host:5432/database"
        )
    database = Postgres(url, password)
    with _translated(database), contextlib.closing(database.connect()) as connection:
        name = quoted(*table.split("."))
        row = connection.execute(_TABLE, [name]).fetchone()
        oid, schema, relation, kind, rows, pages, extension = row
        full = quoted(schema, relation)
        if kind not in ("r", "p", "m"):
            raise InvalidSource(f"{full} is no table: name a table or a materialized view")
        if rows < 0:
            raise InvalidSource(f"{full} has no statistics: run ANALYZE {full}, and again")
        asked = {"oid": oid, "schema": schema, "table": relation}
        described = connection.execute(_COLUMNS, asked).fetchall()
        indexes = connection.execute(_INDEXES, [oid]).fetchall()
    if rows and not any(statistics for _, _, statistics, _, _ in described):
        raise InvalidSource(
            f"{full} has no statistics that this user may see: run ANALYZE {full}, or ask as a "
            "user who may read the table"
        )
    return Table(
        name=full,
        rows=float(rows),
        pages=max(0, int(pages)),
        columns=[_column(float(rows), *row) for row in described],
        indexes=[f"{definition} ({size:,} bytes)" for definition, size in indexes],
        extension=bool(extension),
    )


def _column(
    rows: float,
    name: str,
    kind: str,
    statistics: list[float] | None,
    supported: bool,
    function: str | None,
) -> TableColumn:
    # A column without statistics is taken for one whose values are all different.
    distinct, nulls, width = statistics or [-1.0, 0.0, 8.0]
    distinct = -distinct * rows if distinct < 0 else distinct
    statement = None
    if function is not None and not supported:
        statement = (
            f"CREATE OPERATOR CLASS {quoted('bloom_' + kind.replace(' ', '_') + '_ops')} DEFAULT "
            f"FOR TYPE {kind} USING bloom AS OPERATOR 1 =, FUNCTION 1 {function}"
        )
    return TableColumn(name, kind, max(1.0, distinct), nulls, width, supported, statement)


@contextlib.contextmanager
def _translated(database: Postgres) -> Iterator[Any]:
    try:
        yield
    except database.errors as failure:
        raise source_error(database.name, failure, database.secrets) from None
