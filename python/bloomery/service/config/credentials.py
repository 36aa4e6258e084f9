"""URLs of a configuration file, and their secrets: those come from a file (NAME-file) or from the
environment (NAME-env), never from the configuration itself, and are never displayed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

_MOST_BYTES = 64 << 10
# As SQLAlchemy reads a URL: a password may have any character but @ in it, also / ? and #, with
# which it ends for others.
_LOGIN = re.compile(r"[\w+]+://[^:/]*:([^@]*)@")


class FieldError(Exception):
    """What is wrong with one field of a section."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name


@dataclass(frozen=True)
class Section:
    """The fields of a section as somebody wrote them; the file's folder; the environment."""

    given: Mapping[str, Any]
    folder: Path
    variables: Mapping[str, str]

    def url(self, name: str, secret: str, password: str) -> str | None:
        """Return a URL: the field NAME, without a password, or all of SECRET-file or -env."""
        url = self._secret(secret)
        try:
            urlsplit(url or "")
        except ValueError:
            raise FieldError(name, f"{name} must be a URL: its host cannot be read") from None
        if name in self.given:
            if url is not None:
                raise FieldError(name, f"{name} is there twice: give {name}, {secret}-file or -env")
            url = self._bare(name, secret, password)
        return url

    def with_password(self, url: str, name: str) -> str:
        """Return the URL with the password from NAME-file or NAME-env, if one is given."""
        password = self._secret(name)
        if password is None:
            return url
        parts = urlsplit(url)
        if parts.password or not parts.netloc:
            why = "the URL has one already" if parts.password else "this URL takes none"
            raise FieldError(name, f"{name} is given, but {why}")
        user, _, place = parts.netloc.rpartition("@")
        place = f"{user}:{quote(password, safe='')}@{place}"
        return urlunsplit((parts.scheme, place, parts.path, parts.query, parts.fragment))

    def _bare(self, name: str, secret: str, password: str) -> str:
        url = self.given[name]
        try:
            if not isinstance(url, str) or not url or not url.isprintable():
                raise ValueError
            passwords = secrets_of(url)
        except ValueError:
            raise FieldError(name, f"{name} must be a URL in quotes") from None
        if passwords:
            raise FieldError(
                name,
                f"{name} has a password in it, which must not be in this file: leave it out and "
                f"give {password}-file or {password}-env, or the whole URL by {secret}-file or "
                f"{secret}-env",
            )
        return url

    def _secret(self, name: str) -> str | None:
        """Return the secret from NAME-file or NAME-env; None if neither is given."""
        path, variable = self.given.get(f"{name}-file"), self.given.get(f"{name}-env")
        if path is not None and variable is not None:
            why = f"{name} is there twice: give {name}-file or {name}-env"
            raise FieldError(f"{name}-env", why)
        if variable is not None:
            text = self.variables.get(variable, "") if isinstance(variable, str) else ""
            if not text:
                given = f"{name}-env is {str(variable)[:60]!r}"
                raise FieldError(f"{name}-env", f"{given}, must be a variable that is set")
            return text
        return None if path is None else self._content(f"{name}-file", path)

    def _content(self, name: str, path: Any) -> str:
        given = f"{name} is {str(path)[:60]!r}"
        try:
            with open(os.path.join(self.folder, path), "rb") as file:
                text = file.read(_MOST_BYTES).decode().strip()
        except (OSError, TypeError, ValueError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else "it is no text"
            raise FieldError(name, f"{given}, must be a file that can be read: {why}") from None
        if not text:
            raise FieldError(name, f"{given}, which is empty")
        return text


def secrets_of(url: str) -> list[str]:
    """Return the passwords in a URL, percent-encoded and decoded; ValueError if it is no URL."""
    parts = urlsplit(url)
    login = _LOGIN.match(url)
    parameters = [value for key, value in parse_qsl(parts.query) if "password" in key]
    passwords = [
        password for password in (parts.password, login and login[1], *parameters) if password
    ]
    return list(
        dict.fromkeys(form for password in passwords for form in (password, unquote(password)))
    )


def public(url: str) -> str:
    """Return a URL without user, password and parameters; what is no URL as it is."""
    if "://" not in url:
        return url
    scheme, _, rest = url.partition("://")
    login = _LOGIN.match(url)
    parts = urlsplit(f"{scheme}://{url[login.end() :] if login else rest}")
    # Not by urlunsplit: without a host, sqlite:////path loses two of its slashes.
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
