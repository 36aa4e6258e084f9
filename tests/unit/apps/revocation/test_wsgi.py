"""The WSGI middleware: as the ASGI one, through a checker of the protocol."""

import io
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from bloomery import BloomFilter
from bloomery.apps import WsgiRevocationMiddleware
from bloomery.errors import SourceUnavailable
from bloomery.guard import CallSource, Guard
from unit.apps.revocation.tokens import Ids, bearer


def application(environ: Any, start_response: Any) -> list[bytes]:
    """Says hello."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]


def call(app: Any, authorization: str | None = None, method: str = "GET") -> tuple[str, Any, bytes]:
    """Status, headers and body of a request."""
    environ: dict[str, Any] = {"REQUEST_METHOD": method, "QUERY_STRING": ""}
    setup_testing_defaults(environ)
    environ["wsgi.input"] = io.BytesIO()
    if authorization is not None:
        environ["HTTP_AUTHORIZATION"] = authorization
    said: list[Any] = []

    def start_response(status: str, headers: Any, exc_info: Any = None) -> Any:
        said.extend((status, dict(headers)))
        return said.append

    body = validator(app)(environ, start_response)
    try:
        data = b"".join(body)
    finally:
        body.close()  # type: ignore[attr-defined]
    return said[0], said[1], data


def status(app: Any, authorization: str | None = None) -> int:
    """The status of the response."""
    return int(call(app, authorization)[0][:3])


def test_a_revoked_token_is_refused() -> None:
    """A token on the feed is 401 with a reason, every other passes, and so does no token."""
    app = WsgiRevocationMiddleware(application, Ids(["bad"]))
    line, headers, body = call(app, bearer("bad"))
    assert (line, body) == ("401 Unauthorized", b"the token was revoked\n")
    assert "the token was revoked" in headers["WWW-Authenticate"]
    assert call(app, bearer("bad"), "HEAD")[2] == b""
    assert call(app, bearer("good")) == ("200 OK", {"Content-Type": "text/plain"}, b"hello")
    assert status(app) == 200
    assert status(app, "Bearer opaque") == 401
    info = app.info()
    counts = [info[name] for name in ("passed", "revoked", "without_token", "malformed")]
    assert counts == [1, 2, 1, 1]


def test_a_maybe_is_confirmed() -> None:
    """By a function, a container, or a guard; when that is away, nobody gets in on a maybe."""
    feed = Ids(["bad", "wrong"])
    guard = Guard(
        BloomFilter.from_keys(["bad"]), CallSource(lambda k: True if k == "bad" else None)
    )
    for confirm in (lambda token_id: token_id == "bad", {"bad"}, guard):
        app = WsgiRevocationMiddleware(application, feed, confirm=confirm)
        assert [status(app, bearer(one)) for one in ("bad", "wrong", "good")] == [401, 200, 200]

    def away(_: str) -> bool:
        raise SourceUnavailable("the database is down")

    app = WsgiRevocationMiddleware(application, feed, confirm=away)
    assert [status(app, bearer(one)) for one in ("bad", "wrong", "good")] == [503, 503, 200]
    assert call(app, bearer("bad"))[1]["Retry-After"] == "30"


@pytest.mark.parametrize("state", [{"stale": True}, {"absent": True}], ids=["stale", "absent"])
def test_a_stale_feed_fails_closed_unless_told_otherwise(state: dict[str, bool]) -> None:
    """503 without an exact check, its answers with one, the old copy's word if that is wanted."""
    app = WsgiRevocationMiddleware(application, Ids(["bad"], **state))
    assert status(app, bearer("good")) == 503
    app = WsgiRevocationMiddleware(application, Ids(["bad"], **state), confirm={"new"})
    assert [status(app, bearer(one)) for one in ("good", "new")] == [200, 401]
    app = WsgiRevocationMiddleware(application, Ids(["bad"], **state), when_stale="answer")
    assert status(app, bearer("good")) == 200


def test_an_id_of_ones_own() -> None:
    """`token_id` gets the environ."""
    app = WsgiRevocationMiddleware(
        application, Ids(["bad"]), token_id=lambda environ: environ.get("HTTP_AUTHORIZATION")
    )
    assert [status(app, one) for one in ("bad", "good", None)] == [401, 200, 200]
