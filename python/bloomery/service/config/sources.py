"""The sources of a configuration file: databases that filters may be bound to.

    [sources.urls]
    url = "postgresql://app@db/urls"
    password-file = "secrets/urls"
    table = "urls"
    key = "url"
    value = "title"

Only the operator's file has them: no client can let the server connect to anything else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from bloomery.filters.rotating import parse_window
from bloomery.guard.options import OnOutage
from bloomery.service.config import values
from bloomery.service.config.credentials import FieldError, Section, public, secrets_of
from bloomery.service.lookup.keytypes import KEY_TYPES

_NAME = re.compile(r"[a-z0-9_-]{1,64}")  # it is part of a file's name
_REDIS = ("redis", "rediss", "unix")


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """One source, and how it is asked; times in seconds."""

    name: str
    url: str = field(repr=False)  # with its password
    table: str | None = None
    key: str | None = None
    value: str | list[str] | None = None
    query: str | None = None
    key_type: str | None = None  # what a key is turned into for the source; None: left as it is
    cache: str = field(default="local", repr=False)  # or "none", or the URL of a Redis
    cache_capacity: int = 100_000  # entries of a local one
    ttl: float = 300.0
    negative_ttl: float = 0.0  # off: clients write to the source past the server
    stale_for: float = 86400.0
    on_outage: OnOutage = "raise"
    timeout: float = 5.0
    connections: int = 8  # and so questions at once

    def secrets(self) -> list[str]:
        """Return the values to hide: URLs with passwords in them, and the passwords."""
        urls = [url for url in (self.url, self.cache) if secrets_of(url)]
        return urls + [secret for url in urls for secret in secrets_of(url)]

    def as_dict(self) -> dict[str, Any]:
        """Return all fields but secrets, by their names in the file."""
        others = {name: getattr(self, name.replace("-", "_")) for name in _CHECKS}
        return {"url": public(self.url), "cache": public(self.cache), **others}


def read(
    name: str, given: object, folder: Path, variables: Mapping[str, str]
) -> tuple[SourceSettings | None, list[FieldError]]:
    """The source of a section; or None, and all that is wrong with it.

    Paths are relative to the configuration file's folder; `variables` are the environment's.
    """
    if not _NAME.fullmatch(name):
        return None, [FieldError("", "a source's name must be 1 to 64 of a-z, 0-9, - and _")]
    if not isinstance(given, dict):
        return None, [FieldError("", f"must be a section: [sources.{name}]")]
    section = Section({_dashed(word): value for word, value in given.items()}, folder, variables)
    fields: dict[str, Any] = {}
    wrong = [*_plain(section.given, fields)]
    for read_field in (_url, _cache):
        try:
            read_field(section, fields)
        except FieldError as problem:
            wrong.append(problem)
    wrong += _conflicts(section.given, fields)
    return (None, wrong) if wrong else (SourceSettings(name=name, **fields), [])


def _dashed(word: str) -> str:
    return word.lower().replace("_", "-")


# What each field may be.


def _text(value: Any) -> str:
    """must be text in quotes"""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError
    return value


def _columns(value: Any) -> str | list[str]:
    """must be a column, or a list of columns"""
    return [_text(part) for part in value] if isinstance(value, list) and value else _text(value)


def _seconds(least: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        seconds = float(value) if number else parse_window(_text(value))
        if not least <= seconds <= 10 * 365 * 86400:
            raise ValueError
        return seconds

    check.__doc__ = f"must be seconds, or a time such as '15min', from {least:g} to ten years"
    return check


def _of(check: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Turn a check of text (`values`) into one of a TOML value."""

    def checked(value: Any) -> Any:
        return check(str(value))

    checked.__doc__ = check.__doc__
    return checked


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "table": _text,
    "key": _text,
    "value": _columns,
    "query": _text,
    "key-type": _of(values.one_of(*KEY_TYPES)),
    "cache-capacity": _of(values.between(1, 1 << 24)),
    "ttl": _seconds(0),
    "negative-ttl": _seconds(0),
    "stale-for": _seconds(0),
    "on-outage": _of(values.one_of(*get_args(OnOutage))),
    "timeout": _seconds(0.01),
    "connections": _of(values.between(1, 256)),
}
_SECRETS = ("url", "password", "cache-url", "cache-password")
_FORMS = [f"{secret}-{form}" for secret in _SECRETS for form in ("file", "env")]
_KNOWN = ("url", "cache", *_FORMS, *_CHECKS)


def _plain(given: Mapping[str, Any], fields: dict[str, Any]) -> Iterator[FieldError]:
    for name, value in given.items():
        check = _CHECKS.get(name)
        if name in ("password", "cache-password"):
            yield FieldError(
                name,
                f"{name} must not be in this file: give {name}-file, the path of a file that has "
                f"it, or {name}-env, the name of a variable",
            )
        elif name not in _KNOWN:
            near = get_close_matches(name, _KNOWN, 2, 0.6)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            yield FieldError(name, f"a source has no {name[:60]!r}{meant}")
        elif check is not None:
            try:
                fields[name.replace("-", "_")] = check(value)
            except (ValueError, OverflowError):
                yield FieldError(name, f"{name} is {str(value)[:60]!r}, {check.__doc__}")


def _url(section: Section, fields: dict[str, Any]) -> None:
    url = section.url("url", "url", "password")
    if url is None:
        raise FieldError("", "url is missing: postgresql://user@host/database, say")
    scheme, _, rest = url.partition("://")
    if not rest or not re.fullmatch(r"[a-z0-9_+]+", scheme):
        raise FieldError("url", "url must be one such as postgresql://user@host/database")
    if scheme in ("postgresql", "postgres"):
        url = f"postgresql+psycopg://{rest}"  # the driver that we install
    elif scheme.partition("+")[0] == "sqlite":
        if rest in ("/", "/:memory:"):
            raise FieldError("url", "url names no file, must be sqlite:///path")
        url = f"{scheme}:///{os.path.join(os.path.abspath(section.folder), rest[1:])}"
    fields["url"] = section.with_password(url, "password")


def _cache(section: Section, fields: dict[str, Any]) -> None:
    url = section.url("cache", "cache-url", "cache-password")
    if url is None:
        return
    if url not in ("local", "none"):
        if url.partition("://")[0] not in _REDIS:
            raise FieldError(
                "cache", "cache must be local, none, or a URL: redis://host:6379/0, say"
            )
        url = section.with_password(url, "cache-password")
    fields["cache"] = url


def _conflicts(given: Mapping[str, Any], fields: dict[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of fields that contradict each other."""
    if ("table" in given) is ("query" in given):
        yield FieldError("", "give table and key, or query")
    elif "table" in given and "key" not in given:
        yield FieldError("table", "key is missing: the column of the keys")
    elif "query" in given:
        for name in {"key", "value"} & given.keys():
            yield FieldError(name, f"{name} goes with table: a query chooses its own columns")
        if not re.search(r":keys\b", str(given["query"])):
            yield FieldError("query", "query must have :keys in it: … WHERE url IN :keys")
    if fields.get("cache") == "none" and fields.get("on_outage") in ("stale", "queue"):
        yield FieldError("on-outage", f"on-outage is {fields['on_outage']}, which needs a cache")
