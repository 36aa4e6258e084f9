"""The ASGI middleware: revoked tokens do not get in, by any message of ASGI."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.apps import AsgiRevocationMiddleware
from bloomery.errors import InvalidParameter, SourceUnavailable
from bloomery.feeds import PrivateKey, Subscriber, publish
from bloomery.guard import AsyncGuard, CallSource, Guard
from conftest import require
from unit.apps.revocation.tokens import Ids, bearer


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Says hello; a WebSocket is accepted."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
    elif scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})
    else:
        await send({"type": f"{scope['type']}.done"})


def call(app: Any, *authorization: str, kind: str = "http", **scope: Any) -> list[Any]:
    """The messages of a request with these Authorization headers."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": f"{kind}.connect" if kind == "websocket" else "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"authorization", value.encode()) for value in authorization]
    whole = {"type": kind, "method": "GET", "headers": headers, **scope}
    asyncio.run(app(whole, receive, send))
    return sent


def status(app: Any, *authorization: str, **scope: Any) -> int:
    """The status of the response."""
    return int(call(app, *authorization, **scope)[0]["status"])


def test_a_revoked_token_is_refused() -> None:
    """A token on the feed is 401 with a reason, every other passes, and so does no token."""
    app = AsgiRevocationMiddleware(application, Ids(["bad"]))
    start, body = call(app, bearer("bad"))
    headers = dict(start["headers"])
    assert start["status"] == 401
    assert headers[b"www-authenticate"] == (
        b'Bearer error="invalid_token", error_description="the token was revoked"'
    )
    assert headers[b"cache-control"] == b"no-store"
    assert body["body"] == b"the token was revoked\n"
    assert int(headers[b"content-length"]) == len(body["body"])
    assert status(app, bearer("good")) == 200
    assert status(app) == 200
    assert status(app, "Basic dXNlcjpwYXNz") == 200
    assert call(app, bearer("bad"), method="HEAD")[1]["body"] == b""
    info = app.info()
    assert (info["passed"], info["revoked"], info["without_token"]) == (1, 2, 2)


def test_a_websocket_with_a_revoked_token_is_closed() -> None:
    """It is not accepted; one with a valid token is."""
    app = AsgiRevocationMiddleware(application, Ids(["bad"]))
    (closed,) = call(app, bearer("bad"), kind="websocket")
    assert (closed["type"], closed["code"]) == ("websocket.close", 1008)
    assert call(app, bearer("good"), kind="websocket") == [{"type": "websocket.accept"}]
    stale = AsgiRevocationMiddleware(application, Ids([], stale=True))
    assert call(stale, bearer("good"), kind="websocket")[0]["code"] == 1013


def test_other_scopes_pass() -> None:
    """A lifespan has no token."""
    app = AsgiRevocationMiddleware(application, Ids([], absent=True))
    assert call(app, kind="lifespan") == [{"type": "lifespan.done"}]


def test_a_malformed_token_is_refused() -> None:
    """A bearer token whose id cannot be told is 401, whatever the feed says."""
    app = AsgiRevocationMiddleware(application, Ids([]))
    start, _ = call(app, "Bearer opaque")
    assert start["status"] == 401
    assert b"one signed JWT" in dict(start["headers"])[b"www-authenticate"]
    assert app.info()["malformed"] == 1


def test_an_id_of_ones_own() -> None:
    """`token_id` may take the id from what a verifying layer left; its ValueError is a refusal,
    whose words cannot break out of the header."""

    def session(scope: Any) -> Any:
        if "session" not in scope:
            raise ValueError('no "session"\r\nSet-Cookie: x')
        return scope["session"]

    app = AsgiRevocationMiddleware(application, Ids(["s-1"]), token_id=session)
    assert status(app, session="s-1") == 401
    assert status(app, session="s-2") == 200
    assert status(app, session=None) == 200
    start, _ = call(app)
    said = dict(start["headers"])[b"www-authenticate"]
    assert start["status"] == 401
    assert b"\r" not in said
    assert b"\n" not in said
    assert said.count(b'"') == 4


def in_coroutine(revoked: set[str]) -> Any:
    async def confirm(token_id: str) -> bool:
        await asyncio.sleep(0)
        return token_id in revoked

    return confirm


CONFIRM: dict[str, Any] = {
    "coroutine": in_coroutine,
    "function": lambda revoked: lambda token_id: token_id in revoked,
    "lambda of a coroutine": lambda revoked: lambda token_id: in_coroutine(revoked)(token_id),
    "container": lambda revoked: revoked,
    "filter": lambda revoked: BloomFilter.from_keys(revoked, 1e-9),
    "guard": lambda revoked: Guard(
        BloomFilter.from_keys(["bad", "wrong"]), CallSource(lambda k: k in revoked or None)
    ),
}


@pytest.mark.parametrize("kind", CONFIRM)
def test_a_maybe_is_confirmed(kind: str) -> None:
    """The exact check, whatever it is, tells a revoked token from a wrong maybe; it is not asked
    about a *no*."""
    app = AsgiRevocationMiddleware(
        application, Ids(["bad", "wrong"]), confirm=CONFIRM[kind]({"bad", "not on the feed"})
    )
    assert status(app, bearer("bad")) == 401
    assert status(app, bearer("wrong")) == 200
    assert status(app, bearer("not on the feed")) == 200
    assert app.info()["wrong_maybes"] == 1


def test_an_async_guard_confirms() -> None:
    """An AsyncGuard is asked on the same loop."""

    async def ask() -> list[int]:
        async def look_up(token_id: str) -> Any:
            return True if token_id == "bad" else None

        guard = AsyncGuard(BloomFilter.from_keys(["bad", "wrong"]), CallSource(look_up))
        app = AsgiRevocationMiddleware(application, Ids(["bad", "wrong"]), confirm=guard)
        codes = []
        for token_id in ("bad", "wrong"):
            sent: list[Any] = []

            async def receive() -> dict[str, Any]:
                return {"type": "http.request"}

            async def send(message: Any, sent: list[Any] = sent) -> None:
                sent.append(message)

            headers = [(b"Authorization", bearer(token_id).encode())]
            scope = {"type": "http", "method": "GET", "headers": headers}
            await app(scope, receive, send)
            codes.append(sent[0]["status"])
        await guard.close()
        return codes

    assert asyncio.run(ask()) == [401, 200]


def away(_: str) -> bool:
    raise SourceUnavailable("the database is down")


def test_an_exact_check_that_is_away_lets_nobody_in_on_a_maybe() -> None:
    """A maybe is 503 then, a *no* passes; also where a guard answers what it cannot confirm."""
    app = AsgiRevocationMiddleware(application, Ids(["bad"]), confirm=away)
    start, _ = call(app, bearer("bad"))
    assert (start["status"], dict(start["headers"])[b"retry-after"]) == (503, b"30")
    assert status(app, bearer("good")) == 200
    guard = Guard(BloomFilter.from_keys(["bad"]), CallSource(away), on_outage="maybe")
    app = AsgiRevocationMiddleware(application, Ids(["bad"]), confirm=guard)
    assert status(app, bearer("bad")) == 503


@pytest.mark.parametrize("state", [{"stale": True}, {"absent": True}], ids=["stale", "absent"])
def test_a_stale_feed_fails_closed(state: dict[str, bool]) -> None:
    """No *no* of it counts: tokens are refused, or all asked of the exact check."""
    app = AsgiRevocationMiddleware(application, Ids(["bad"], **state))
    assert status(app, bearer("good")) == 503
    assert status(app, bearer("bad")) == (503 if "absent" in state else 401)
    assert status(app) == 200
    app = AsgiRevocationMiddleware(application, Ids(["bad"], **state), confirm={"bad", "new"})
    assert status(app, bearer("good")) == 200
    assert status(app, bearer("bad")) == 401
    assert status(app, bearer("new")) == 401
    assert app.info()["wrong_maybes"] == 0


def test_a_stale_feed_may_fail_open() -> None:
    """With when_stale="answer" the old copy's word is taken, and without one everybody gets in."""
    app = AsgiRevocationMiddleware(application, Ids(["bad"], stale=True), when_stale="answer")
    assert status(app, bearer("good")) == 200
    assert status(app, bearer("bad")) == 401
    app = AsgiRevocationMiddleware(application, Ids([], absent=True), when_stale="answer")
    assert status(app, bearer("bad")) == 200


def test_a_subscriber_is_the_feed(tmp_path: Path) -> None:
    """From the id that was published to the refusal; when the copy's time is over, all are."""
    require("cryptography")
    key, now = PrivateKey.create(tmp_path / "key"), [1_000_000.0]
    filter = BloomFilter.from_keys(["bad"], 1e-9)
    publish(filter, tmp_path / "feed", key, expires_in="1h", clock=lambda: now[0])
    feed = Subscriber(tmp_path / "feed", tmp_path / "copy", key.public, clock=lambda: now[0])
    app = AsgiRevocationMiddleware(application, feed)
    assert status(app, bearer("good")) == 503
    feed.update()
    assert [status(app, bearer(one)) for one in ("bad", "good")] == [401, 200]
    now[0] += 3600
    assert [status(app, bearer(one)) for one in ("bad", "good")] == [401, 503]
    assert app.info()["feed"]["version"] == 1


def test_absurd_options_are_refused() -> None:
    """A misspelt setting does not fail open."""
    with pytest.raises(InvalidParameter, match="when_stale is 'allow', must be"):
        AsgiRevocationMiddleware(application, Ids([]), when_stale="allow")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="confirm is int, must be"):
        AsgiRevocationMiddleware(application, Ids([]), confirm=5)
