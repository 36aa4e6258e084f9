"""The registry: what filters there are, in SQL tables for people and dashboards.

It is a projection of the server's state, which never depends on it: whatever happens to the
database, `replace` makes the tables right again. Every method is one transaction, or none of it;
the database being away, or in the way, is RegistryUnavailable, with no password in the message.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import time
from typing import Any, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, SQLAlchemyError

from bloomery.errors import InvalidParameter, MissingExtra, RegistryUnavailable
from bloomery.service.tables import CONFIG, STATS, FilterRow, SampleRow, moment

_T = TypeVar("_T")
_BATCH = 500  # rows in one statement
_KEY = ("server", "number")
# A database that does not answer is away. The driver's own defaults are to wait for hours.
_POSTGRESQL: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "tcp_user_timeout": 15_000,
    "options": "-c statement_timeout=60s -c lock_timeout=10s",
}
_MIGRATING = 7_236_281_904  # an advisory lock's number: two servers that start at once take turns


class Registry:
    """The tables at a URL, `sqlite:///path` or `postgresql://…`, and in them one server's rows."""

    def __init__(self, url: str | Path, server: str) -> None:
        """Connects to nothing yet; InvalidParameter for a URL that cannot be right.

        A Path is a SQLite file, whatever characters its name has.
        """
        self.server = server
        self._secrets: list[str] = []
        if isinstance(url, Path):
            self._engine = _sqlite(sa.URL.create("sqlite", database=str(url)))
        else:
            self._engine = self._engine_of(url)
        upsert: Any = postgresql.insert if self.is_postgresql else sqlite.insert
        made = upsert(CONFIG)
        kept = {c.name for c in CONFIG.c} - {"id", *_KEY}
        self._upsert = made.on_conflict_do_update(
            index_elements=_KEY, set_={name: made.excluded[name] for name in kept}
        )

    @property
    def is_postgresql(self) -> bool:
        """Or else it is SQLite."""
        return self._engine.dialect.name == "postgresql"

    def __repr__(self) -> str:
        return f"<Registry at {self._place()}, server {self.server}>"

    def close(self) -> None:
        """Let go of the database; the next call connects again."""
        self._engine.dispose()

    def migrate(self) -> None:
        """Make the tables, or bring older ones to this version's schema."""
        config = Config()
        folder = str(Path(__file__).parent / "migrations")
        config.set_main_option("script_location", folder.replace("%", "%%"))
        with self._transaction() as connection:
            if self.is_postgresql:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATING)))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def replace(self, rows: Iterable[FilterRow]) -> dict[int, str]:
        """Make the server's rows these and no others; as `put`, the rows that cannot be there.

        Samples of filters that stay are kept. Another server's rows are never touched.
        """
        with self._transaction() as connection:
            refused: dict[int, str] = {}
            given: set[int] = set()
            for batch in _batches(rows):
                given.update(row.id for row in batch)
                refused |= self._put(connection, batch)
            there = sa.select(CONFIG.c.number).where(CONFIG.c.server == self.server)
            gone = set(connection.scalars(there)) - given
            self._drop(connection, gone)
        return refused

    def put(self, rows: Iterable[FilterRow]) -> dict[int, str]:
        """Write these rows; those that cannot be there (the name is another server's), and why."""
        with self._transaction() as connection:
            refused: dict[int, str] = {}
            for batch in _batches(rows):
                refused |= self._put(connection, batch)
            return refused

    def drop(self, ids: Iterable[int]) -> None:
        """Remove filters, with their samples."""
        with self._transaction() as connection:
            self._drop(connection, ids)

    def add_samples(self, rows: Iterable[SampleRow]) -> None:
        """Write samples; those of filters that are not there are left out."""
        values = ("estimated_elements", "false_positive_estimate", "sampled_at")
        of_filter = sa.select(
            CONFIG.c.id, *(sa.bindparam(name, type_=STATS.c[name].type) for name in values)
        ).where(CONFIG.c.server == self.server, CONFIG.c.number == sa.bindparam("of_number"))
        insert = sa.insert(STATS).from_select(["filter_id", *values], of_filter)
        with self._transaction() as connection:
            for batch in _batches(rows):
                connection.execute(insert, [row.values() for row in batch])

    def prune(self, before: float) -> None:
        """Remove this server's samples from before a time, in seconds since the epoch."""
        own = sa.select(CONFIG.c.id).where(CONFIG.c.server == self.server)
        old = STATS.c.sampled_at < moment(before)
        with self._transaction() as connection:
            connection.execute(sa.delete(STATS).where(old, STATS.c.filter_id.in_(own)))

    # ---- inside a transaction

    def _put(self, connection: sa.Connection, rows: Sequence[FilterRow]) -> dict[int, str]:
        written = {"server": self.server, "updated_at": moment(time())}
        values = [row.values() | written for row in rows]
        self._make_way(connection, {value["name"]: value["number"] for value in values})
        try:
            with connection.begin_nested():
                connection.execute(self._upsert, values)
            return {}
        except (IntegrityError, DataError):  # of which row it does not say
            pass
        refused = {}
        for value in values:
            try:
                with connection.begin_nested():
                    connection.execute(self._upsert, value)
            except (IntegrityError, DataError) as failure:
                refused[value["number"]] = self._why(connection, value["name"], failure)
        self._drop(connection, refused)  # what it was before is no longer true
        return refused

    def _make_way(self, connection: sa.Connection, names: dict[str, int]) -> None:
        """Take from this server's other filters the names that these have now.

        Two filters may have changed names, and a row is written at a time; the other one's new
        name comes later. Until then it has one that `printable` gives to nobody.
        """
        # By name alone: with the server in the question too PostgreSQL, before its first ANALYZE,
        # went through all rows of the server for each batch.
        asked = sa.select(CONFIG.c.name, CONFIG.c.server, CONFIG.c.number)
        for name, server, number in connection.execute(asked.where(CONFIG.c.name.in_(names))).all():
            if server == self.server and number != names[name]:
                connection.execute(
                    sa.update(CONFIG)
                    .where(CONFIG.c.server == self.server, CONFIG.c.number == number)
                    .values(name=f"\\renamed {self.server} {number}")
                )

    def _why(self, connection: sa.Connection, name: str, failure: DBAPIError) -> str:
        holder = connection.scalar(sa.select(CONFIG.c.server).where(CONFIG.c.name == name))
        if holder is None:
            return f"filter {name}: {self._said(failure)}"
        return f"filter {name} of server {self.server} is left out: server {holder} has that name"

    def _drop(self, connection: sa.Connection, ids: Iterable[int]) -> None:
        for batch in _batches(ids):
            these = CONFIG.c.number.in_(batch)
            connection.execute(sa.delete(CONFIG).where(CONFIG.c.server == self.server, these))

    # ---- the database

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except CommandError as failure:
            raise RegistryUnavailable(
                f"the registry at {self._place()} has a schema that this bloomery does not know "
                f"({failure}): a newer one made it; run that, or give another database"
            ) from None
        except SQLAlchemyError as failure:
            # Not the cause: it could show the URL.
            raise RegistryUnavailable(
                f"the registry at {self._place()}: {self._said(failure)}"
            ) from None

    def _place(self) -> str:
        url = self._engine.url
        host = f"{url.host or 'localhost'}:{url.port or 5432}/" if self.is_postgresql else ""
        return self._without_secrets(f"{host}{url.database}")

    def _said(self, failure: Exception) -> str:
        """The failure in one line, without secrets."""
        cause = failure.orig if isinstance(failure, DBAPIError) and failure.orig else failure
        return self._without_secrets(" ".join(str(cause).split()) or type(cause).__name__)

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _engine_of(self, given: str) -> sa.Engine:
        form = "must be sqlite:///path or postgresql://user:password@host/database"
        scheme, colon, rest = given.partition("://")
        driver = {"sqlite": "sqlite", "postgresql": "postgresql", "postgres": "postgresql"}
        if not colon or scheme not in driver:
            begins = f"begins with {scheme!r}" if colon and scheme.isalnum() else "has no scheme"
            raise InvalidParameter(f"the registry's URL {begins}, {form}")
        try:
            url = sa.make_url(f"{driver[scheme]}://{rest}")
        except (ArgumentError, ValueError):
            raise InvalidParameter(f"the registry's URL cannot be read, {form}") from None
        if scheme == "sqlite":
            if url.database in {None, "", ":memory:"}:
                raise InvalidParameter(f"the registry's URL names no file, {form}")
            return _sqlite(url)
        # Everything that may be a password, also of a URL that was put together wrongly.
        maybe = [url.password, url.query.get("password"), url.query.get("sslpassword")]
        maybe += rest.rpartition("@")[0].partition(":")[2].split("@")
        self._secrets = sorted({str(one) for one in maybe if one}, key=len, reverse=True)
        try:
            return sa.create_engine(
                url.set(drivername="postgresql+psycopg"),
                connect_args={k: v for k, v in _POSTGRESQL.items() if k not in url.query},
                hide_parameters=True,
                pool_pre_ping=True,
                pool_size=1,
            )
        except ImportError:
            raise MissingExtra(
                "a registry in PostgreSQL needs psycopg: pip install 'bloomery[postgresql]'"
            ) from None


def _sqlite(url: sa.URL) -> sa.Engine:
    # A connection for each transaction: if the file was removed, it is made anew.
    engine = sa.create_engine(url, hide_parameters=True, poolclass=sa.NullPool)

    @sa.event.listens_for(engine, "connect")
    def connected(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # the driver would begin later than we do
        connection.execute("PRAGMA busy_timeout = 5000")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")

    @sa.event.listens_for(engine, "begin")
    def begun(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _batches(rows: Iterable[_T]) -> Iterator[list[_T]]:
    rows = iter(rows)
    while batch := list(islice(rows, _BATCH)):
        yield batch
