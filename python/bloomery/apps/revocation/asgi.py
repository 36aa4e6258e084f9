"""ASGI middleware that refuses revoked tokens (FastAPI, Starlette, Django)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from bloomery.apps.revocation.tokens import bearer_token_id
from bloomery.apps.revocation.verdicts import RevokedIds, Verdicts, WhenStale
from bloomery.flow import drive_async

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
_POLICY_VIOLATION, _TRY_AGAIN_LATER = 1008, 1013  # codes of a WebSocket that is closed


class AsgiRevocationMiddleware:
    """An ASGI application that nobody reaches with a revoked token, by HTTP or by WebSocket.

        feed = Subscriber("https://example.org/revoked/", "copy", "ed25519:…").start("1min")
        app = AsgiRevocationMiddleware(app, feed, confirm=is_revoked)

    It does **not** verify tokens: whoever verifies their signature stands before or behind it.
    `feed` knows the revoked ids, as a Subscriber or any filter does. `token_id` gives the id of a
    request's token from the scope: None if it has none, and the request passes; a ValueError if it
    is malformed, which is refused. Without it, that is the `jti` of the only JWT in Authorization,
    unverified; a header that frameworks could read differently is refused. `confirm` is the exact
    check for a *maybe*: a function or coroutine that says whether an id was revoked, a guard, or a
    container; without it, a maybe is refused. A function that is no coroutine runs in a thread.

    When the feed is stale, or there is no copy yet, a *no* is no longer certain: `confirm` is asked
    about every token, and without it all are refused (503). `when_stale="answer"` takes the old
    copy's word instead, so a token that was revoked since gets in.
    """

    def __init__(
        self,
        app: Application,
        feed: RevokedIds,
        *,
        confirm: Any = None,
        token_id: Callable[[Message], Any] | None = None,
        when_stale: WhenStale = "refuse",
    ) -> None:
        self._app, self._token_id = app, token_id or _bearer
        self._verdicts = Verdicts(feed, confirm, when_stale)

    def info(self) -> dict[str, Any]:
        """How many requests passed or were revoked, unconfirmed, malformed or without a token, how
        many maybes were wrong, and what the feed says of itself."""
        return self._verdicts.info()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] in ("http", "websocket"):
            judging = self._verdicts.judge(lambda: self._token_id(scope))
            refusal = await drive_async(judging, self._confirmed)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()  # the request to connect
            code = _POLICY_VIOLATION if refusal.status == 401 else _TRY_AGAIN_LATER
            close = {"type": "websocket.close", "code": code, "reason": refusal.description}
            await send(close)
        else:
            headers = [(name.lower().encode(), value.encode()) for name, value in refusal.headers]
            start = {"type": "http.response.start", "status": refusal.status, "headers": headers}
            await send(start)
            body = b"" if scope["method"] == "HEAD" else refusal.body
            await send({"type": "http.response.body", "body": body})

    async def _confirmed(self, token_id: Any) -> Any:
        """The answer of the exact check: of a coroutine here, of a function in a thread."""
        confirm: Any = self._verdicts.confirm
        if inspect.iscoroutinefunction(confirm):
            return await confirm(token_id)
        from asyncio import to_thread  # which `bloomery.apps` does without: 17 ms of an import

        answer = await to_thread(confirm, token_id)
        return await answer if inspect.isawaitable(answer) else answer


def _bearer(scope: Message) -> str | None:
    names = scope["headers"]
    return bearer_token_id([v.decode("latin-1") for n, v in names if n.lower() == b"authorization"])
