"""Keys: add, contains, remove.

One key a request is what most clients send, so these go past FastAPI's own way from a request to
a function: they are in its routing table and in the OpenAPI document, and read and answer by
themselves. The server finds them by `find`, past the middleware, which would be half of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

from fastapi.routing import APIRoute
from starlette.responses import Response

from bloomery import errors
from bloomery.json_keys import decode_key
from bloomery.service.commands import AT_ONCE, NO_ROOM
from bloomery.service.engine import Outcome
from bloomery.service.http import problems
from bloomery.service.http.body import bodies, key_schemas, streams
from bloomery.service.http.login import authorize
from bloomery.service.http.route import does, routes
from bloomery.service.http.validation import check_query, consistency
from bloomery.service.parts import Parts
from bloomery.service.slices import let_go

_START = "http.response.start"
_BODY = "http.response.body"
_PLAIN = {str, int}  # keys as they are; a look at their types costs least
_FIELDS = {"key", "keys", "encoding"}
_QUERY = ("column", "consistency")
_CONSISTENCY = b"bloomery-consistency"  # a header


def _answering(operation: str) -> Any:
    """The ASGI application of one operation."""
    word = key_schemas.ANSWER_FIELDS[operation]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        context: Parts = scope["app"].state.context
        name = unquote_to_bytes(scope["path_params"]["name"])
        await authorize(context, scope, operation, name)
        check_query(scope["query_string"], _QUERY)
        if bodies.media_type(scope) != bodies.JSON:
            response = await streams.answer(context, operation, name, scope, receive)
            await response(scope, receive, send)
            return
        keys, single = await keys_in(await bodies.read(context, scope, receive))
        strong = consistency(scope) if scope["query_string"] else None
        commands = context.commands
        if operation == "contains":
            if not commands.is_strong(strong):  # else the read learns of new filters
                await commands.discover(name)
            answers = await commands.read(name, keys, strong)
        else:
            await commands.prepare(operation, name)
            write = commands.add if operation == "add" else commands.remove
            answers, refused = await commands.run(
                [name], partial(commands.change, write, name, keys)
            )
            refused = refused and commands.explain(name, refused)
            if refused is not None or NO_ROOM in answers:
                await _refusal(word, (answers, refused), single)(scope, receive, send)
                return
        if len(keys) > AT_ONCE:
            await let_go(keys)
        body = _encode(word, answers, single)
        length = (b"content-length", b"%d" % len(body))
        headers = [_JSON_HEADER, length]
        if context.node is not None:
            headers.append((_CONSISTENCY, context.node.mark(commands.is_strong(strong))))
        await send({"type": _START, "status": 200, "headers": headers})
        await send({"type": _BODY, "body": body})

    return app


_APPS = {operation: _answering(operation) for operation in key_schemas.ANSWER_FIELDS}


def find(scope: Any) -> Any:
    """The application for a request about keys, and its name in the scope; None for any other."""
    if scope["method"] == "POST":
        start, _, rest = scope["path"].partition("/filters/")
        name, _, operation = rest.partition("/")
        if name and not start and operation in _APPS:
            scope["path_params"] = {"name": name}
            return _APPS[operation]
    return None


_JSON_HEADER = (b"content-type", bodies.JSON.encode())


def _encode(word: str, answers: bytes, single: bool) -> bytes:
    """The answers as JSON: a byte each becomes a word."""
    listed = (
        answers.replace(b"\x01", b"true,")
        .replace(b"\x00", b"false,")
        .replace(bytes([NO_ROOM]), b"null,")[:-1]
    )
    return b'{"%s":%s}' % (word.encode(), listed if single else b"[%s]" % listed)


def _refusal(word: str, outcome: Outcome, single: bool) -> Response:
    """The problem of a key that was refused: which, and what became of the others."""
    answers, refused = outcome
    if refused is None:
        refused = ("not-enough-memory", "there is no memory for another key (maxmemory)")
    at = answers.index(NO_ROOM) if NO_ROOM in answers else len(answers)
    code, message = refused
    results: list[bool | None] = [None if byte == NO_ROOM else bool(byte) for byte in answers]
    more: dict[str, Any] = {} if single else {"refused_at": at, word: results}
    status, body = problems.document(code, message, **more)
    return Response(body, status, media_type=problems.MEDIA)


# From a body to keys.


async def keys_in(body: bytes) -> tuple[list[Any], bool]:
    """The keys of a request, and whether it asks for one alone."""
    cut: list[bool] = []  # were keys made of them already, as they were parsed?

    def keys_of(value: dict[str, Any], values: list[Any], before: int) -> list[Any]:
        if not cut:
            cut.append(_checked(value))
        return _keys(values, before, cut[0])

    parsed = await bodies.parse_keys(body, keys_of)
    encoded = _checked(parsed)
    if "key" in parsed:
        return [_key(0, parsed["key"], True, encoded)], True
    keys: list[Any] = parsed["keys"]
    return keys if cut else _keys(keys, 0, encoded), False


def _checked(body: Any) -> bool:
    """Whether the strings are base64; InvalidRequest if the body is not as it should be."""
    if type(body) is not dict or not body.keys() <= _FIELDS or ("key" in body) is ("keys" in body):
        raise errors.InvalidRequest(
            'the body must be {"key": …} or {"keys": […]}, and may have "encoding": "base64"'
        )
    if "keys" in body and type(body["keys"]) is not list:
        raise errors.InvalidRequest('"keys" must be an array')
    encoding = body.get("encoding", "utf-8")
    if encoding not in ("utf-8", "base64"):
        raise errors.InvalidParameter('"encoding" must be "utf-8" or "base64"')
    return bool(encoding == "base64")


def _keys(values: list[Any], before: int, encoded: bool) -> list[Any]:
    """The keys that some values of an array stand for."""
    if not encoded and _PLAIN.issuperset(map(type, values)):
        return values
    return [_key(before + at, value, False, encoded) for at, value in enumerate(values)]


def _key(at: int, value: Any, single: bool, encoded: bool) -> Any:
    """Read one key; an error says which key is wrong."""
    try:
        return decode_key(value, encoded=encoded)
    except errors.BloomeryError as problem:
        if single:
            raise
        raise type(problem)(f"keys[{at}]: {problem}") from None


# The routes.


class _KeyRoute(APIRoute):
    """A route that is answered by `_answering`."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.app = _APPS[endpoint.__name__]


router = routes(_KeyRoute)


def _described(operation: str) -> dict[str, Any]:
    word = key_schemas.ANSWER_FIELDS[operation]
    wrong = ("invalid-key", "invalid-parameter", "unsupported-key", "unsupported-batch", "null-key")
    refused = ("read-only-filter",) if word != "maybe" else ()
    return {
        "openapi_extra": {
            **does(operation),
            "parameters": [key_schemas.COLUMN, key_schemas.CONSISTENCY],
            "requestBody": key_schemas.request(),
        },
        "responses": {
            200: key_schemas.response(word),
            **problems.describe(
                *("invalid-request", "not-logged-in", "not-allowed", "unknown-filter"),
                *("request-too-large", "server-unavailable", "log-unavailable"),
                *wrong,
                *refused,
                *(("filter-full", "too-many-copies", "not-enough-memory") if word == "new" else ()),
                statuses=(408, 415),
            ),
        },
    }


@router.post("/filters/{name}/add", **_described("add"))
async def add(name: str) -> None:
    """Add keys: true where the key is definitely new, false where it may have been there."""


@router.post("/filters/{name}/contains", **_described("contains"))
async def contains(name: str) -> None:
    """Ask for keys: false is *definitely not*, true is *maybe*."""


@router.post("/filters/{name}/remove", **_described("remove"))
async def remove(name: str) -> None:
    """Take keys out, one copy of each: true where there was one."""
