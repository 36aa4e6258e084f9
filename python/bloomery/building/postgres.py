"""PostgreSQL by psycopg: a cursor on the server, in a transaction that sees one moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bloomery import extras
from bloomery.building.sql import PLACEHOLDER, quoted
from bloomery.errors import InvalidParameter

# Types whose values are keys as they are; in others, values that SQL calls equal may differ as
# keys, or differ from how people write them.
_KEYS = {"text", "varchar", "name", "int2", "int4", "int8", "uuid", "bytea"}
_KEYS |= {"timestamp", "timestamptz"}


class Postgres:
    """One database."""

    def __init__(self, url: str, password: str | None = None) -> None:
        with extras.needed("psycopg", "PostgreSQL"):
            import psycopg
            from psycopg.conninfo import conninfo_to_dict
        # As SQLAlchemy writes it, and the short form, are the same to us.
        url = "postgresql://" + url.partition("://")[2]
        # A password with an @ or a / in it would be taken apart, and be shown as host or database.
        address, _, rest = url.partition("://")[2].partition("?")[0].partition("/")
        if address.count("@") > 1 or "@" in rest:
            raise InvalidParameter(
                "the URL is not one of PostgreSQL: an @ in a password is written %40, a / is %2F"
            )
        try:
            self._options: dict[str, Any] = conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # its message may show the password
            raise InvalidParameter(
                "the URL is not one of PostgreSQL: postgresql://user@host:5432/database"
            ) from None
        if password is not None:
            self._options["password"] = password
        self._psycopg = psycopg
        hidden = ("password", "sslpassword")
        self.secrets: Sequence[object] = [self._options.get(name) for name in hidden]
        self.lost: tuple[type[Exception], ...] = (psycopg.OperationalError,)
        self.errors: tuple[type[Exception], ...] = (psycopg.Error,)
        given = {name: str(self._options.get(name) or "") for name in ("user", "host", "port")}
        user = f"{given['user']}@" if given["user"] else ""
        port = f":{given['port']}" if given["port"] else ""
        self.name = f"postgresql://{user}{given['host']}{port}/{self._options.get('dbname', '')}"

    def connect(self) -> Any:
        """A connection that only reads, all at one moment."""
        psycopg = self._psycopg
        options = {"connect_timeout": 10, "application_name": "bloomery build", **self._options}
        # Keys are the UTF-8 of their text, whatever the database is in.
        connection = psycopg.connect(**options, client_encoding="utf8")
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        # All rows will be read: not the plan that has the first tenth soonest.
        connection.execute("SET LOCAL cursor_tuple_fraction = 1")
        return connection

    def columns(self, connection: Any, sql: str) -> dict[str, str]:
        """The columns, and which types cannot be keys."""
        columns = {}
        for column in connection.execute(sql).description:
            known = connection.adapters.types.get(column.type_code)
            kind = known.name if known else f"number {column.type_code}"
            columns[column.name] = "" if kind in _KEYS else _advice(column.name, kind)
        return columns

    def primary_key(self, connection: Any, table: str) -> str | None:
        """By the catalogue."""
        sql = (
            "SELECT a.attname FROM pg_index i JOIN pg_attribute a"
            " ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
            " WHERE i.indrelid = %s::regclass AND i.indisprimary AND i.indnkeyatts = 1"
        )
        row = connection.execute(sql, [quoted(*table.split("."))]).fetchone()
        return str(row[0]) if row else None

    def estimate(self, connection: Any, sql: str) -> int | None:
        """The number of rows that PostgreSQL's planner expects."""
        ((plan,),) = connection.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchall()
        return int(plan[0]["Plan"]["Plan Rows"])

    def fetch(self, connection: Any, sql: str, values: list[Any], size: int) -> Iterator[list[Any]]:
        """Read by a cursor on the server."""
        with connection.cursor("bloomery_build") as cursor:
            if values:  # then a % of the person's own would be taken for a parameter
                sql = sql.replace("%", "%%").replace(PLACEHOLDER, "%s")
            cursor.execute(sql, values or None)
            while rows := cursor.fetchmany(size):
                yield rows


def _advice(column: str, kind: str) -> str:
    cast = f"{quoted(column)}::text"
    if kind in ("float4", "float8", "numeric"):
        cast = f"{quoted(column)}::bigint or {quoted(column)}::text"
    return (
        f"is of type {kind}, which is no key: text, integers, uuid, timestamp and bytea are; "
        f"cast it in a query, as {cast}, and later ask for keys of that type"
    )
