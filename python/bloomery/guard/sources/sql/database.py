"""The database of a source in SQL: connections for each use, and failures: away or wrong, in words
that give no secret and no key away."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bloomery.errors import (
    BloomeryError,
    InvalidParameter,
    InvalidSource,
    MissingExtra,
    SourceUnavailable,
)
from bloomery.guard.sources.sql.engine import engine_of

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["SqlDatabase"]

# SQLSTATEs, or the classes they begin with, of a server that is away, overloaded or changing over:
# connection, resources, locks, deadlocks, a shutdown or a timeout, I/O, and a replica's "read-only"
# while another becomes the primary.
_AWAY = ("08", "25006", "40001", "40P01", "53", "55P03", "57P", "57014", "58")
# A server that is there and does not let us in says so in words alone.
_REFUSED = re.compile(
    r"authentication failed|does not exist|pg_hba\.conf|permission denied|not permitted to log in"
)
_SQLITE_AWAY = re.compile(r"is locked|disk I/O|unable to open|disk is full|interrupted|busy")
_MORE = re.compile(r" with text | \(Background on")  # a row that cannot be decoded; SQLAlchemy's
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")


class SqlDatabase:
    """A database at a URL, or behind an engine of SQLAlchemy that somebody else made."""

    def __init__(self, given: str | sa.Engine, timeout: float, pool_size: int) -> None:
        """Connects to nothing yet."""
        try:
            import sqlalchemy as sa
        except ImportError:
            raise MissingExtra(
                "a SqlSource needs sqlalchemy: pip install 'bloomery[guard]'"
            ) from None
        self._own = not isinstance(given, sa.Engine)
        self._closed = False
        self._timeout = timeout
        self.engine = engine_of(given, timeout, pool_size) if isinstance(given, str) else given
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
            raise self._told(failure) from None
        except UnicodeEncodeError:
            raise InvalidSource(f"{self.name} was given text that is no Unicode") from None
        except OSError as failure:
            if isinstance(failure, BloomeryError):
                raise
            raise SourceUnavailable(f"{self.name}: {type(failure).__name__}") from None

    def _told(self, failure: sa.exc.SQLAlchemyError) -> BloomeryError:
        cause = getattr(failure, "orig", None) or failure
        said = self._said(cause)
        if getattr(cause, "sqlstate", None) == "0A000" and self._own:
            self.engine.dispose()  # a column has changed, and old connections have the old plan
        away = SourceUnavailable if self._is_away(failure, cause) else InvalidSource
        return away(f"{self.name}: {said}")

    def _is_away(self, failure: sa.exc.SQLAlchemyError, cause: BaseException) -> bool:
        from sqlalchemy import exc

        if isinstance(failure, exc.TimeoutError):  # all connections are in use
            return True
        if not isinstance(failure, exc.DBAPIError):
            return False
        if failure.connection_invalidated:
            return True
        if isinstance(cause, sqlite3.Error):
            return _SQLITE_AWAY.search(str(cause)) is not None
        state = getattr(cause, "sqlstate", None)
        if state is not None:
            return str(state).startswith(_AWAY)
        if not isinstance(failure, (exc.OperationalError, exc.InterfaceError)):
            return False
        return self.kind != "postgresql" or _REFUSED.search(str(cause)) is None

    def _said(self, cause: BaseException) -> str:
        """The failure in one line, without secrets and without keys."""
        state = getattr(cause, "sqlstate", None)
        if state is None:
            text = " ".join(_MORE.split(str(cause))[0].split())
        else:  # details, which show rows, are left out
            text = cause.diag.message_primary or ""  # type: ignore[attr-defined]
            if state == "57014" and self._own and "options" not in self.engine.url.query:
                text += f" ({self._timeout:g} s)"
        if str(state).startswith("22") or self.kind not in ("postgresql", "sqlite"):
            text = _QUOTED.sub("…", text)  # a value that the database could not take
        for secret in (self.engine.url.password, self.engine.url.query.get("password")):
            if secret:
                text = text.replace(str(secret), "***")
        return text or type(cause).__name__
