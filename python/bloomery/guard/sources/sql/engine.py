"""An engine of SQLAlchemy for the URL of a source: its driver, its timeouts, its connections."""

from __future__ import annotations

import math
import os
import select
import sqlite3
import weakref
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from bloomery import extras
from bloomery.errors import InvalidParameter

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["engine_of"]

_AT = "an @ in a password is written %40"
_FORM = "must be postgresql://user:password@host/database or sqlite:///path, say"


def engine_of(given: str, timeout: float, pool_size: int) -> sa.Engine:
    """An engine for a URL; it connects to nothing yet."""
    engine = _made(given, timeout, pool_size)
    _ENGINES.add(engine)
    return engine


def _made(given: str, timeout: float, pool_size: int) -> sa.Engine:
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
