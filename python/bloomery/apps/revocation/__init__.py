"""Middleware that refuses revoked tokens, by a feed of their ids.

    AsgiRevocationMiddleware   WsgiRevocationMiddleware   a request in, an answer or a refusal out
                │                        │
                ├── tokens ──────────────┤   which id a request's token has
                └── verdicts ────────────┘   a no: in; a maybe: the exact check, or refused

A *no* of the feed is certain, so a token that is not on it costs one look into memory. A *maybe* is
a revoked token, or a valid one that the filter takes for it: the exact check behind tells them
apart. A revoked token is never let in by a wrong answer of the filter, since there is none that
way round. docs/revocation.md has what a wrong maybe costs.
"""

from bloomery.apps.revocation.asgi import AsgiRevocationMiddleware
from bloomery.apps.revocation.tokens import bearer_token_id
from bloomery.apps.revocation.wsgi import WsgiRevocationMiddleware

__all__ = ["AsgiRevocationMiddleware", "WsgiRevocationMiddleware", "bearer_token_id"]
