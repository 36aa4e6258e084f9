"""The id of a request's token: the `jti` of a JWT in its Authorization header, read strictly.

Nothing is verified here: whoever reads a JWT must have it verified by others, before or behind.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

from bloomery.errors import InvalidKey

_MAX_CHARACTERS = 16 << 10
_PART = "[A-Za-z0-9_-]+"
# The scheme ends where its name does: what follows a tab, say, is not taken for no token at all.
_BEARER = re.compile(r"bearer(?![A-Za-z0-9!#$%&'*+.^_`|~-])", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_JWT = re.compile(rf"bearer +{_PART}\.({_PART})\.{_PART}", re.IGNORECASE)


def bearer_token_id(authorization: Sequence[str]) -> str | None:
    """Return the `jti` of the JWT in a request's Authorization headers, without verifying it.

    None if there is no bearer token. InvalidKey if there is one whose id cannot be told beyond
    doubt: two headers, no JWT of three parts, a member that is there twice, no `jti`, or one that
    is no text.
    """
    if not any(_BEARER.match(value.strip()) for value in authorization):
        return None
    if len(authorization) > 1:
        raise InvalidKey("more than one Authorization header")
    text = authorization[0].strip()
    if len(text) > _MAX_CHARACTERS:
        raise InvalidKey(f"a token of more than {_MAX_CHARACTERS:,} characters")
    match = _JWT.fullmatch(text)
    if match is None:
        raise InvalidKey("the bearer token is no signed JWT: three parts in base64url")
    try:
        padded = match[1] + "=" * (-len(match[1]) % 4)
        data = base64.b64decode(padded, b"-_", validate=True)
        claims = json.loads(data.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise InvalidKey("the token's claims are not JSON in which each is there once") from None
    token_id = claims.get("jti") if isinstance(claims, dict) else None
    if not isinstance(token_id, str) or not token_id or _SURROGATE.search(token_id):
        raise InvalidKey("the token has no id (jti), so nobody can say whether it was revoked")
    return token_id


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Members as they are; who verifies the token may take the first of two, and we the last."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is there twice")
    return members
