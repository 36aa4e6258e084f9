"""The URL of the registry, checked without SQLAlchemy: a server with a wrong one does not start."""

from __future__ import annotations

import re

from bloomery import extras
from bloomery.errors import InvalidParameter

FORM = "must be sqlite:///path or postgresql://user:password@host/database"
_DIALECTS = {"sqlite": "sqlite", "postgresql": "postgresql", "postgres": "postgresql"}
# User, password and host as SQLAlchemy reads them, up to the port: a password may have a `/`.
_PORT = re.compile(r"(?:[^:/]*(?::[^@]*)?@)?(?:\[[^/?]+\]|[^/:?]+)?(?::([^/?]*))?")


def dialect_of(url: str) -> str:
    """Return the kind of database, `sqlite` or `postgresql`. InvalidParameter for a URL that cannot
    be right, MissingExtra without the database's driver."""
    scheme, colon, rest = url.partition("://")
    if not colon or scheme not in _DIALECTS:
        starts = f"begins with {scheme!r}" if colon and scheme.isalnum() else "has no scheme"
        raise InvalidParameter(f"the registry's URL {starts}, {FORM}")
    dialect = _DIALECTS[scheme]
    if dialect == "sqlite" and rest.partition("?")[0].partition("/")[2] in {"", ":memory:"}:
        raise InvalidParameter(f"the registry's URL names no file, {FORM}")
    if dialect == "postgresql":
        if not _has_valid_port(rest):
            raise InvalidParameter(f"the registry's URL cannot be read, {FORM}")
        with extras.needed("psycopg", "a registry in PostgreSQL"):
            import psycopg  # noqa: F401
    return dialect


def _has_valid_port(rest: str) -> bool:
    """Return whether the port, if there is one, is a number."""
    found = _PORT.match(rest)
    port = found[1] if found is not None else None
    return not port or port.isdecimal()
