"""A route of the API, which authenticates and authorizes before a byte of the body is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.routing import APIRoute

from bloomery import errors
from bloomery.service.access.audit import AUDITED
from bloomery.service.access.permissions import check
from bloomery.service.commands import Commands
from bloomery.service.http.body import bodies
from bloomery.service.http.encoding import encode_json
from bloomery.service.http.limits import MAX_PLAIN_BODY
from bloomery.service.http.login import authenticate
from bloomery.service.http.validation import check_query
from bloomery.service.parts import Parts

_T = TypeVar("_T")
_OPERATION = "x-operation"


def does(operation: str) -> dict[str, Any]:
    """What a route does, by its name in `permissions.OPERATIONS`: for `openapi_extra`."""
    return {_OPERATION: operation}


def context_of(request: Request) -> Parts:
    """The parts of the server that endpoints use."""
    return cast("Parts", request.app.state.context)


def commands_of(request: Request) -> Commands:
    """Return the commands of the server."""
    context = context_of(request)
    context.sequencer.join()
    return context.commands


async def apply_to_filters(
    request: Request, operation: Callable[[Commands], Awaitable[_T]], *names: bytes
) -> _T:
    """Do something to whole filters; if they are large, others are served meanwhile."""
    commands = commands_of(request)
    return await commands.run(names, lambda: operation(commands))


async def _name(
    name: Annotated[
        str, Path(min_length=1, description="The filter's name: any bytes, percent-encoded.")
    ],
) -> bytes:
    return unquote_to_bytes(name)


Name = Annotated[bytes, Depends(_name)]


class ApiResponse(Response):
    """A value as JSON. What is no number (not known, without end) is null."""

    media_type = bodies.JSON

    def render(self, content: Any) -> bytes:
        return encode_json(content)


class Route(APIRoute):
    """A route whose `openapi_extra` says what it `does`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, behind the checks."""
        handle = super().get_route_handler()
        operation = (self.openapi_extra or {})[_OPERATION]
        takes_body = self.body_field is not None
        parameters = [field.alias for field in self.dependant.query_params]

        async def checked(request: Request) -> Response:
            scope, state = request.scope, request.state
            quoted = request.path_params.get("name")
            state.operation, state.user = operation, None
            state.names = [] if quoted is None else [unquote_to_bytes(quoted)]
            try:
                context = context_of(request)
                state.user = await authenticate(context, scope)
                check(state.user, operation, *state.names)
                await context.commands.prepare(operation, *state.names)
                response = await parsed_and_handled(request)
            except (errors.NotAllowed, errors.NotLoggedIn):
                _audit(request, "refused")
                raise
            except Exception:
                _audit(request, "failed")
                raise
            _audit(request, "done")
            return response

        async def parsed_and_handled(request: Request) -> Response:
            scope, receive = request.scope, request.receive
            check_query(scope["query_string"], parameters)
            if takes_body:
                bodies.require_json(scope)
                body = await bodies.read(context_of(request), scope, receive, MAX_PLAIN_BODY)
                request = _ParsedRequest(scope, receive, body, bodies.parse_plain(body))
            return await handle(request)

        return checked


def authorize_as(request: Request, operation: str, *names: bytes) -> None:
    """Raise unless whoever asks may do this, which the request turned out to be; it is noted in
    the audit log as this."""
    request.state.operation = operation
    check(request.state.user, operation, *names)


def authorize_also(request: Request, operation: str, *names: bytes) -> None:
    """Raise unless whoever asks may do this to these filters too, which the body names."""
    request.state.names += names
    check(request.state.user, operation, *names)


def _audit(request: Request, outcome: str) -> None:
    """Write what is administrative to the audit log."""
    state = request.state
    if state.operation in AUDITED:
        context_of(request).audit.note(
            None if state.user is None else state.user.name,
            request.client.host if request.client else "",
            "http",
            state.operation,
            outcome,
            command=f"{request.method} {request.scope['route'].path}",
            names=state.names,
        )


def routes(route_class: type[APIRoute] = Route) -> APIRouter:
    """Return a router whose routes have the names of their functions in the OpenAPI document."""
    return APIRouter(route_class=route_class, generate_unique_id_function=lambda route: route.name)


class _ParsedRequest(Request):
    """A request whose body was read and parsed."""

    def __init__(self, scope: Any, receive: Any, body: bytes, value: Any) -> None:
        super().__init__(scope, receive)
        self._read = body
        self._value = value

    async def body(self) -> bytes:
        return self._read

    async def json(self) -> Any:
        return self._value
