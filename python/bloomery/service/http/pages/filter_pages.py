"""The pages of filters: all of them in a table, and each by itself."""

from __future__ import annotations

from fastapi import Request, Response

from bloomery.service.access.permissions import User
from bloomery.service.http.origin import PAGES
from bloomery.service.http.pages import frame
from bloomery.service.http.route import routes

data = routes()


@frame.page(f"{PAGES}filters")
async def show_filters(request: Request, user: User | None) -> Response:
    """The table of all filters."""
    return frame.render(request, "filters.html", user)
