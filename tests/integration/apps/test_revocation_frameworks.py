"""Genuine frameworks verify no revoked token after the middleware, whatever the header.

Each application here verifies the signature with PyJWT and answers 200 only if it found the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple
from wsgiref.util import setup_testing_defaults

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery.apps import AsgiRevocationMiddleware, WsgiRevocationMiddleware
from conftest import require
from unit.apps.revocation.readers import READERS, joined
from unit.apps.revocation.tokens import Ids

jwt = require("jwt")

SECRET = "a secret of 32 bytes or more, for HMAC"
CLAIMS = {"sub": "alice", "type": "access", "fresh": False, "iat": 0, "exp": 1 << 40}
BAD, GOOD = (jwt.encode(CLAIMS | {"jti": jti}, SECRET, "HS256") for jti in ("bad", "good"))
SIGNED = BAD.rpartition(".")[0]


def _is_valid(token: str) -> bool:
    try:
        jwt.decode(token, SECRET, ["HS256"])
    except jwt.InvalidTokenError:
        return False
    return True


class Framework(NamedTuple):
    """An application of a framework."""

    protocol: Literal["wsgi", "asgi"]
    app: Any
    reader: str  # of `READERS`, which says how it reads the header
    scheme: str = "Bearer"


def _flask(scheme: str) -> Framework:
    flask, extended = require("flask"), require("flask_jwt_extended")
    app = flask.Flask(__name__)
    app.config.update(JWT_SECRET_KEY=SECRET, JWT_HEADER_TYPE=scheme)
    extended.JWTManager(app)
    app.add_url_rule("/", view_func=extended.jwt_required()(lambda: "hello"))
    reader = {"Bearer": "", "JWT": ", JWT", "": ", no scheme"}[scheme]
    return Framework("wsgi", app, f"flask-jwt-extended{reader}", scheme)


def _werkzeug() -> Framework:
    werkzeug = require("werkzeug")

    def answer(request: Any) -> Any:
        credentials = request.authorization
        bearer = credentials is not None and credentials.type == "bearer"
        found = bearer and credentials.token is not None and _is_valid(credentials.token)
        return werkzeug.Response(status=200 if found else 401)

    return Framework("wsgi", werkzeug.Request.application(answer), "Werkzeug")


@cache
def _django() -> Any:
    """Django REST with a view of each keyword, at a path of its own."""
    django, conf = require("django"), require("django.conf")
    require("rest_framework")
    conf.settings.configure(
        SECRET_KEY=SECRET,
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        INSTALLED_APPS=["rest_framework"],
        REST_FRAMEWORK={"UNAUTHENTICATED_USER": None},
    )
    django.setup()
    token_authentication: Any = require("rest_framework.authentication").TokenAuthentication
    permission: Any = require("rest_framework.permissions").BasePermission
    api_view: Any = require("rest_framework.views").APIView
    failed = require("rest_framework.exceptions").AuthenticationFailed
    response = require("rest_framework.response").Response

    def view(keyword: str) -> Any:
        class TokenAuthentication(token_authentication):  # type: ignore[misc]
            def authenticate_credentials(self, key: str) -> Any:
                if not _is_valid(key):
                    raise failed("invalid token")
                return object(), key

        class HasToken(permission):  # type: ignore[misc]
            def has_permission(self, request: Any, view: Any) -> bool:
                return request.auth is not None

        class View(api_view):  # type: ignore[misc]
            authentication_classes = (TokenAuthentication,)
            permission_classes = (HasToken,)
            renderer_classes = (require("rest_framework.renderers").JSONRenderer,)

            def get(self, request: Any) -> Any:
                return response("hello")

        TokenAuthentication.keyword = keyword
        return View.as_view()

    path = require("django.urls").path
    globals()["urlpatterns"] = [path("Token", view("Token")), path("Bearer", view("Bearer"))]
    return django


def _django_rest(protocol: Literal["wsgi", "asgi"], keyword: str) -> Framework:
    _django()
    core = require(f"django.core.{protocol}")
    app = core.get_wsgi_application() if protocol == "wsgi" else core.get_asgi_application()
    reader = "Django REST" if keyword == "Token" else "Django REST, Bearer"
    return Framework(protocol, app, reader, keyword)


def _fastapi(security: str) -> Framework:
    fastapi, schemes = require("fastapi"), require("fastapi.security")
    app = fastapi.FastAPI()
    options = {"tokenUrl": "token"} if security == "OAuth2PasswordBearer" else {}
    depends = fastapi.Depends(getattr(schemes, security)(**options))

    def endpoint(found: Any = depends) -> Any:
        if not _is_valid(getattr(found, "credentials", found)):
            raise fastapi.HTTPException(401)
        return "hello"

    app.add_api_route("/{_:path}", endpoint)
    return Framework("asgi", app, "FastAPI")


def _starlette() -> Framework:
    """Its AuthenticationMiddleware, with a backend as its documentation has it."""
    auth, responses = require("starlette.authentication"), require("starlette.responses")
    backend: Any = auth.AuthenticationBackend
    middleware = require("starlette.middleware.authentication").AuthenticationMiddleware

    class Backend(backend):  # type: ignore[misc]
        async def authenticate(self, conn: Any) -> Any:
            if "Authorization" not in conn.headers:
                return None
            try:
                scheme, credentials = conn.headers["Authorization"].split()
            except ValueError:
                return None
            if scheme.lower() != "bearer" or not _is_valid(credentials):
                return None
            return auth.AuthCredentials(["authenticated"]), auth.SimpleUser("alice")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        status = 200 if scope["user"].is_authenticated else 401
        await responses.Response(status_code=status)(scope, receive, send)

    return Framework("asgi", middleware(app, backend=Backend()), "Starlette")


FRAMEWORKS: dict[str, Callable[[], Framework]] = {
    "flask-jwt-extended": lambda: _flask("Bearer"),
    "flask-jwt-extended, JWT": lambda: _flask("JWT"),
    "flask-jwt-extended, no scheme": lambda: _flask(""),
    "Werkzeug": _werkzeug,
    "Django REST, WSGI": lambda: _django_rest("wsgi", "Token"),
    "Django REST, WSGI, Bearer": lambda: _django_rest("wsgi", "Bearer"),
    "Django REST, ASGI": lambda: _django_rest("asgi", "Token"),
    "Django REST, ASGI, Bearer": lambda: _django_rest("asgi", "Bearer"),
    "FastAPI, HTTPBearer": lambda: _fastapi("HTTPBearer"),
    "FastAPI, OAuth2PasswordBearer": lambda: _fastapi("OAuth2PasswordBearer"),
    "Starlette": _starlette,
}


@pytest.fixture(scope="module", params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> Framework:
    return FRAMEWORKS[request.param]()


def _status_wsgi(app: Any, path: str, lines: Sequence[str]) -> int:
    """Return the status of a request; the server has joined the lines, as servers do."""
    environ: dict[str, Any] = {"PATH_INFO": path, "REQUEST_METHOD": "GET"}
    setup_testing_defaults(environ)
    if lines:
        environ["HTTP_AUTHORIZATION"] = joined(lines)
    said: list[str] = []
    body: Iterable[bytes] = app(environ, lambda status, *_: said.append(status))
    b"".join(body)
    close = getattr(body, "close", None)
    if close is not None:
        close()
    return int(said[0][:3])


async def _status_asgi(app: Any, path: str, lines: Sequence[str]) -> int:
    sent: list[Any] = []
    over = asyncio.Event()
    received = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        if received:
            return received.pop()
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "headers": [
            (b"host", b"127.0.0.1"),
            *((b"authorization", line.encode("latin-1")) for line in lines),
        ],
    }
    await app(scope, receive, send)
    over.set()
    return int(sent[0]["status"])


def _statuses(framework: Framework, headers: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Return the status of a request with each header, without the middleware and with it."""
    path = f"/{framework.scheme}" if framework.reader.startswith("Django") else "/"
    if framework.protocol == "wsgi":
        guarded = WsgiRevocationMiddleware(framework.app, Ids(["bad"]))
        return [
            (_status_wsgi(framework.app, path, one), _status_wsgi(guarded, path, one))
            for one in headers
        ]

    async def ask() -> list[tuple[int, int]]:
        guarded = AsgiRevocationMiddleware(framework.app, Ids(["bad"]))
        return [
            (
                await _status_asgi(framework.app, path, one),
                await _status_asgi(guarded, path, one),
            )
            for one in headers
        ]

    return asyncio.run(ask())


def test_a_token_reaches_the_application_unless_it_is_revoked(framework: Framework) -> None:
    """The usual header: the application accepts both tokens, and the middleware one."""
    headers = [[f"{framework.scheme} {token}".strip()] for token in (BAD, GOOD)]
    assert _statuses(framework, headers) == [(200, 401), (200, 200)]


def _hostile(scheme: str) -> list[list[str]]:
    return [
        [f"Basic x, {scheme} {BAD}"],
        [f"Basic x,{scheme} {BAD},"],
        ["Basic x", f"{scheme} {BAD}"],
        [f"{scheme} {BAD}", "Basic x"],
        [f"{scheme} {GOOD}", f"{scheme} {BAD}"],
        [f"{scheme} {BAD}", f"{scheme} {GOOD}"],
        [f"{scheme}\t{BAD}"],
        [f"{scheme}  {BAD} "],
        [f" {scheme} {BAD}"],
        [f"{scheme.lower()} {BAD}"],
        [f"{scheme.upper()} {BAD}"],
        [f"{scheme} {BAD},"],
        [f",{scheme} {BAD}"],
        [f"{scheme} {BAD}!"],
        [f"{scheme} {BAD}="],
        [f"{scheme} {BAD}\x00"],
        [f"{scheme}\xa0{BAD}"],
        [f"{scheme}\x1f{BAD}"],
        [f"{scheme}:{BAD}"],
        [f'{scheme} "{BAD}"'],
        [f"{scheme} token={BAD}"],
        [f"{scheme} {scheme} {BAD}"],
        [f"Digest a=b, c=d, {scheme} {BAD}, Digest e=f"],
        [BAD],
        [f"Token {BAD}"],
        [f"JWT {BAD}"],
    ]


def _check(framework: Framework, headers: Sequence[Sequence[str]]) -> int:
    """Compare the framework with its reader and the middleware; return how many it accepted."""
    accepted = 0
    reader = READERS[framework.reader]
    for lines, (plain, guarded) in zip(headers, _statuses(framework, headers), strict=True):
        if plain != 200:
            continue
        found = reader(lines) or ""
        if found.startswith(f"{SIGNED}."):
            accepted += 1
            assert guarded == 401, lines
        else:
            assert found.startswith(f"{GOOD.rpartition('.')[0]}."), (lines, found)
    return accepted


def test_no_hostile_header_gets_a_revoked_token_in(framework: Framework) -> None:
    """The application alone accepts several of these; after the middleware it gets none."""
    assert _check(framework, _hostile(framework.scheme)) >= 2


PIECES = [BAD, BAD, GOOD, "Bearer", "bearer", "Basic", "Token", "JWT", "Digest", "dXNlcjpwYXNz"]
MARKS = [" ", " ", "  ", ",", ", ", "\t", "=", '"', ".", ";", "\xa0", "\x1f", "!", "a=b"]
LINE = st.lists(st.sampled_from([*PIECES, *MARKS, *MARKS]), max_size=6).map("".join)
HEADERS = st.lists(st.lists(LINE, min_size=1, max_size=2), min_size=20, max_size=40)


@given(HEADERS)
def test_no_header_gets_a_revoked_token_in(framework: Framework, headers: list[list[str]]) -> None:
    """Pieces of headers in any order."""
    _check(framework, headers)
