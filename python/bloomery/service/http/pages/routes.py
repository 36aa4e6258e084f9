"""All routes of pages: the pages themselves, their data, their files, logging in."""

from __future__ import annotations

from fastapi import Request, Response
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Route

from bloomery.service.http.origin import PAGES
from bloomery.service.http.pages import assets, filter_pages, frame, session


async def _home(request: Request) -> Response:
    frame.require_dashboard(request)
    return RedirectResponse(frame.HOME, 303)


# Modules enter their pages as they are imported; the routers have the data of pages.
_ROUTERS = (filter_pages.data,)
ALL: list[BaseRoute] = [
    Route("/", _home, methods=["GET"], include_in_schema=False),
    Route(f"{PAGES}static/{{digest}}/{{file}}", assets.send, include_in_schema=False),
    *frame.routes,
    *session.routes,
    *(route for router in _ROUTERS for route in router.routes),
]
