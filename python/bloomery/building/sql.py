"""Rows of a database: one query, read in one transaction that sees one moment.

A build goes on by the value of a column (`order_by`), never by how many rows were read (OFFSET) nor
by where they lie (PostgreSQL's ctid, SQLite's rowid): rows that are deleted, or moved by an update
or a vacuum, shift all behind them, and those that shift past the position would never be read. The
filter would deny keys that are in the table.

What a finished build holds: every row that was there when the first run began and whose
`order_by` did not change since. What came later may be there or not.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

from bloomery.building.rows import Batch
from bloomery.database_errors import source_error
from bloomery.errors import BloomeryError, CorruptData, InvalidParameter, InvalidSource

PLACEHOLDER = "\0"  # of a parameter in a query: the one character that no query has

# Small enough to be held several times over, large enough that a round trip is nothing: 2,000 and
# 50,000 were as fast. Fetching on a second thread was slower: both halves need the interpreter.
_BATCH = 10_000
# A restart of PostgreSQL takes seconds; what takes longer is for a person to see.
_WAITS = (0.5, 1, 2, 4, 8, 16)
# Values of an ordering column as text, and back. Exact classes: a datetime is a date too. No
# floats: PostgreSQL writes a float4 as the shortest text that reads back as the same float4, and as
# a float8 that text may be larger: other rows of that very value would not be read, and be missing.
_POSITIONS: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    int: (str, int),
    str: (str, str),
    bytes: (bytes.hex, bytes.fromhex),
    UUID: (str, UUID),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    Decimal: (str, Decimal),
}
_POSITION_NAMES = {cls.__name__: cls for cls in _POSITIONS}


class Dialect(Protocol):
    """What differs between databases."""

    name: str  # its URL, without secrets
    secrets: Sequence[object]  # what its errors must not show
    lost: tuple[type[Exception], ...]  # errors after which reading is tried again
    errors: tuple[type[Exception], ...]  # all of the driver's

    def connect(self) -> Any:
        """A connection, in a transaction that sees one moment and changes nothing."""

    def columns(self, connection: Any, sql: str) -> dict[str, str]:
        """The columns of a query, each with why it cannot be a key; empty: it can."""

    def primary_key(self, connection: Any, table: str) -> str | None:
        """The table's primary key if that is one column: unique, and never NULL."""

    def estimate(self, connection: Any, sql: str) -> int | None:
        """How many rows a query gives, probably."""

    def fetch(self, connection: Any, sql: str, values: list[Any], size: int) -> Iterator[list[Any]]:
        """The rows of a query, some at a time, without holding all."""


class SqlRows:
    """The rows of a query or a table; several columns are a tuple."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        query: str | None = None,
        table: str | None = None,
        columns: Sequence[str] = (),
        order_by: str | None = None,
    ) -> None:
        if (query is None) == (table is None):
            raise InvalidParameter("a database takes a query, or a table with its column")
        if table is not None and not columns:
            raise InvalidParameter(f"say which column of the table {table} holds the keys")
        self.name = dialect.name
        self._dialect = dialect
        self._asked = {"query": query, "table": table, "columns": list(columns)}
        self._columns = list(columns)
        self._order = order_by
        self._unique = False
        if table is not None:
            self._from = f"{quoted(*table.split('.'))} AS bloomery_rows"
        else:
            assert query is not None
            # On lines of its own: it may end in a comment.
            self._from = f"(\n{query.strip().rstrip(';')}\n) AS bloomery_rows"
        self._connection: Any = None
        with self._translated():
            self._connection = dialect.connect()
            try:
                self._check(table)
            except BaseException:
                self.close()
                raise

    def _check(self, table: str | None) -> None:
        """Every mistake that can be seen before rows are read."""
        columns = self._dialect.columns(self._connection, f"SELECT * FROM {self._from} LIMIT 0")
        if self._order is None and table is not None:
            self._order = self._dialect.primary_key(self._connection, table)
            self._unique = self._order is not None
        elif self._order in columns and len(columns) > 1 and not self._columns:
            raise InvalidParameter(
                f"the query gives {', '.join(columns)}: say which of them are the key"
            )
        self._columns = self._columns or list(columns)
        for name in [*self._columns, *([self._order] if self._order else [])]:
            if name not in columns:
                raise InvalidSource(f"there is no column {name!r}, only {', '.join(columns)}")
        for name in self._columns:
            if columns[name]:
                raise InvalidSource(f"the column {name!r} {columns[name]}")

    @property
    def identity(self) -> dict[str, Any]:
        """Where they are and how they are asked for."""
        return {"source": self.name, **self._asked, "order_by": self._order}

    @property
    def unresumable(self) -> str:
        """Without an order there is no position."""
        return "" if self._order else "without --order-by (order_by) reading begins anew"

    def count(self) -> int | None:
        """Ask for the number, at the same moment as the rows will be read."""
        with self._translated():
            sql = f"SELECT count(*) FROM {self._from}"
            ((number,),) = next(self._dialect.fetch(self._connection, sql, [], 1))
        return int(number)

    def estimate(self) -> int | None:
        """The number of rows that the planner expects; an exact count where there is no planner."""
        with self._translated():
            estimated = self._dialect.estimate(self._connection, f"SELECT * FROM {self._from}")
        return self.count() if estimated is None else estimated

    def batches(self, after: Any = None) -> Generator[Batch, None, None]:
        """Read them. With an order, a connection that is lost is made anew, and goes on."""
        position, left = after, list(_WAITS)
        while True:
            try:
                if self._connection is None:
                    self._connection = self._dialect.connect()
                for batch in self._read(position):
                    position, left = batch.position, list(_WAITS)
                    yield batch
                return
            except self._dialect.lost as failure:
                self.close()
                if not self._order or not left:
                    raise self._error(failure) from None
                time.sleep(left.pop(0))
            except self._dialect.errors as failure:
                raise self._error(failure) from None

    def _read(self, position: Any) -> Iterator[Batch]:
        keys = ", ".join(map(_column, self._columns))
        if self._order is None:
            yield from self._fetch(f"SELECT {keys} FROM {self._from}", [], position)
            return
        order = _column(self._order)
        select = f"SELECT {keys}, {order} FROM {self._from} WHERE {order}"
        if position is None:
            where, values = "IS NOT NULL", []
        else:
            # Rows of equal value need not all have been read; adding one again changes nothing,
            # but in kinds that count: for these it had better be unique.
            where = f"{'>' if self._unique else '>='} {PLACEHOLDER}"
            values = [decode_position(position)]
        for batch in self._fetch(f"{select} {where} ORDER BY {order}", values, position):
            position = batch.position
            yield batch
        # Last, and again after every interruption: they have no place in any order.
        yield from self._fetch(f"{select} IS NULL", [], position)

    def _fetch(self, sql: str, values: list[Any], position: Any) -> Iterator[Batch]:
        width = len(self._columns)
        for rows in self._dialect.fetch(self._connection, sql, values, _BATCH):
            if self._order is not None and rows[-1][-1] is not None:
                position = encode_position(self._order, rows[-1][-1])
            if width == 1:
                keys = [row[0] for row in rows]
                nulls = keys.count(None)
                if nulls:
                    keys = [key for key in keys if key is not None]
            else:
                keys = [key for row in rows if None not in (key := row[:width])]
                nulls = len(rows) - len(keys)
            yield Batch(keys, len(rows), nulls, position)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._dialect.errors as failure:
            raise self._error(failure) from None

    def _error(self, failure: Exception) -> BloomeryError:
        return source_error(self.name, failure, self._dialect.secrets)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*self._dialect.errors):
                connection.close()


def _column(name: str) -> str:
    """A column of ours. Without what is before the dot, SQLite would take a wrong name for text."""
    return f"bloomery_rows.{quoted(name)}"


def quoted(*names: str) -> str:
    """A name as SQL takes it, whatever is in it; several are a table's schema and the table."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def encode_position(column: str, value: Any) -> list[str]:
    """A value of an ordering column as JSON has it: its type and its text."""
    if type(value) not in _POSITIONS:
        raise InvalidSource(
            f"cannot order by the column {column!r}: its values come as {type(value).__name__}; "
            "order by whole numbers, decimals, text, UUIDs or times"
        )
    return [type(value).__name__, _POSITIONS[type(value)][0](value)]


def decode_position(position: Any) -> Any:
    """The value of such a position, of the same type."""
    try:
        name, text = position
        return _POSITIONS[_POSITION_NAMES[name]][1](text)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
        raise CorruptData("the position to go on from is damaged: begin anew") from None
