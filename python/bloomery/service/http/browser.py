"""What a browser sends along: the cookie of a session, and the CSRF token of this server's pages.

Whatever a browser asks to be changed has to bring the token that the server wrote into its own
page. Programs send no cookie and none of the headers that only browsers send, and need no token;
nor does who logs in by the Authorization header, which no page of others can set.
"""

from __future__ import annotations

import hmac
from typing import Any

from bloomery import errors
from bloomery.service.access.sessions import Sessions

Scope = Any  # of ASGI

CSRF_HEADER = b"x-csrf-token"
_SAFE = ("GET", "HEAD", "OPTIONS")
_ONLY_BROWSERS = (b"sec-fetch-site", b"origin", CSRF_HEADER)


def is_browser(scope: Scope) -> bool:
    """Whether a browser sent this, as far as can be told."""
    headers = scope["headers_by_name"]
    return any(name in headers for name in _ONLY_BROWSERS)


def session_token(scope: Scope) -> str | None:
    """The token in the cookie of a session; None without."""
    value = scope["headers_by_name"].get(b"cookie")
    if value is None:
        return None
    # Not by the library, which stops at the first cookie that is odd, whoever's it is.
    pairs = (pair.partition("=") for pair in value.decode("latin-1").split(";"))
    cookies = {name.strip(): text.strip() for name, _, text in pairs}
    token = cookies.get(_name(scope, secure=True))
    if token is None and scope["scheme"] != "https":  # there, whoever is between could set one
        token = cookies.get(_name(scope, secure=False))
    return token


def cookie(scope: Scope, token: str | None, seconds: int) -> str:
    """The Set-Cookie that keeps a token in the browser; None: that takes it away."""
    origin = scope["headers_by_name"].get(b"origin", b"")
    secure = scope["scheme"] == "https" or origin.startswith(b"https://")  # by way of a proxy
    parts = [
        f"{_name(scope, secure=secure)}={token or ''}",
        "Path=/",
        "HttpOnly",
        "SameSite=Strict",
    ]
    parts.append(f"Max-Age={0 if token is None else seconds}")
    return "; ".join([*parts, "Secure"] if secure else parts)


def _name(scope: Scope, *, secure: bool) -> str:
    # With the port: to a browser, all servers of a machine share their cookies.
    server = scope.get("server") or ("", 0)
    return f"{'__Host-' if secure else ''}bloomery-{server[1]}"


def check_csrf(sessions: Sessions, scope: Scope, token: str | None) -> None:
    """Raise unless what a browser wants changed comes from a page of this server's. `token`: of
    the session that it is done in."""
    if scope["method"] in _SAFE or not (token is not None or is_browser(scope)):
        return
    given = scope["headers_by_name"].get(CSRF_HEADER, b"")
    if not hmac.compare_digest(given, sessions.csrf_token(token).encode()):
        raise errors.NotAllowed(
            "a browser asks without the token of this server's page (X-CSRF-Token): load it again"
        )
