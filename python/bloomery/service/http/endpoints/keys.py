"""Keys: add, contains, remove.

One key a request is what most clients send, so these go past FastAPI's own way from a request to
a function: they are in its routing table and in the OpenAPI document, and read and answer by
themselves. The door finds them by `find`, past the middleware, which would be half of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from fastapi.routing import APIRoute
from starlette.responses import Response

from bloomery import errors
from bloomery.json_keys import decode_key
from bloomery.service.commands import NO_ROOM, Commands, Outcome
from bloomery.service.http import problems
from bloomery.service.http.body import bodies, key_schemas, streams
from bloomery.service.http.endpoints.consistency import CONSISTENCY, HEADER, consistency
from bloomery.service.http.login import admit
from bloomery.service.http.route import JSON, does, routes
from bloomery.service.http.validation import check_query
from bloomery.service.slices import let_go

if TYPE_CHECKING:
    from bloomery.service.server import Server

__all__ = ["find", "keys_in", "router"]

_START = "http.response.start"
_BODY = "http.response.body"
_MANY = 4096  # keys: of fewer, in one go, it is a matter of a millisecond
_PLAIN = {str, int}  # keys as they are; a look at their types costs least
_FIELDS = {"key", "keys", "encoding"}
_QUERY = ("column", "consistency")


def _answering(operation: str) -> Any:
    """The ASGI application of one operation."""
    word = {"add": "new", "contains": "maybe", "remove": "removed"}[operation]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        server: Server = scope["app"].state.server
        name = unquote_to_bytes(scope["path_params"]["name"])
        await admit(server, scope, operation, name)
        check_query(scope["query_string"], _QUERY)
        media = bodies.media_type(scope)
        if media != JSON:
            told = await streams.answer(server, operation, name, scope, receive)
            await told(scope, receive, send)
            return
        keys, one = await keys_in(await server.http.bodies.read(scope, receive))
        await server.aside.free(name)
        server.turns.join()
        shared = consistency(scope) if scope["query_string"] else None
        exactly = server.node is not None and server.commands.asks_store(shared)
        many = len(keys) > _MANY and not exactly
        if operation == "contains":
            if many:
                answers = await server.commands.contains_all(name, keys)
            else:
                answers = await server.commands.contained(name, keys, shared)
        else:
            if exactly and operation == "add":
                answers, refused = await server.commands.added(name, keys, shared)
            elif many:
                answers, refused = await _change_all(server.commands, operation, name, keys)
                server.turns.join()
            else:
                change = partial(_change, server.commands, operation, name, keys)
                answers, refused = await server.commands.apart(name, change)
            refused = refused and server.commands.explain(name, refused)
            await server.turns.logged()
            if refused is not None or NO_ROOM in answers:
                await _refusal(word, (answers, refused), one)(scope, receive, send)
                return
        if many:
            await let_go(keys)
        body = _told(word, answers, one)
        length = (b"content-length", b"%d" % len(body))
        headers = [_JSON_HEADER, length]
        if server.node is not None:
            headers.append((HEADER, server.node.mark(exactly)))
        await send({"type": _START, "status": 200, "headers": headers})
        await send({"type": _BODY, "body": body})

    return app


_APPS = {operation: _answering(operation) for operation in ("add", "contains", "remove")}


def find(scope: Any) -> Any:
    """The application for a request about keys, and its name in the scope; None for any other."""
    if scope["method"] == "POST":
        start, _, rest = scope["path"].partition("/filters/")
        name, _, operation = rest.partition("/")
        if name and not start and operation in _APPS:
            scope["path_params"] = {"name": name}
            return _APPS[operation]
    return None


_JSON_HEADER = (b"content-type", JSON)


def _change(commands: Commands, operation: str, name: bytes, keys: list[Any]) -> Outcome:
    return commands.add(name, keys) if operation == "add" else commands.remove(name, keys)


async def _change_all(commands: Commands, operation: str, name: bytes, keys: list[Any]) -> Outcome:
    work = commands.add_all if operation == "add" else commands.remove_all
    return await work(name, keys)


def _told(word: str, answers: bytes, one: bool) -> bytes:
    """The answers as JSON: a byte each becomes a word."""
    listed = (
        answers.replace(b"\x01", b"true,")
        .replace(b"\x00", b"false,")
        .replace(bytes([NO_ROOM]), b"null,")[:-1]
    )
    return b'{"%s":%s}' % (word.encode(), listed if one else b"[%s]" % listed)


def _refusal(word: str, outcome: Outcome, one: bool) -> Response:
    """The problem of a key that was refused: which, and what became of the others."""
    answers, refused = outcome
    if refused is None:
        refused = ("not-enough-memory", "there is no memory for another key (maxmemory)")
    at = answers.index(NO_ROOM) if NO_ROOM in answers else len(answers)
    code, message = refused
    told: list[bool | None] = [None if byte == NO_ROOM else bool(byte) for byte in answers]
    more: dict[str, Any] = {} if one else {"refused_at": at, word: told}
    status, body = problems.document(code, message, **more)
    return Response(body, status, media_type=problems.MEDIA)


# From a body to keys.


async def keys_in(body: bytes) -> tuple[list[Any], bool]:
    """The keys of a request, and whether it asks for one alone."""
    cut: list[bool] = []  # were keys made of them already, as they were parsed?

    def keys_of(value: dict[str, Any], some: list[Any], before: int) -> list[Any]:
        if not cut:
            cut.append(_checked(value))
        return _keys(some, before, cut[0])

    found = await bodies.parse_keys(body, keys_of)
    encoded = _checked(found)
    if "key" in found:
        return [_key(0, found["key"], True, encoded)], True
    keys: list[Any] = found["keys"]
    return keys if cut else _keys(keys, 0, encoded), False


def _checked(found: Any) -> bool:
    """Whether the strings are base64; InvalidRequest if the body is not as it should be."""
    if (
        type(found) is not dict
        or not found.keys() <= _FIELDS
        or ("key" in found) is ("keys" in found)
    ):
        raise errors.InvalidRequest(
            'the body must be {"key": …} or {"keys": […]}, and may have "encoding": "base64"'
        )
    if "keys" in found and type(found["keys"]) is not list:
        raise errors.InvalidRequest('"keys" must be an array')
    encoding = found.get("encoding", "utf-8")
    if encoding not in ("utf-8", "base64"):
        raise errors.InvalidParameter('"encoding" must be "utf-8" or "base64"')
    return bool(encoding == "base64")


def _keys(values: list[Any], before: int, encoded: bool) -> list[Any]:
    """The keys that some values of an array stand for."""
    if not encoded and _PLAIN.issuperset(map(type, values)):
        return values
    return [_key(before + at, value, False, encoded) for at, value in enumerate(values)]


def _key(at: int, value: Any, one: bool, encoded: bool) -> Any:
    """One key; what is wrong with it says which it is."""
    try:
        return decode_key(value, encoded=encoded)
    except errors.BloomeryError as problem:
        if one:
            raise
        raise type(problem)(f"keys[{at}]: {problem}") from None


# The routes.


class _KeyRoute(APIRoute):
    """A route that is answered by `_answer`."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.app = _APPS[endpoint.__name__]


router = routes(_KeyRoute)


def _described(operation: str, word: str) -> dict[str, Any]:
    wrong = ("invalid-key", "invalid-parameter", "unsupported-key", "unsupported-batch", "null-key")
    refused = ("read-only-filter",) if word != "maybe" else ()
    return {
        "openapi_extra": {
            **does(operation),
            "parameters": [key_schemas.COLUMN, CONSISTENCY],
            "requestBody": key_schemas.request(),
        },
        "responses": {
            200: key_schemas.response(word),
            **problems.describe(
                *("invalid-request", "not-logged-in", "not-allowed", "unknown-filter"),
                *("request-too-large", "server-unavailable", "log-unavailable"),
                *wrong,
                *refused,
                *(("filter-full", "not-enough-memory") if word == "new" else ()),
                statuses=(408, 415),
            ),
        },
    }


@router.post("/filters/{name}/add", **_described("add", "new"))
async def add(name: str) -> None:
    """Add keys: true where the key is definitely new, false where it may have been there."""


@router.post("/filters/{name}/contains", **_described("contains", "maybe"))
async def contains(name: str) -> None:
    """Ask for keys: false is *definitely not*, true is *maybe*."""


@router.post("/filters/{name}/remove", **_described("remove", "removed"))
async def remove(name: str) -> None:
    """Take keys out, one copy of each: true where there was one."""
