"""A route of the API: who asks is known, and may, before a byte of the body is read."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import to_json

from bloomery import errors
from bloomery.service.access.audit import AUDITED
from bloomery.service.access.permissions import check
from bloomery.service.http.body import bodies
from bloomery.service.http.login import known
from bloomery.service.http.problems import Refused
from bloomery.service.http.validation import check_query

if TYPE_CHECKING:
    from bloomery.service.commands import Commands
    from bloomery.service.server import Server

__all__ = [
    *("JSON", "Answer", "Name", "Route", "also", "commands_of", "does", "done_to", "routes"),
    "server_of",
]

_T = TypeVar("_T")
JSON = b"application/json"
_OPERATION = "x-operation"


def does(operation: str) -> dict[str, Any]:
    """What a route does, by its name in `permissions.OPERATIONS`: for `openapi_extra`."""
    return {_OPERATION: operation}


def server_of(request: Request) -> Server:
    """The server that is asked."""
    return cast("Server", request.app.state.server)


def commands_of(request: Request) -> Commands:
    """What can be done to its filters, in this turn: use it before the next `await`."""
    server = server_of(request)
    server.turns.join()
    return server.commands


async def done_to(request: Request, operation: Callable[[Commands], _T], *names: bytes) -> _T:
    """Do something to whole filters; if they are large, others are served meanwhile."""
    commands = commands_of(request)
    return await server_of(request).aside.whole(names, lambda: operation(commands))


async def _name(
    name: Annotated[
        str, Path(min_length=1, description="The filter's name: any bytes, percent-encoded.")
    ],
) -> bytes:
    return unquote_to_bytes(name)


Name = Annotated[bytes, Depends(_name)]


class Answer(Response):
    """A value as JSON. What is no number (not known, without end) is null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content, inf_nan_mode="null")


class Route(APIRoute):
    """A route whose `openapi_extra` says what it `does`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, behind the checks."""
        handle = super().get_route_handler()
        operation = (self.openapi_extra or {})[_OPERATION]
        takes_body = self.body_field is not None
        asked = [field.alias for field in self.dependant.query_params]

        async def checked(request: Request) -> Response:
            scope, state = request.scope, request.state
            quoted = request.path_params.get("name")
            state.operation, state.user = operation, None
            state.names = [] if quoted is None else [unquote_to_bytes(quoted)]
            try:
                server = server_of(request)
                state.user = await known(server, scope)
                check(state.user, operation, *state.names)
                await server.commands.discover(*state.names)
                response = await answered(request)
            except (errors.NotAllowed, errors.NotLoggedIn):
                _note(request, "refused")
                raise
            except Exception:
                _note(request, "failed")
                raise
            _note(request, "done")
            return response

        async def answered(request: Request) -> Response:
            scope, server = request.scope, server_of(request)
            check_query(scope["query_string"], asked)
            if takes_body:
                if bodies.media_type(scope) != JSON:
                    raise Refused("the body must be JSON: Content-Type: application/json", 415)
                body = await server.http.bodies.read(scope, request.receive, bodies.MOST_PLAIN)
                request = _Parsed(scope, request.receive, body, bodies.parse_plain(body))
            return await handle(request)

        return checked


def also(request: Request, operation: str, *names: bytes) -> None:
    """Raise unless whoever asks may do this to these filters too, which the body names."""
    request.state.names += names
    check(request.state.user, operation, *names)


def _note(request: Request, outcome: str) -> None:
    """Note what is administrative in the audit log."""
    state = request.state
    if state.operation in AUDITED:
        server_of(request).audit.note(
            None if state.user is None else state.user.name,
            request.client.host if request.client else "",
            "http",
            state.operation,
            outcome,
            command=f"{request.method} {request.scope['route'].path}",
            names=state.names,
        )


def routes(route: type[APIRoute] = Route) -> APIRouter:
    """A place for routes of a kind; in the document each has the name of its function."""
    return APIRouter(route_class=route, generate_unique_id_function=lambda one: one.name)


class _Parsed(Request):
    """A request whose body was read and parsed."""

    def __init__(self, scope: Any, receive: Any, body: bytes, value: Any) -> None:
        super().__init__(scope, receive)
        self._read = body
        self._value = value

    async def body(self) -> bytes:
        return self._read

    async def json(self) -> Any:
        return self._value
