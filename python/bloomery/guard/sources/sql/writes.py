"""Writing to a table: a value for a key, or a key taken out, each one transaction.

Nothing is tried again: a second try would find what the first one wrote, and call it old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from bloomery.errors import InvalidSource
from bloomery.guard.sources.sql.database import SqlDatabase
from bloomery.guard.sources.sql.lookup import SqlLookup

if TYPE_CHECKING:
    import sqlalchemy as sa

# Others may delete and insert the same row between two statements of ours.
_ROUNDS = 3
_JSON: dict[int | None, str] = {114: "Json", 3802: "Jsonb"}  # PostgreSQL's types, psycopg's names


class SqlWrites:
    """A table that is written to; names are quoted where they need it."""

    def __init__(
        self,
        lookup: SqlLookup,
        table: str,
        key: str,
        columns: Sequence[str],
        names: Sequence[str] | str | None,
        once: str | None,
    ) -> None:
        """`names` as the columns are called in a value: a list of them for a dict, one for a value
        that is no dict, or none."""
        self._lookup, self._database = lookup, lookup.database
        self._names = names
        placeholders = [f":v{number}" for number in range(len(columns))]
        sets = ", ".join(
            f"{column} = {placeholder}"
            for column, placeholder in zip(columns, placeholders, strict=True)
        )
        where = f"WHERE {key} IN :keys"
        self._find = SqlLookup(self._database, f"SELECT {key} FROM {table} {where}")
        self._update = f"UPDATE {table} SET {sets} {where}" if columns else None
        self._delete = f"DELETE FROM {table} {where}"
        self._insert = _insert(table, [key, *columns], [":key", *placeholders])
        self._once = None if once is None else _Once(self._database, once)

    def add(self, key: Any, value: Any, idempotency_key: str) -> bool | None:
        """Write a value: True if the key is new; None if this was done before."""
        if self._once is not None:
            self._once.make()
        with self._find.writing() as connection:
            if self._once is not None and not self._once.first(connection, idempotency_key):
                return None
            values = self._values(connection, value)
            words = self._words(connection, key)
            if not words:
                raise InvalidSource(
                    f"{self._database.name} cannot hold this key: its column has no such values"
                )
            for _ in range(_ROUNDS):
                if self._is_there(connection, key):
                    if self._update is None:
                        return False
                    update = self._find.statement(self._update)
                    if connection.execute(update, {"keys": words, **values}).rowcount:
                        return False
                elif _inserted(connection, self._insert, {"key": words[0], **values}):
                    if not (self._find.is_exact or self._is_there(connection, key)):
                        raise InvalidSource(
                            f"{self._database.name} took the key for another: its column is of "
                            "another type than the key"
                        )
                    return True
            raise InvalidSource(
                f"{self._database.name} refuses the row: what must be unique beside its key is "
                "there already, in another row"
            )

    def remove(self, key: Any, idempotency_key: str) -> bool | None:
        """Take a key out: True if it was there; None if this was done before."""
        if self._once is not None:
            self._once.make()
        with self._find.writing() as connection:
            if self._once is not None and not self._once.first(connection, idempotency_key):
                return None
            words = self._words(connection, key)
            if not words or not self._is_there(connection, key):
                return False
            delete = self._find.statement(self._delete)
            return bool(connection.execute(delete, {"keys": words}).rowcount)

    def _words(self, connection: sa.Connection, key: Any) -> list[Any]:
        return self._find.column(connection).words(key, self._database.name)

    def _is_there(self, connection: sa.Connection, key: Any) -> bool:
        return bool(self._find.find(connection, [key], exact=True))

    def _values(self, connection: sa.Connection, value: Any) -> dict[str, Any]:
        names = self._names
        if names is None:
            return {}
        if isinstance(names, str):
            names, value = [names], {names: value}
        if not isinstance(value, Mapping) or set(value) != set(names):
            raise InvalidSource(
                f"{self._database.name} was given a value that is no dict of {', '.join(names)}"
            )
        values = [value[name] for name in names]
        if any(isinstance(one, (dict, list)) for one in values):
            types = self._lookup.types(connection)[1:]
            values = [_json(one, type_code) for one, type_code in zip_longest(values, types)]
        return {f"v{number}": one for number, one in enumerate(values)}


def _json(value: Any, type_code: int | None) -> Any:
    """A value for PostgreSQL's column of this type: its driver does not know JSON from an array."""
    if type_code not in _JSON:
        return value
    from psycopg.types import json

    return getattr(json, _JSON[type_code])(value)


class _Once:
    """A table of the idempotency keys whose writes are done."""

    def __init__(self, database: SqlDatabase, table: str) -> None:
        self._database = database
        self._table = table
        self._made = False
        self._insert = _insert(table, ["idempotency_key"], [":key"])

    def make(self) -> None:
        """Make the table if it is missing. Whoever may not make tables can have it made before."""
        if self._made:
            return
        try:
            self._probe()
        except InvalidSource:
            zone = " WITH TIME ZONE" if self._database.kind == "postgresql" else ""
            try:
                self._run(
                    f"CREATE TABLE {self._table} (idempotency_key VARCHAR(255) PRIMARY KEY, "
                    f"done_at TIMESTAMP{zone} DEFAULT CURRENT_TIMESTAMP NOT NULL)"
                )
            except InvalidSource as problem:
                try:  # another may have been faster
                    self._probe()
                except InvalidSource:
                    raise problem from None
        self._made = True

    def _probe(self) -> None:
        self._run(f"SELECT idempotency_key FROM {self._table} WHERE 1 = 0")

    def _run(self, text: str) -> None:
        import sqlalchemy as sa

        with self._database.writing() as connection:
            connection.execute(sa.text(text))

    def first(self, connection: sa.Connection, idempotency_key: str) -> bool:
        """Is this the first time? Another transaction with the same key is waited for."""
        return _inserted(connection, self._insert, {"key": idempotency_key})


def _insert(table: str, columns: Sequence[str], placeholders: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(placeholders)})"


def _inserted(connection: sa.Connection, insert: str, values: Mapping[str, Any]) -> bool:
    """Insert a row, unless one that must be unique is in its way."""
    import sqlalchemy as sa

    if connection.dialect.name in ("postgresql", "sqlite"):
        text = sa.text(f"{insert} ON CONFLICT DO NOTHING")
        return bool(connection.execute(text, dict(values)).rowcount)
    try:
        with connection.begin_nested():
            connection.execute(sa.text(insert), dict(values))
    except sa.exc.IntegrityError:
        return False
    return True
