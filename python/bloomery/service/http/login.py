"""Log in by the Authorization header of a request, or by the session of a page, and check what its
user may do."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from bloomery import errors
from bloomery.service.access.permissions import ANYBODY, User, check
from bloomery.service.http import browser
from bloomery.service.http.body.bodies import header
from bloomery.service.http.problems import NoSession
from bloomery.service.parts import Parts

Scope = Any  # of ASGI: a dict, whose values differ


async def authorize(context: Parts, scope: Scope, operation: str, *names: bytes) -> None:
    """Raise unless the request's user may do this to filters of these names."""
    check(await authenticate(context, scope), operation, *names)


def reauthorize(context: Parts, scope: Scope, operation: str, *names: bytes) -> None:
    """Raise unless the user still may do this: a stream may last for days."""
    if context.access.required:
        login = scope.get("login")
        current = None if login is None or login.over() else context.access.current(login)
        check(None if current is None else current.user, operation, *names)


async def authenticate(context: Parts, scope: Scope) -> User | None:
    """Who asks; None if the request does not try to log in. NotLoggedIn if it fails."""
    if not context.access.required:
        browser.check_csrf(scope["app"].state.sessions, scope, None)
        return ANYBODY
    value = header(scope, b"authorization")
    if value is None:
        return _by_session(context, scope)
    client = scope.get("client")
    address = client[0] if client else ""
    scheme, _, credentials = value.partition(b" ")
    if scheme.lower() == b"bearer":
        token = credentials.strip().decode("latin-1")
        login = await context.access.log_in(None, token, address, protocol="http")
    elif scheme.lower() == b"basic":
        try:
            pair = base64.b64decode(credentials.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise errors.NotLoggedIn("the Basic credentials are not base64 of UTF-8") from None
        user, _, password = pair.partition(":")
        login = await context.access.log_in(user, password, address, protocol="http")
    else:
        raise errors.NotLoggedIn("Authorization must be Bearer and a token, or Basic")
    scope["login"] = login
    return login.user


def _by_session(context: Parts, scope: Scope) -> User | None:
    """Who asks, by the cookie of a page; None if a program asks, which has none."""
    sessions, token = scope["app"].state.sessions, browser.session_token(scope)
    login = None if token is None else sessions.find(token)
    current = None if login is None else context.access.current(login)
    if current is None:
        if browser.is_browser(scope):
            raise NoSession("log in first: there is no session, or it is over")
        return None
    browser.check_csrf(sessions, scope, token)
    scope["login"] = current
    return current.user
