"""What a browser sends along: cookies of sessions, and CSRF tokens."""

from typing import Any

import pytest

from bloomery import errors
from bloomery.service.access.sessions import Sessions
from bloomery.service.config.settings import Settings
from bloomery.service.http.browser import check_csrf, cookie, is_browser, session_token


def scope(method: str = "GET", scheme: str = "http", **headers: str) -> dict[str, Any]:
    """A request, as far as it is looked at."""
    named = {name.replace("_", "-").encode(): text.encode() for name, text in headers.items()}
    return {
        "method": method,
        "scheme": scheme,
        "headers_by_name": named,
        "server": ("127.0.0.1", 8100),
    }


@pytest.mark.parametrize(
    ("given", "name", "more"),
    [
        (scope(), "bloomery-8100", ""),
        (scope(scheme="https"), "__Host-bloomery-8100", "; Secure"),
        (scope(origin="https://filters.example.org"), "__Host-bloomery-8100", "; Secure"),
    ],
)
def test_the_cookie_is_for_this_server_alone(given: dict[str, Any], name: str, more: str) -> None:
    """No script reads it, no other site has it sent; over TLS it is locked to this host."""
    text = f"{name}=abc; Path=/; HttpOnly; SameSite=Strict; Max-Age=60{more}"
    assert cookie(given, "abc", 60) == text
    assert cookie(given, None, 60).startswith(f"{name}=; ")
    assert "Max-Age=0" in cookie(given, None, 60)
    back = scope(scheme=given["scheme"], cookie=f"a=b; odd cookie; {name}=abc; {{}}=;;")
    assert session_token(back) == "abc"


def test_over_tls_only_the_locked_cookie_counts() -> None:
    """A cookie that somebody between could have set over plain HTTP is not looked at over TLS, and
    those of another port never."""
    assert session_token(scope(scheme="https", cookie="bloomery-8100=abc")) is None
    assert session_token(scope(cookie="bloomery-8101=abc")) is None
    assert session_token(scope()) is None


def test_what_a_browser_changes_needs_a_token() -> None:
    """Programs and reading need none; a browser, or a session, needs its own."""
    sessions = Sessions(Settings())
    right, other = sessions.csrf_token("mine"), sessions.csrf_token(None)
    check_csrf(sessions, scope("POST"), None)
    check_csrf(sessions, scope("GET", sec_fetch_site="same-origin"), "mine")
    check_csrf(sessions, scope("POST", x_csrf_token=right), "mine")
    check_csrf(sessions, scope("POST", x_csrf_token=other, sec_fetch_site="same-origin"), None)
    for given, token in (
        (scope("POST"), "mine"),
        (scope("DELETE", x_csrf_token=other), "mine"),
        (scope("POST", x_csrf_token=right), None),
        (scope("POST", sec_fetch_site="same-origin"), None),
        (scope("PATCH", origin="http://localhost:8100"), None),
        (scope("POST", x_csrf_token=""), None),
    ):
        with pytest.raises(errors.NotAllowed, match="X-CSRF-Token"):
            check_csrf(sessions, given, token)
    assert not is_browser(scope(user_agent="Mozilla/5.0"))
