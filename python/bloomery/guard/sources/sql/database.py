"""The database of a source in SQL: its engine, driver and timeouts, a connection for each use, and
its failures as our errors."""

from __future__ import annotations

import math
import os
import select
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from bloomery import extras
from bloomery.database_errors import describe, is_unavailable
from bloomery.errors import (
    BloomeryError,
    InvalidParameter,
    InvalidSource,
    SourceUnavailable,
)

if TYPE_CHECKING:
    import sqlalchemy as sa

_AT = "an @ in a password is written %40"
_FORM = "must be postgresql://user:password@host/database or sqlite:///path, say"


class SqlDatabase:
    """A database at a URL, or behind an engine of SQLAlchemy that somebody else made."""

    def __init__(self, given: str | sa.Engine, timeout: float, pool_size: int) -> None:
        """Connects to nothing yet."""
        with extras.needed("sqlalchemy", "a SqlSource"):
            import sqlalchemy as sa
        self._own = not isinstance(given, sa.Engine)
        self._closed = False
        self._timeout = timeout
        self.engine = _engine_of(given, timeout, pool_size) if isinstance(given, str) else given
        if not isinstance(self.engine, sa.Engine):
            raise InvalidParameter(
                f"the source is a {type(given).__name__}, must be a URL or an Engine of SQLAlchemy"
            )
        # A look-up is one statement: as a transaction it would be three round trips.
        self._reader = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self.name = "the database"

    @property
    def kind(self) -> str:
        """`postgresql`, `sqlite` or another that SQLAlchemy knows."""
        return self.engine.dialect.name

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        url = self.engine.url
        host = f"{url.host}{f':{url.port}' if url.port else ''}/" if url.host else ""
        return f"{host}{url.database or ''}"

    def quoted(self, name: str) -> str:
        """A name as it stands in the text of a statement (`sqlalchemy.text`), which takes a colon
        for a parameter, and doubles what drivers take for one: not twice."""
        preparer = self.engine.dialect.identifier_preparer
        quoted = preparer.quote(name)
        if getattr(preparer, "_double_percents", False):
            quoted = quoted.replace("%%", "%")
        return quoted.replace(":", "\\:")

    def close(self) -> None:
        """Let go of the connections, unless they are those of an engine that was given."""
        if self._own:
            self._closed = True
            self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that reads."""
        with self._failures(), self._connected(self._reader) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction: all of it or nothing."""
        with (
            self._failures(),
            self._connected(self.engine) as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def _connected(self, engine: sa.Engine) -> Iterator[sa.Connection]:
        """A connection that is closed after use if the others were closed meanwhile: one goes back
        to the pool it came from, also to one that was let go of, which nobody would empty."""
        pool = engine.pool
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            # After it went back, so that either this or `close`, whichever is later, finds it.
            if self._own and (self._closed or engine.pool is not pool):
                pool.dispose()
                if self._closed:
                    engine.pool.dispose()

    @contextmanager
    def streaming(self, size: int) -> Iterator[sa.Connection]:
        """A transaction whose rows come some at a time, as long as it takes."""
        with self.writing() as connection:
            if self._own and self.kind == "postgresql":
                connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            yield connection.execution_options(stream_results=True, max_row_buffer=size)

    # Failures.

    @contextmanager
    def _failures(self) -> Iterator[None]:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except SQLAlchemyError as failure:
            # Not the cause: it may show the URL and the keys.
            raise self._error(failure) from None
        except UnicodeEncodeError:
            raise InvalidSource(f"{self.name} was given text that is no Unicode") from None
        except OSError as failure:
            if isinstance(failure, BloomeryError):
                raise
            raise SourceUnavailable(f"{self.name}: {type(failure).__name__}") from None

    def _error(self, failure: sa.exc.SQLAlchemyError) -> BloomeryError:
        from sqlalchemy import exc

        url, state = self.engine.url, getattr(getattr(failure, "orig", None), "sqlstate", None)
        if state == "0A000" and self._own:
            self.engine.dispose()  # a column has changed, and old connections have the old plan
        text = describe(
            failure,
            (url.password, url.query.get("password"), url.query.get("sslpassword")),
            quotes=self.kind in ("postgresql", "sqlite"),
        )
        if state == "57014" and self._own and "options" not in url.query:
            text += f" ({self._timeout:g} s)"
        # The pool's timeout: all connections are in use.
        away = isinstance(failure, exc.TimeoutError) or is_unavailable(failure)
        return (SourceUnavailable if away else InvalidSource)(f"{self.name}: {text}")


def _engine_of(given: str, timeout: float, pool_size: int) -> sa.Engine:
    """An engine for a URL; it connects to nothing yet."""
    engine = _create_engine(given, timeout, pool_size)
    _ENGINES.add(engine)
    return engine


def _create_engine(given: str, timeout: float, pool_size: int) -> sa.Engine:
    import sqlalchemy as sa

    scheme, colon, rest = given.partition("://")
    if scheme in ("postgresql", "postgres"):
        scheme = "postgresql+psycopg"
    try:
        url = sa.make_url(f"{scheme}{colon}{rest}")
        if "@" in (url.host or ""):  # part of a password, which messages would show
            raise InvalidParameter(f"the source's URL cannot be read, {_AT}")
        options: dict[str, Any] = {
            "hide_parameters": True,
            "pool_size": pool_size,
            "max_overflow": 0,
            "pool_timeout": timeout,
            "pool_use_lifo": True,
            "poolclass": sa.QueuePool,
        }
        if url.get_backend_name() == "sqlite":
            return sa.create_engine(url, creator=_opener(url, timeout), **options)
        if url.get_driver_name() == "psycopg":
            options["connect_args"] = _limits(url, timeout)
        engine = sa.create_engine(url, **options)
    except InvalidParameter:
        raise
    except (sa.exc.ArgumentError, ValueError):  # whose text shows parts of the URL
        raise InvalidParameter(f"the source's URL cannot be read, {_FORM}") from None
    except ImportError as missing:
        driver = missing.name or url.get_driver_name()
        raise extras.missing(driver, f"a source at {scheme}://…") from None
    if engine.dialect.is_async:
        raise InvalidParameter(
            f"{scheme} is a driver for asyncio, must be one for threads: an AsyncGuard lets a "
            "thread ask"
        )
    if url.get_driver_name() == "psycopg":
        sa.event.listen(engine, "checkout", _check)
    return engine


def _forked() -> None:
    """A child that used its parent's connections would read the other's answers. They are not
    closed, which would tell the server to end them."""
    for engine in list(_ENGINES):
        engine.dispose(close=False)


_ENGINES: weakref.WeakSet[sa.Engine] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _limits(url: sa.URL, timeout: float) -> dict[str, Any]:
    """Timeouts for a server that does not answer; the driver's own are to wait for hours."""
    ours = {
        "connect_timeout": max(2, math.ceil(timeout)),  # libpq takes no less
        "keepalives_idle": 10,
        "tcp_user_timeout": int(timeout * 1000) + 1000,
        "options": f"-c statement_timeout={math.ceil(timeout * 1000)}",
    }
    return {name: value for name, value in ours.items() if name not in url.query}


def _opener(url: sa.URL, timeout: float) -> Any:
    """What opens a file of SQLite that is there; by itself SQLite would make an empty one."""
    path = url.database
    if not path or path == ":memory:" or path.startswith("file:"):
        raise InvalidParameter(f"the source's URL names no file, {_FORM}")

    def connect() -> sqlite3.Connection:
        where = f"file:{quote(path)}?mode=rw"
        return sqlite3.connect(where, timeout=timeout, uri=True, check_same_thread=False)

    return connect


def _check(connection: Any, _record: object, _proxy: object) -> None:
    """A connection that the server has closed is not used again: after a restart of the server none
    fails for being old. It costs a system call, where a ping would be a round trip."""
    import sqlalchemy as sa

    hung_up = getattr(select, "POLLRDHUP", 0)  # Linux has it
    if connection.closed:
        raise sa.exc.DisconnectionError
    if hung_up:
        poll = select.poll()
        poll.register(connection.fileno(), hung_up)
        if poll.poll(0):
            raise sa.exc.DisconnectionError
