"""All routes of pages: the pages themselves, their data, their files, logging in."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Route

from bloomery.service.http.origin import PAGES
from bloomery.service.http.pages import (
    api_docs,
    assets,
    filter_pages,
    frame,
    health_pages,
    planner,
    playground,
    session,
)


async def _home(request: Request) -> Response:
    frame.require_dashboard(request)
    return RedirectResponse(frame.HOME, 303)


# Each enters its pages as it is imported; those that fetch figures have a router of `data` too.
_MODULES = (filter_pages, planner, playground, health_pages, api_docs, session)
_ROUTERS = [
    router for module in _MODULES if isinstance(router := vars(module).get("data"), APIRouter)
]
ALL: list[BaseRoute] = [
    Route("/", _home, methods=["GET"], include_in_schema=False),
    Route(f"{PAGES}static/{{digest}}/{{file}}", assets.send, include_in_schema=False),
    *frame.routes,
    *session.routes,
    *(route for router in _ROUTERS for route in router.routes),
]
