"""`SqlSource`: a table, or a query, as the source of truth."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bloomery.errors import InvalidParameter
from bloomery.guard.sources.sql.database import SqlDatabase
from bloomery.guard.sources.sql.keys import key_of
from bloomery.guard.sources.sql.lookup import SqlLookup
from bloomery.guard.sources.sql.writes import SqlWrites

if TYPE_CHECKING:
    import sqlalchemy as sa


class SqlSource:
    """A table, or a query, of any database that SQLAlchemy can reach; PostgreSQL and SQLite are the
    ones that are tested.

        SqlSource("postgresql://user:password@host/shop", table="users", key="name", value="id")
        SqlSource(url, query="SELECT name, id, mail FROM users WHERE name IN :keys")

    A batch is one query. One column of values is the value, several are a dict by their names, none
    is True. A table can also be written to (`add`, `remove`), counted and read from end to end
    (`count`, `batches`); a query is for looking up.
    """

    def __init__(
        self,
        database: str | sa.Engine,
        *,
        table: str | None = None,
        key: str | None = None,
        value: str | Sequence[str] | None = None,
        query: str | None = None,
        once: str | None = None,
        timeout: float = 4.0,
        pool_size: int = 10,
        name: str | None = None,
    ) -> None:
        """`timeout` (seconds) and `pool_size` are for a URL alone: an engine brings its own. The
        former is less than a guard's, so that the database gives up first, and says why.

        With `once`, the name of a table that is made if it is missing, a write is done once for
        each idempotency key: both are one transaction. Its rows may be deleted once they are old.
        """
        if (table is None) == (query is None):
            raise InvalidParameter("a SqlSource needs a table=… and its key=…, or else a query=…")
        if query is not None:
            _check_query(query, key=key, value=value, once=once)
        elif not key:
            raise InvalidParameter("a table needs key=…, the column that holds the keys")
        if type(timeout) not in (int, float) or not 0 < timeout < 86400:
            raise InvalidParameter(f"timeout is {timeout!r}, must be a number of seconds above 0")
        if type(pool_size) is not int or pool_size < 1:
            raise InvalidParameter(f"pool_size is {pool_size!r}, must be an int above 0")
        self._database = SqlDatabase(database, timeout, pool_size)
        self.name = name or f"{table or 'query'} at {self._database.place}"
        self._database.name = f"the source {self.name}"
        if query is not None:
            self._lookup = SqlLookup(self._database, query)
        else:
            assert table is not None
            names = value if value is None or isinstance(value, str) else list(value)
            self._use(table, key or "", names, once)

    def _use(self, table: str, key: str, value: str | list[str] | None, once: str | None) -> None:
        quote = self._database.quoted

        def placed(name: str) -> str:
            return ".".join(map(quote, name.split(".")))

        columns = [quote(column) for column in ([value] if isinstance(value, str) else value or [])]
        place, column = placed(table), quote(key)
        query = f"SELECT {', '.join([column, *columns])} FROM {place} WHERE {column} IN :keys"
        self._lookup = SqlLookup(self._database, query, as_dict=isinstance(value, list))
        self._all = f"SELECT {column} FROM {place} WHERE {column} IS NOT NULL"
        named = None if once is None else placed(once)
        writes = SqlWrites(self._lookup, place, column, columns, value, named)
        self.add: Callable[[Any, Any, str], bool | None] = writes.add
        self.remove: Callable[[Any, str], bool | None] = writes.remove
        self.count: Callable[[], int] = self._count
        self.batches: Callable[..., Generator[list[Any], None, None]] = self._batches

    def get_many(self, keys: Sequence[Any]) -> Mapping[Any, Any]:
        """Return the values of those keys that are there."""
        if not keys:
            return {}
        with self._lookup.reading() as connection:
            return self._lookup.find(connection, keys)

    def _count(self) -> int:
        """How many keys there are."""
        import sqlalchemy as sa

        with self._database.streaming(1) as connection:
            return int(
                connection.execute(
                    sa.text(f"SELECT count(*) FROM ({self._all}) AS keys")
                ).scalar_one()
            )

    def _batches(self, size: int = 10_000) -> Generator[list[Any], None, None]:
        """All keys, as they are when the reading begins; so many at a time, in constant memory.

        A SQLite file that is not in WAL mode cannot be written meanwhile.
        """
        import sqlalchemy as sa

        with self._lookup.reading() as connection:
            column = self._lookup.column(connection)
        with (
            self._database.streaming(size) as connection,
            connection.execute(sa.text(self._all)) as rows,
        ):
            for batch in rows.scalars().partitions(size):
                column.check_held(batch, self._database.name)
                # Of a numeric column all are Decimals, of others none.
                yield list(map(key_of, batch)) if isinstance(batch[0], Decimal) else list(batch)

    def close(self) -> None:
        """Let go of the connections, unless they are those of an engine that was given."""
        self._database.close()

    def __repr__(self) -> str:
        return f"<SqlSource {self.name}>"


def _check_query(query: str, **given: Any) -> None:
    unused = [name for name, value in given.items() if value is not None]
    if unused:
        raise InvalidParameter(
            f"{' and '.join(unused)} go with a table: of a query the first column is the key, the "
            "others are the value, and nothing is written"
        )
    if ":keys" not in query:
        raise InvalidParameter(
            "the query has no :keys, must be as in SELECT name, id FROM users WHERE name IN :keys"
        )
