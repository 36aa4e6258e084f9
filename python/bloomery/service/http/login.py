"""Who asks: the Authorization header of a request, and whether that one may do it."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from bloomery import errors
from bloomery.service.access.permissions import ANYBODY, User, check
from bloomery.service.http.body.bodies import header

if TYPE_CHECKING:
    from bloomery.service.server import Server

__all__ = ["admit", "check_again", "known"]

Scope = Any  # of ASGI: a dict, whose values differ


async def admit(server: Server, scope: Scope, operation: str, *names: bytes) -> None:
    """Raise unless whoever asks may do this to filters of these names; and hear of those that
    another node has just made."""
    check(await known(server, scope), operation, *names)
    await server.commands.discover(*names)


def check_again(server: Server, scope: Scope, operation: str, *names: bytes) -> None:
    """Raise unless who was let do this still may: what comes as a stream may come for days."""
    if server.access.required:
        login = scope.get("login")
        found = None if login is None or login.over() else server.access.current(login)
        check(None if found is None else found.user, operation, *names)


async def known(server: Server, scope: Scope) -> User | None:
    """Who asks; None if the request does not try to log in. NotLoggedIn if it fails."""
    if not server.access.required:
        return ANYBODY
    value = header(scope, b"authorization")
    if value is None:
        return None
    client = scope.get("client")
    address = client[0] if client else ""
    scheme, _, given = value.partition(b" ")
    if scheme.lower() == b"bearer":
        token = given.strip().decode("latin-1")
        login = await server.access.log_in(None, token, address, door="http")
    elif scheme.lower() == b"basic":
        try:
            pair = base64.b64decode(given.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise errors.NotLoggedIn("the Basic credentials are not base64 of UTF-8") from None
        user, _, password = pair.partition(":")
        login = await server.access.log_in(user, password, address, door="http")
    else:
        raise errors.NotLoggedIn("Authorization must be Bearer and a token, or Basic")
    scope["login"] = login
    return login.user
