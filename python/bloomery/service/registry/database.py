"""The database of the registry: its URL, its connections, its transactions."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from bloomery.database_errors import describe, redact
from bloomery.errors import InvalidParameter, RegistryUnavailable
from bloomery.service.registry import address

# A database that does not answer is away. The driver's own defaults are to wait for hours.
_POSTGRESQL: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "tcp_user_timeout": 15_000,
    "options": "-c statement_timeout=60s -c lock_timeout=10s",
}
_READING = "bloomery_reading"


class Database:
    """A database at a URL, `sqlite:///path` or `postgresql://…`."""

    def __init__(self, url: str | Path) -> None:
        """Connects to nothing yet; InvalidParameter for a URL that cannot be right.

        A Path is a SQLite file, whatever characters its name has.
        """
        self._secrets: list[object] = []
        if isinstance(url, Path):
            self._engine = _sqlite(sa.URL.create("sqlite", database=str(url)))
        else:
            self._engine = self._engine_of(url)

    @property
    def is_postgresql(self) -> bool:
        """True for PostgreSQL, False for SQLite."""
        return self._engine.dialect.name == "postgresql"

    def close(self) -> None:
        """Let go of the database; the next call connects again."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self, reading: bool = False) -> Iterator[sa.Connection]:
        """Open a transaction; with `reading` it does not wait for one that writes."""
        try:
            with self._engine.execution_options(**{_READING: reading}).begin() as connection:
                yield connection
        except SQLAlchemyError as failure:
            # Not the cause: it could show the URL.
            raise RegistryUnavailable(
                f"the registry at {self._place()}: {self._describe(failure)}"
            ) from None

    def _place(self) -> str:
        url = self._engine.url
        host = f"{url.host or 'localhost'}:{url.port or 5432}/" if self.is_postgresql else ""
        return redact(f"{host}{url.database}", self._secrets)

    def _describe(self, failure: Exception) -> str:
        """The failure in one line, without secrets."""
        return describe(failure, self._secrets)

    def _engine_of(self, given: str) -> sa.Engine:
        dialect, rest = address.dialect_of(given), given.partition("://")[2]
        try:
            url = sa.make_url(f"{dialect}://{rest}")
        except (ArgumentError, ValueError):
            raise InvalidParameter(f"the registry's URL cannot be read, {address.FORM}") from None
        if dialect == "sqlite":
            return _sqlite(url)
        # Everything that may be a password, also of a URL that was put together wrongly.
        self._secrets = [url.password, url.query.get("password"), url.query.get("sslpassword")]
        self._secrets += rest.rpartition("@")[0].partition(":")[2].split("@")
        return sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args={k: v for k, v in _POSTGRESQL.items() if k not in url.query},
            hide_parameters=True,
            pool_pre_ping=True,
            pool_size=1,
        )


def _sqlite(url: sa.URL) -> sa.Engine:
    # A connection for each transaction: if the file was removed, it is made anew.
    engine = sa.create_engine(url, hide_parameters=True, poolclass=sa.NullPool, paramstyle="named")

    @sa.event.listens_for(engine, "connect")
    def connected(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # the driver would begin later than we do
        connection.execute("PRAGMA busy_timeout = 5000")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        # Anybody may have written there: text that is no UTF-8 must not end a transaction.
        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")

    @sa.event.listens_for(engine, "begin")
    def begun(connection: sa.Connection) -> None:
        reading = connection.get_execution_options().get(_READING)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine
