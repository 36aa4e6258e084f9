"""Who asks: the Authorization header of a request, and whether that one may do it."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from bloomery import errors
from bloomery.service.http.bodies import header
from bloomery.service.permissions import ANYBODY, User, check

if TYPE_CHECKING:
    from bloomery.service.server import Server

__all__ = ["admit", "known"]

Scope = Any  # of ASGI: a dict, whose values differ


async def admit(server: Server, scope: Scope, operation: str, *names: bytes) -> None:
    """Raise unless whoever asks may do this to filters of these names."""
    check(await known(server, scope), operation, *names)


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
        found = await server.access.by_token(given.strip().decode("latin-1"), address)
    elif scheme.lower() == b"basic":
        try:
            pair = base64.b64decode(given.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise errors.NotLoggedIn("the Basic credentials are not base64 of UTF-8") from None
        user, _, password = pair.partition(":")
        found = await server.access.by_password(user, password, address)
    else:
        raise errors.NotLoggedIn("Authorization must be Bearer and a token, or Basic")
    return found
