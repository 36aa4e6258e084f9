"""The id of a request's token: the `jti` of a JWT in its Authorization header, read strictly.

Nothing is verified here: the library that verifies tokens runs before this middleware or after it.
That library reads the header in its own way. Some take the token after the first space, others one
of several values with commas between them, others what follows the word *Bearer* anywhere. So this
module looks for tokens in the whole header, and accepts only the one form that all of them read the
same way: one header, a scheme, a space, a JWT.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

from bloomery.errors import InvalidKey

_MAX_CHARACTERS = 16 << 10
_MAX_STARTS = 32  # places in a dotted text where a JWT could start; a real one has one or two
_PART = "[A-Za-z0-9_-]+"
_NAME = "A-Za-z0-9!#$%&'*+.^_`|~-"  # characters of a scheme's name, for a character class
# As a word, anywhere: after a comma, in a second value, before a tab instead of a space.
_BEARER = re.compile(rf"(?<![{_NAME}])bearer(?![{_NAME}])", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_JWT = re.compile(rf"(?:[A-Za-z][A-Za-z0-9_-]* +)?{_PART}\.({_PART})\.{_PART}")
_DOTTED = re.compile(r"[A-Za-z0-9_.-]+")
_OBJECT_START = re.compile("e[yw]")  # base64url of `{` and a quote, a space or a line break


def bearer_token_id(authorization: Sequence[str]) -> str | None:
    """Return the `jti` of the JWT in a request's Authorization headers, without verifying it.

    Returns None if no header contains a bearer token or a JWT of any scheme. Raises InvalidKey if
    two readers could find different tokens, or none and one: more than one header or value, a token
    that is not a JWT of three parts, a member that occurs twice, or a `jti` that is missing or not
    text.
    """
    if not any(_BEARER.search(value) or _has_jwt(value) for value in authorization):
        return None
    if len(authorization) > 1:
        raise InvalidKey("more than one Authorization header; send one")
    text = authorization[0].strip()
    if len(text) > _MAX_CHARACTERS:
        raise InvalidKey(f"a token of more than {_MAX_CHARACTERS:,} characters")
    match = _JWT.fullmatch(text)
    if match is None:
        raise InvalidKey(
            "the Authorization header must be Bearer, a space and one signed JWT: three parts in"
            " base64url"
        )
    claims = _decoded(match[1])
    token_id = claims.get("jti") if isinstance(claims, dict) else None
    if not isinstance(token_id, str) or not token_id or _SURROGATE.search(token_id):
        raise InvalidKey("the token has no id (jti), so nobody can say whether it was revoked")
    return token_id


def _decoded(part: str) -> Any:
    try:
        data = base64.b64decode(part + "=" * (-len(part) % 4), b"-_", validate=True)
        return json.loads(data.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise InvalidKey("the token's claims are not JSON in which each is there once") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members. Of two with one name, a verifier may read the first and we the last."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is there twice")
    return members


def _has_jwt(value: str) -> bool:
    """Return whether a JWT is anywhere in a value, even without a space before it.

    Its first two parts are signed as they are, so no sender can spell them another way.
    """
    for text in _DOTTED.findall(value):
        for part in text.split(".")[:-2]:
            starts = [match.start() for match in _OBJECT_START.finditer(part)]
            if len(starts) > _MAX_STARTS or any(_is_object(part[at:]) for at in starts):
                return True
    return False


def _is_object(part: str) -> bool:
    """Return whether this is a JSON object in base64url, as the header of a JWT is."""
    try:
        text = base64.b64decode(part + "=" * (-len(part) % 4), b"-_")
        return isinstance(json.loads(text), dict)
    except RecursionError:
        return True
    except ValueError:
        return False
