"""Looking up keys in SQL: one statement for a batch, in the words of the database, and its rows as
the values of the keys that were asked for."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from bloomery.errors import InvalidSource
from bloomery.guard.sources.sql.database import SqlDatabase
from bloomery.guard.sources.sql.keys import Asked, KeyColumn, postgresql_column

if TYPE_CHECKING:
    import sqlalchemy as sa

_IN = re.compile(r"\bIN\s*(?:\(\s*:keys\s*\)|:keys\b)", re.I)
_KEYS = re.compile(r"(?<![:\w\\]):keys\b")
# Keys a statement. PostgreSQL takes them as one array; others have a limit of parameters.
_MOST = {
    "postgresql": 100_000,
    "sqlite": 30_000 if sqlite3.sqlite_version_info >= (3, 32) else 900,
}
_MOST_ELSEWHERE = 1_000


class SqlLookup:
    """A query with `:keys`, whose first column is the key."""

    def __init__(self, database: SqlDatabase, query: str, as_dict: bool | None = None) -> None:
        """`as_dict`: values are dicts; None: if there are several columns of them."""
        self.database = database
        self._query = query
        self._as_dict = as_dict
        self._most = _MOST.get(database.kind, _MOST_ELSEWHERE)
        # What PostgreSQL says of the columns, learned with the first question.
        self._types: list[int] | None = None
        self._column = KeyColumn()
        self._statements: dict[tuple[str, KeyColumn], sa.TextClause] = {}

    def find(
        self, connection: sa.Connection, keys: Sequence[Any], exact: bool = False
    ) -> dict[Any, Any]:
        """The values of those keys that are there. With `exact`, rows that only the database takes
        for one of them are an error; else they are not looked at."""
        source = self.database.name
        asked = Asked(keys, source)
        words = self.column(connection).all_words(keys, source)
        statement = self.statement(self._query)
        values: dict[Any, Any] = {}
        for start in range(0, len(words), self._most):
            rows = connection.execute(statement, {"keys": words[start : start + self._most]})
            value_of = self._reader(list(rows.keys())[1:])
            for row in rows.all():
                about = asked.about(row[0])
                if exact and not about:
                    raise InvalidSource(
                        f"{source} takes another key for the same (its column is without case, "
                        "say): a filter tells them apart"
                    )
                value = value_of(row)
                for key in about:
                    if key in values and values[key] != value:
                        raise InvalidSource(
                            f"{source} has several rows of one key, with different values: a key "
                            "has one"
                        )
                    values[key] = value
        return values

    def _reader(self, names: list[str]) -> Callable[[Sequence[Any]], Any]:
        """What makes a value of a row, by the names of its columns but the key's."""
        if len(names) > 1 if self._as_dict is None else self._as_dict:
            return lambda row: dict(zip(names, row[1:], strict=True))
        return itemgetter(1) if names else lambda _: True

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that reads."""
        with self._learning(), self.database.reading() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction."""
        with self._learning(), self.database.writing() as connection:
            yield connection

    @contextmanager
    def _learning(self) -> Iterator[None]:
        try:
            yield
        except InvalidSource:
            self._types = None  # the columns may be others now
            raise

    def column(self, connection: sa.Connection) -> KeyColumn:
        """What the key column is."""
        if self._types is None and self.database.kind == "postgresql":
            self._learn(connection)
        return self._column

    def types(self, connection: sa.Connection) -> list[int]:
        """The numbers of PostgreSQL's types of all columns."""
        self.column(connection)
        return self._types or []

    @property
    def is_exact(self) -> bool:
        """Does the column hold what it is given, or else refuse it? Others pad or round."""
        return self._column.cast in ("text", "bytea", "bigint", "uuid")

    def statement(self, text: str) -> sa.TextClause:
        """A statement with `:keys` that this database understands."""
        import sqlalchemy as sa

        statement = self._statements.get((text, self._column))
        if statement is None:
            if self.database.kind == "postgresql":
                array = f"CAST(:keys AS {self._column.cast}[])"
                statement = sa.text(_KEYS.sub(array, _IN.sub("= ANY(:keys)", text)))
            else:
                keys = sa.bindparam("keys", expanding=True, type_=sa.types.NullType())
                statement = sa.text(_IN.sub("IN :keys", text)).bindparams(keys)
            self._statements[text, self._column] = statement
        return statement

    def _learn(self, connection: sa.Connection) -> None:
        """Let the query find nothing, and see what its columns are."""
        import sqlalchemy as sa

        nothing = _KEYS.sub("NULL", _IN.sub("= ANY(:keys)", self._query))
        with connection.execute(sa.text(nothing)) as rows:
            types: list[Any] = [column[1] for column in rows.cursor.description]
        type_name = connection.execute(
            sa.text("SELECT format_type(CAST(:type AS oid), NULL)"), {"type": types[0]}
        ).scalar_one()
        self._column = postgresql_column(types[0], str(type_name), self.database.name)
        self._types = types
