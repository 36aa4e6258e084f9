"""The application: FastAPI's, with our routes and our problems."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match, Route

from bloomery import __version__, errors
from bloomery.browser import MODULE
from bloomery.service.access.permissions import User
from bloomery.service.access.sessions import Sessions
from bloomery.service.http import models, problems, validation
from bloomery.service.http.body import key_schemas
from bloomery.service.http.endpoints import file, filters, health, keys, lookup, maintenance, nodes
from bloomery.service.http.pages import routes as pages
from bloomery.service.http.pages.board import Board
from bloomery.service.http.problems import Refused
from bloomery.service.http.request_cycle import ClientDisconnected
from bloomery.service.observe.server_figures import ServerFigures
from bloomery.service.parts import Parts

_ABOUT = (
    "Have I seen this before? A *no* is certain. A *maybe* is wrong no more often than you allowed."
)
# Those of keys first: they are asked for most, and found by looking through all in order.
_ROUTERS = (
    *(keys.router, lookup.router, filters.router, maintenance.router, file.router),
    *(health.watching, health.router, nodes.router),
)


def make(not_ready: Callable[[bool], str] = lambda writes: "loading") -> FastAPI:
    """Return FastAPI's part. `not_ready` returns why clients may not use the server, to write
    (True) or to read. Requests need what `Application` puts into `app.state`."""
    app = FastAPI(
        title="bloomery",
        version=__version__,
        description=_ABOUT,
        openapi_url=None,  # ours, below
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.not_ready, app.state.exports = not_ready, WeakSet()
    for router in _ROUTERS:
        # Not `include_router`, which makes other routes of them, and ours answer by themselves.
        app.router.routes.extend(router.routes)
    for kind in (errors.BloomeryError, MemoryError, Exception):
        app.add_exception_handler(kind, _failed)
    app.add_exception_handler(HTTPException, _of_http)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _not_valid)  # type: ignore[arg-type]
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    app.add_route("/openapi.json", _openapi, include_in_schema=False)
    app.add_route("/bloomery.js", _module, include_in_schema=False)
    app.router.routes.extend(pages.ALL)
    return app


class Application:
    """The ASGI application of a running server. Requests about keys go past FastAPI."""

    def __init__(
        self,
        context: Parts,
        not_ready: Callable[[bool], str],
        metrics: Callable[[User], bytes],
        server_figures: Callable[[], ServerFigures],
    ) -> None:
        """`metrics` returns those that a user may see, as Prometheus reads them; `server_figures`
        those of the server itself."""
        self._app = make(not_ready)
        state = self._app.state
        state.context, state.sessions = context, Sessions(context.settings)
        state.metrics, state.server_figures = metrics, server_figures
        state.board = Board(context)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Respond to a request."""
        endpoint = keys.find(scope)
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        scope["app"] = self._app
        try:
            await endpoint(scope, receive, send)
        except ClientDisconnected:
            raise
        except Exception as problem:
            await failure(problem)(scope, receive, send)
            if not isinstance(problem, (errors.BloomeryError, MemoryError)):
                raise


# Problems.


def failure(problem: Exception) -> Response:
    """The response to a request that failed."""
    if isinstance(problem, errors.BloomeryError):
        return problems.response(problem)
    if isinstance(problem, MemoryError):
        text = str(problem) or "there is no memory for that"
        return problems.response(errors.NotEnoughMemory(text))
    status, body = problems.document("error", "an error of the server, which has printed more")
    return Response(body, status, media_type=problems.MEDIA)


async def _failed(request: Request, problem: Exception) -> Response:
    return failure(problem)


async def _of_http(request: Request, problem: HTTPException) -> Response:
    """What Starlette says: there is no such path, or it does not take this method."""
    if problem.status_code == 405:
        allow = ", ".join(sorted(_methods(request)))
        return problems.response(Refused(f"this path takes {allow}", 405, allow))
    if problem.status_code == 404:
        return problems.response(Refused("there is no such path: /openapi.json has all", 404))
    return problems.response(Refused(str(problem.detail), problem.status_code))


def _methods(request: Request) -> set[str]:
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return methods


async def _not_valid(request: Request, problem: RequestValidationError) -> Response:
    differences = validation.differences(problem.errors()[:20])
    detail = "; ".join(f"{field['where']}: {field['what']}" for field in differences[:3])
    status, body = problems.document("invalid-parameter", detail, errors=differences)
    return Response(body, status, media_type=problems.MEDIA)


async def _module(request: Request) -> Response:
    """The module that reads filters and feeds in browsers, for whoever serves pages from here."""
    text = await asyncio.to_thread(MODULE.read_bytes)
    return Response(text, media_type="text/javascript")


# The document.


async def _openapi(request: Request) -> Response:
    """The document; the first time it takes a tenth of a second to make, in a thread."""
    return JSONResponse(await asyncio.to_thread(_document, request.app))


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=_ABOUT, routes=app.routes
        )
        schemas = document["components"]["schemas"]
        schemas.update(key_schemas.SCHEMAS)
        schemas["Problem"] = models.Problem.model_json_schema()
        schemes = {"token": "bearer", "password": "basic"}
        document["components"]["securitySchemes"] = {
            name: {"type": "http", "scheme": scheme} for name, scheme in schemes.items()
        }
        document["security"] = [{}, {"token": []}, {"password": []}]
        app.openapi_schema = document
    return app.openapi_schema
