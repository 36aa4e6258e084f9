"""No framework finds a revoked token in a header that the middleware lets pass."""

import asyncio
from collections.abc import Sequence
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bloomery.apps import AsgiRevocationMiddleware, WsgiRevocationMiddleware
from conftest import require
from unit.apps.revocation.readers import READERS, Reader, joined
from unit.apps.revocation.tokens import Ids, token

BAD, GOOD = token({"jti": "bad"}), token({"jti": "good"})
SIGNED = BAD.rpartition(".")[0]  # a verifier accepts any spelling of the signature after it

# Each of these reached an application with a revoked token, by at least one of the readers.
HOSTILE: list[list[str]] = [
    [f"Basic x, Bearer {BAD}"],
    [f"Basic x,Bearer {BAD},"],
    [f"Basic x,\tBearer {BAD}"],
    ["Basic x", f"Bearer {BAD}"],
    [f"Digest a=b, c=d, Bearer {BAD}, Digest e=f"],
    [f"JWT {BAD}"],
    [f"Token {BAD}"],
    [f"Basic {BAD}"],
    [BAD],
    [f"Bearer{BAD}"],
    [f"x-Bearer{BAD}"],
    [f"Digest username=Bearer {BAD}"],
    [f'Digest username="Token {BAD}'],
    [f"Token {BAD}!"],
    [f"Basic x, Bearer {BAD}*"],
]


def passes_wsgi(*lines: str) -> bool:
    """Return whether a request reaches the application; the server has joined the lines."""
    reached: list[bool] = []

    def application(environ: Any, start_response: Any) -> list[bytes]:
        reached.append(True)
        start_response("200 OK", [])
        return []

    environ: dict[str, Any] = {}
    setup_testing_defaults(environ)
    if lines:
        environ["HTTP_AUTHORIZATION"] = joined(lines)
    app = WsgiRevocationMiddleware(application, Ids(["bad"]))
    app(environ, lambda *_: lambda _: None)
    return bool(reached)


def passes_asgi(*lines: str) -> bool:
    """Return whether a request with these header lines reaches the application."""
    reached: list[bool] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        reached.append(True)

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        pass

    headers = [(b"authorization", line.encode("latin-1")) for line in lines]
    app = AsgiRevocationMiddleware(application, Ids(["bad"]))
    asyncio.run(app({"type": "http", "method": "GET", "headers": headers}, receive, send))
    return bool(reached)


def finds_revoked(reader: Reader, lines: Sequence[str]) -> bool:
    """Return whether a verifier behind this reader would accept the revoked token."""
    return (reader(lines) or "").startswith(f"{SIGNED}.")


@pytest.mark.parametrize("lines", HOSTILE, ids=lambda lines: "|".join(lines)[:24])
def test_no_reader_gets_a_revoked_token(lines: list[str]) -> None:
    """At least one framework finds the revoked token here, and the middleware refuses it."""
    both = (lines, [joined(lines)])
    assert any(finds_revoked(reader, one) for reader in READERS.values() for one in both)
    assert not passes_wsgi(*lines)
    assert not passes_asgi(*lines)


PIECES = [BAD, GOOD, SIGNED, "Bearer", "bearer", "Basic", "Token", "JWT", "Digest", "dXNlcjpwYXNz"]
MARKS = [" ", "  ", ",", ", ", "\t", "=", '"', ".", ";", "\xa0", "\x1f", "!", "e", "a=b"]
LINE = st.lists(st.sampled_from([*PIECES, *MARKS, *MARKS]), max_size=8).map("".join)


@settings(max_examples=500)
@given(st.lists(LINE, min_size=1, max_size=2))
def test_no_reader_gets_a_revoked_token_from_any_header(lines: list[str]) -> None:
    """Whatever the pieces and their order: if a framework finds it, the request does not pass."""
    found = any(finds_revoked(reader, lines) for reader in READERS.values())
    assert not (found and passes_asgi(*lines))
    found = any(finds_revoked(reader, [joined(lines)]) for reader in READERS.values())
    assert not (found and passes_wsgi(*lines))


@pytest.mark.parametrize(
    "line",
    [
        "Basic dXNlcjpwYXNz",
        'Digest username="Mufasa", realm="keyboard.cat.example.org", uri="/dir/index.en.html"',
        'Digest username="forbearer", realm="example.org"',
        "AWS4-HMAC-SHA256 Credential=AKIA/20130524/us-east-1/s3/aws4_request, Signature=fe5f",
        "Negotiate YIIGeyJxLg==",
        "eyJh.b",
        "",
    ],
)
def test_headers_of_other_schemes_pass(line: str) -> None:
    """The application decides about them, as about a request without the header."""
    assert passes_wsgi(line)
    assert passes_asgi(line)


def test_fastapi_gets_no_revoked_token() -> None:
    """The genuine HTTPBearer does not find one either, and its reader here reads as it does."""
    security = require("fastapi.security")
    requests = require("starlette.requests")
    bearer = security.HTTPBearer(auto_error=False)

    def ask(lines: Sequence[str]) -> str | None:
        headers = [(b"authorization", line.encode("latin-1")) for line in lines]
        found = asyncio.run(bearer(requests.Request({"type": "http", "headers": headers})))
        return None if found is None else str(found.credentials)

    for lines in [*HOSTILE, [f"Bearer {BAD}"], [f"bearer  {BAD} "], ["Bearer"], [""], []]:
        assert ask(lines) == READERS["FastAPI"](lines)
        assert not (finds_revoked(ask, lines) and passes_asgi(*lines))
