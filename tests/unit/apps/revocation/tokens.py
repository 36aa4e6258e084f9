"""Tokens and feeds for the tests of revocation."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

from bloomery.errors import FeedUnavailable


def encoded(value: Any) -> str:
    """A part of a JWT."""
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def token(claims: Any) -> str:
    """A JWT with these claims; its signature is nobody's."""
    return f"{encoded({'alg': 'EdDSA'})}.{encoded(claims)}.{encoded('signature')}"


def bearer(token_id: str) -> str:
    """An Authorization header with a token of this id."""
    return f"Bearer {token({'jti': token_id, 'sub': 'somebody'})}"


class Ids:
    """Revoked ids, which may be stale or not there."""

    def __init__(self, ids: Iterable[str], *, stale: bool = False, absent: bool = False) -> None:
        self._ids, self.stale, self._absent = set(ids), stale or absent, absent

    def __contains__(self, key: object) -> bool:
        if self._absent:
            raise FeedUnavailable("no copy yet")
        return key in self._ids
