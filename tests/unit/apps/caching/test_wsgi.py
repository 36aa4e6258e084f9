"""The WSGI middleware keeps to PEP 3333, on both of its sides, whatever kind of body comes."""

from collections.abc import Callable, Iterator
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from bloomery import RotatingBloomFilter
from bloomery.apps import AdmissionCache, WsgiCacheMiddleware
from bloomery.apps.caching import ANONYMOUS_HEADERS

BODY = b"a page of some bytes"
FRESH = [("Content-Type", "text/plain"), ("Cache-Control", "max-age=60")]
SIZED = [*FRESH, ("Content-Length", str(len(BODY)))]


class Body:
    """A body that says when it is closed."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = iter(pieces)
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def close(self) -> None:
        self.closed += 1


def ask(
    application: Any, method: str = "GET", read: int = 100, **environ: str
) -> tuple[str, bytes]:
    """Status and body, as a server reads them, or so many pieces of it."""
    given: dict[str, Any] = {"REQUEST_METHOD": method, "QUERY_STRING": "", **environ}
    setup_testing_defaults(given)
    statuses: list[str] = []

    def start_response(status: str, headers: Any, exc_info: Any = None) -> Any:
        statuses.append(status)
        return lambda data: None

    body = application(given, start_response)
    pieces = []
    try:
        for piece, _ in zip(body, range(read), strict=False):
            pieces.append(piece)
    finally:
        if hasattr(body, "close"):
            body.close()
    return statuses[-1], b"".join(pieces)


def wrapped(application: Callable[..., Any]) -> tuple[Any, WsgiCacheMiddleware, list[int]]:
    """The application behind the middleware, with a validator on each side; and its calls."""
    calls: list[int] = []

    def counting(environ: Any, start_response: Any) -> Any:
        calls.append(1)
        return application(environ, start_response)

    cache = AdmissionCache({}, RotatingBloomFilter(100, window=None))
    middleware = WsgiCacheMiddleware(validator(counting), cache)
    return validator(middleware), middleware, calls


def sized(environ: Any, start_response: Any) -> Any:
    start_response("200 OK", SIZED)
    return [BODY]


def lazy(environ: Any, start_response: Any) -> Any:
    start_response("200 OK", SIZED)
    yield BODY[:5]
    yield BODY[5:]


def replaced(environ: Any, start_response: Any) -> Any:
    start_response("500 Error", FRESH)
    try:
        raise ValueError
    except ValueError as problem:
        start_response("200 OK", SIZED, (ValueError, problem, None))
    return [BODY]


@pytest.mark.parametrize("application", [sized, lazy, replaced])
def test_bodies_that_are_kept(application: Callable[..., Any]) -> None:
    """A list, a generator that starts when it is read, and headers that were replaced."""
    app, middleware, calls = wrapped(application)
    for _ in range(4):
        assert ask(app) == ("200 OK", BODY)
    assert len(calls) == 2
    assert ask(app, "HEAD") == ("200 OK", b"")
    assert middleware.info()["under_way"] == 0


def test_a_list_without_a_length_is_whole() -> None:
    """A list has an end, so plain applications that leave the length to the server are cached."""

    def application(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", FRESH)
        return [BODY]

    middleware = WsgiCacheMiddleware(
        application, AdmissionCache({}, RotatingBloomFilter(100, window=None))
    )
    for _ in range(3):
        assert ask(middleware) == ("200 OK", BODY)
    assert middleware.info()["hits"] == 1


def test_a_body_is_closed_and_one_not_read_to_its_end_is_not_kept() -> None:
    """The application's `close` is called once, also when the client goes away in the middle."""
    bodies: list[Body] = []

    def application(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", SIZED)
        bodies.append(Body(BODY[:5], BODY[5:]))
        return bodies[-1]

    app, middleware, _ = wrapped(application)
    for _ in range(3):
        ask(app, read=1)
    assert [body.closed for body in bodies] == [1, 1, 1]
    assert middleware.info()["kept"] == middleware.info()["under_way"] == 0


def test_what_is_written_past_the_body_is_not_kept() -> None:
    """The old `write` of start_response still works, and such a response is not cached."""

    def application(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", SIZED)(BODY)
        return [b""]

    cache = AdmissionCache({}, RotatingBloomFilter(100, window=None))
    middleware = WsgiCacheMiddleware(application, cache)
    for _ in range(3):
        ask(middleware)
    assert middleware.info()["kept"] == 0


def test_an_application_that_fails() -> None:
    """What it raises is raised, before its body or in the middle, and nothing stays under way."""

    def at_once(environ: Any, start_response: Any) -> Any:
        raise ZeroDivisionError

    def later(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", SIZED)
        yield BODY[:5]
        raise ZeroDivisionError

    for application in (at_once, later):
        app, middleware, _ = wrapped(application)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                ask(app)
        assert middleware.info()["kept"] == middleware.info()["under_way"] == 0


def test_a_user_whom_the_server_knows() -> None:
    """REMOTE_USER is a person, though there is no Authorization in sight."""
    app, middleware, calls = wrapped(sized)
    for _ in range(3):
        ask(app, REMOTE_USER="ada")
    assert len(calls) == 3
    assert middleware.info()["bypassed"] == 3


@pytest.mark.parametrize(
    "variable",
    [
        "SSL_CLIENT_S_DN",
        "SSL_CLIENT_CERT",
        "AUTH_TYPE",
        "REMOTE_IDENT",
        "OIDC_CLAIM_sub",
        "HTTPS_DN",
        "LOGON_USER",
        "CERT_SUBJECT",
        "AUTHENTICATE_CN",
        "REDIRECT_REMOTE_USER",
        "REDIRECT_REDIRECT_SSL_CLIENT_S_DN",
        "REDIRECT_HTTP_AUTHORIZATION",
    ],
)
def test_client_certificate_and_login_of_the_server(variable: str) -> None:
    """Variables of the server name a user as headers do; an unverified client is nobody."""
    app, _, calls = wrapped(sized)
    for _ in range(3):
        ask(app, "GET", 100, **{variable: "CN=ada"})
    assert len(calls) == 3
    for _ in range(3):
        ask(
            app,
            SSL_CLIENT_VERIFY="NONE",
            SSL_CLIENT_S_DN="",
            REDIRECT_SSL_CLIENT_VERIFY="NONE",
            REDIRECT_HTTP_ACCEPT="*/*",
        )
    assert len(calls) == 5


def page(start_response: Any, text: str, *headers: tuple[str, str]) -> list[bytes]:
    """A response of this text that may be kept."""
    start_response("200 OK", [*FRESH, ("Content-Length", str(len(text))), *headers])
    return [text.encode()]


def by_content_type(environ: Any, start_response: Any) -> Any:
    return page(start_response, environ.get("CONTENT_TYPE", ""), ("Vary", "Content-Type"))


def test_vary_by_content_type() -> None:
    """WSGI has it without HTTP_ before its name."""
    app, middleware, _ = wrapped(by_content_type)
    for _ in range(3):
        for kind in ("application/json", "application/xml"):
            assert ask(app, CONTENT_TYPE=kind) == ("200 OK", kind.encode())
    assert middleware.info()["hits"] == 2


def test_unknown_headers_go_past_unless_the_response_varies_by_them() -> None:
    """A header that is on no list may name a user; one in Vary is part of the key."""

    def greeting(environ: Any, start_response: Any) -> Any:
        varied = [("Vary", "X-Colour")] if environ["QUERY_STRING"] == "varied" else []
        return page(start_response, environ.get("HTTP_X_COLOUR", "none"), *varied)

    app, middleware, calls = wrapped(greeting)
    for colour in ("red", "blue", "red", "blue", "red"):
        assert ask(app, HTTP_X_COLOUR=colour) == ("200 OK", colour.encode())
        assert ask(app, QUERY_STRING="varied", HTTP_X_COLOUR=colour) == ("200 OK", colour.encode())
    assert middleware.info()["unknown_headers"] == ["x-colour"]
    assert len(calls) == 9  # the last red of ?varied is a hit
    for _ in range(3):
        assert ask(app) == ("200 OK", b"none")
    assert ask(app, HTTP_X_COLOUR="red") == ("200 OK", b"red")
    allowing = WsgiCacheMiddleware(
        greeting,
        AdmissionCache({}, RotatingBloomFilter(100, window=None)),
        anonymous_headers=[*ANONYMOUS_HEADERS, "X-Colour"],
    )
    told = [ask(allowing, HTTP_X_COLOUR=each)[1] for each in ("a", "b", "c")]
    assert told == [b"a", b"b", b"b"]


@pytest.mark.parametrize("name", ["X-Auth-Token", "X-Remote-User", "X-SSL-Client-S-DN", "X-Nobody"])
@pytest.mark.parametrize("varies", [False, True])
def test_page_of_one_user_is_not_served_to_another(name: str, varies: bool) -> None:
    """Whichever header the proxy names the user by, and whatever the response says of it."""
    vary = [("Vary", name)] if varies else []

    def greeting(environ: Any, start_response: Any) -> Any:
        return page(start_response, environ.get(variable, "nobody"), *vary)

    variable = f"HTTP_{name.upper().replace('-', '_')}"
    app, middleware, _ = wrapped(greeting)
    for user in ("ada", "ada", "ada", "bob"):
        assert ask(app, "GET", 100, **{variable: user}) == ("200 OK", user.encode())
    assert middleware.info()["kept"] == (varies and name == "X-Nobody")
    for _ in range(3):
        assert ask(app) == ("200 OK", b"nobody")
    assert ask(app, "GET", 100, **{variable: "eve"}) == ("200 OK", b"eve")
