"""The WSGI middleware keeps to PEP 3333, on both of its sides, whatever kind of body comes."""

from collections.abc import Callable, Iterator
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from bloomery import RotatingBloomFilter
from bloomery.apps import AdmissionCache, WsgiCacheMiddleware

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
