"""The id of a bearer token is told beyond doubt, or the token is malformed."""

import pytest

from bloomery.apps import bearer_token_id
from bloomery.errors import InvalidKey
from unit.apps.revocation.tokens import bearer, encoded, token


@pytest.mark.parametrize("name", ["Bearer", "bearer", "BEARER", "Bearer  "])
def test_the_jti_of_a_bearer_token(name: str) -> None:
    """The scheme's case does not matter, the id's does."""
    assert bearer_token_id([f"{name} {token({'jti': 'A-1'})}"]) == "A-1"
    assert bearer_token_id([bearer("żelazo")]) == "żelazo"


@pytest.mark.parametrize("headers", [[], ["Basic dXNlcjpwYXNz"], ["Bearerish x"], [""]])
def test_no_bearer_token(headers: list[str]) -> None:
    """A request without one has no id."""
    assert bearer_token_id(headers) is None


MALFORMED = {
    "nothing": "Bearer",
    "a space": "Bearer ",
    "a tab": "Bearer\t" + token({"jti": "1"}),
    "opaque": "Bearer 0123456789abcdef",
    "two parts": "Bearer a.b",
    "five parts": "Bearer a.b.c.d.e",
    "an empty part": f"Bearer {encoded({})}..{encoded('s')}",
    "padding": f"Bearer {encoded({})}.{encoded({'jti': 'x'})}=.{encoded('s')}",
    "two tokens": f"Bearer {token({'jti': '1'})}, Bearer {token({'jti': '2'})}",
    "no base64": f"Bearer {encoded({})}.A.{encoded('s')}",
    "no JSON": f"Bearer {token('hello')}",
    "no object": f"Bearer {token(['jti'])}",
    "no jti": f"Bearer {token({'sub': 'x'})}",
    "a number": f"Bearer {token({'jti': 7})}",
    "an empty id": f"Bearer {token({'jti': ''})}",
    "null": f"Bearer {token({'jti': None})}",
    "twice": "Bearer " + token('{"jti": "good", "jti": "bad"}'),
    "a lone surrogate": "Bearer " + token('{"jti": "\\ud800"}'),
    "deep": "Bearer " + token("[" * 5000),
    "too long": "Bearer " + token({"jti": "x" * 20_000}),
}


@pytest.mark.parametrize("header", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_token_that_leaves_a_doubt_is_malformed(header: str) -> None:
    """Whatever another reader could take for another id is no id here."""
    with pytest.raises(InvalidKey):
        bearer_token_id([header])


def test_two_headers_are_malformed() -> None:
    """Who verifies might take the other one."""
    with pytest.raises(InvalidKey, match="more than one Authorization"):
        bearer_token_id([bearer("1"), bearer("2")])
    with pytest.raises(InvalidKey):
        bearer_token_id(["Basic x", bearer("2")])
