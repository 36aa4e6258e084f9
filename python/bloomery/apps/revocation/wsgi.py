"""WSGI middleware that refuses revoked tokens (Flask, Django, plain WSGI)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from bloomery.apps.revocation.tokens import bearer_token_id
from bloomery.apps.revocation.verdicts import RevokedIds, Verdicts, WhenStale
from bloomery.flow import drive

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class WsgiRevocationMiddleware:
    """A WSGI application that nobody reaches with a revoked token.

        feed = Subscriber("https://example.org/revoked/", "copy", "ed25519:…").start("1min")
        app = WsgiRevocationMiddleware(app, feed, confirm=is_revoked)

    As `AsgiRevocationMiddleware` has it; `token_id` gets the environ, and `confirm` is a function,
    a guard or a container. It does **not** verify tokens.
    """

    def __init__(
        self,
        app: Application,
        feed: RevokedIds,
        *,
        confirm: Any = None,
        token_id: Callable[[dict[str, Any]], Any] | None = None,
        when_stale: WhenStale = "refuse",
    ) -> None:
        self._app, self._token_id = app, token_id or _bearer
        self._verdicts = Verdicts(feed, confirm, when_stale)

    def info(self) -> dict[str, Any]:
        """How many requests passed or were revoked, unconfirmed, malformed or without a token, how
        many maybes were wrong, and what the feed says of itself."""
        return self._verdicts.info()

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        confirm: Any = self._verdicts.confirm
        refusal = drive(self._verdicts.judge(lambda: self._token_id(environ)), confirm)
        if refusal is None:
            return self._app(environ, start_response)
        start_response(refusal.line, refusal.headers)
        return [] if environ.get("REQUEST_METHOD") == "HEAD" else [refusal.body]


def _bearer(environ: dict[str, Any]) -> str | None:
    value = environ.get("HTTP_AUTHORIZATION")
    return bearer_token_id([] if value is None else [str(value)])
