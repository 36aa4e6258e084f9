"""Failures of databases as errors of ours: unavailable or wrong, in one line without secrets.

They come from drivers (sqlite3, psycopg) or from SQLAlchemy around these (`orig`). What a driver
says may show the URL with its password, the rows and the keys: only the part that shows none of
these is passed on, and never the failure itself as the cause.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable

from bloomery.errors import InvalidSource, SourceUnavailable
from bloomery.storage.sqlite import Code, code_of

# SQLSTATEs, or the classes they begin with, of a server that is away, overloaded or changing over:
# connection, resources, locks, deadlocks, a shutdown or a timeout, I/O, and a replica's "read-only"
# while another becomes the primary.
_UNAVAILABLE = ("08", "25006", "40001", "40P01", "53", "55P03", "57P", "57014", "58")
# A server that is there and does not let us in says so in words alone.
_REFUSED = re.compile(
    r"authentication failed|does not exist|pg_hba\.conf|permission denied|not permitted to log in"
)
_SQLITE_UNAVAILABLE = (
    *(Code.BUSY, Code.LOCKED, Code.INTERRUPT, Code.IOERR, Code.FULL, Code.CANTOPEN),
)
# PEP 249 names them in every driver, and SQLAlchemy around it: a failure that is not the query's.
_OPERATIONAL = {"OperationalError", "InterfaceError"}
_MORE = re.compile(r" with text | \(Background on")  # a row that cannot be decoded; SQLAlchemy's
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")


def source_error(
    name: str, failure: Exception, secrets: Iterable[object] = ()
) -> SourceUnavailable | InvalidSource:
    """The error for what a source of that name failed with."""
    kind = SourceUnavailable if is_unavailable(failure) else InvalidSource
    return kind(f"{name}: {describe(failure, secrets)}")


def is_unavailable(failure: Exception) -> bool:
    """Whether the database may work later, as it is: it is away, overloaded or locked. Otherwise
    it refuses, and will again."""
    cause = _cause(failure)
    if getattr(failure, "connection_invalidated", False):
        return True
    if isinstance(cause, sqlite3.Error):
        return code_of(cause) in _SQLITE_UNAVAILABLE
    state = getattr(cause, "sqlstate", None)
    if state is not None:
        return str(state).startswith(_UNAVAILABLE)
    operational = not _OPERATIONAL.isdisjoint(cls.__name__ for cls in type(failure).__mro__)
    return operational and _REFUSED.search(str(cause)) is None


def describe(failure: Exception, secrets: Iterable[object] = (), *, quotes: bool = True) -> str:
    """A failure in one line, without secrets and values; `quotes`: a quoted word may stay, since
    the database quotes names alone unless a value is what is wrong."""
    cause = _cause(failure)
    state = getattr(cause, "sqlstate", None)
    if state is None:
        text = " ".join(_MORE.split(str(cause))[0].split())
    else:  # details, which show rows, are left out
        text = getattr(getattr(cause, "diag", None), "message_primary", None) or ""
    if not quotes or str(state).startswith("22"):  # a value that the database could not take
        text = _QUOTED.sub("…", text)
    return redact(text, secrets) or type(cause).__name__


def redact(text: str, secrets: Iterable[object]) -> str:
    """A text with *** in the place of each secret; what is None or empty is none."""
    for secret in sorted({str(secret) for secret in secrets if secret}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _cause(failure: Exception) -> BaseException:
    """The driver's failure, if this is SQLAlchemy's around it."""
    return getattr(failure, "orig", None) or failure
