"""The frame of every page: who looks at it, what they may do, and the layout around it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.routing import Route

from bloomery import __version__, errors
from bloomery.service.access.permissions import OPERATIONS, User, check
from bloomery.service.access.sessions import Sessions
from bloomery.service.http import browser, problems
from bloomery.service.http.encoding import encode_text
from bloomery.service.http.login import authenticate
from bloomery.service.http.origin import PAGES
from bloomery.service.http.problems import NoSession, Refused
from bloomery.service.http.route import context_of

HOME = f"{PAGES}filters"
LOGIN = f"{PAGES}login"
# What stands on top of every page.
NAVIGATION = (
    (HOME, "Filters"),
    (f"{PAGES}planner", "Planner"),
    (f"{PAGES}playground", "Playground"),
    (f"{PAGES}nodes", "Nodes & health"),
    ("/docs", "API docs"),
)

Show = Callable[[Request, "User | None"], Awaitable[Response]]
routes: list[Route] = []  # of pages, as `page` enters them


def page(path: str, operation: str = "look") -> Callable[[Show], Show]:
    """Enter a page: its function gets the request and the user, who may do this. Whoever is not
    logged in is led to the form first; "connect" is for everybody."""

    def enter(show: Show) -> Show:
        async def respond(request: Request) -> Response:
            require_dashboard(request)
            user = None
            try:
                user = await _user(request)
                check(user, operation)
                await asyncio.to_thread(_environment)
                return await show(request, user)
            except errors.NotLoggedIn:
                query = request.scope["query_string"].decode("latin-1")
                to = request.scope["path"] + (f"?{query}" if query else "")  # a plan is in it
                return RedirectResponse(f"{LOGIN}?to={quote(to, safe='')}", 303)
            except errors.BloomeryError as problem:
                status = problems.response(problem).status_code
                values = {"title": problems.phrase(status), "detail": str(problem)}
                return render(request, "problem.html", user, status, **values)

        routes.append(Route(path, respond, methods=["GET"], include_in_schema=False))
        return show

    return enter


async def _user(request: Request) -> User | None:
    """Who looks; None: somebody who is not logged in."""
    try:
        return await authenticate(context_of(request), request.scope)
    except NoSession:
        return None


def require_dashboard(request: Request) -> None:
    """Raise if the server has no pages (the setting `dashboard`)."""
    if not context_of(request).settings.dashboard:
        raise Refused("this server shows no pages (its setting dashboard is no)", 404)


def render(
    request: Request, template: str, user: User | None, status: int = 200, **values: Any
) -> Response:
    """A page. Beside `values` its template has `user`, `may` (each operation: whether the user may
    do it to the filter `name`, if that is given), `csrf`, `asset(file)` and what the layout uses.
    """
    settings = context_of(request).settings
    names = [values["raw_name"]] if "raw_name" in values else []
    context = {
        "user": user,
        "may": {operation: allowed(user, operation, *names) for operation in OPERATIONS},
        "has_users": context_of(request).access.required,
        "csrf": csrf_token(request),
        "path": request.scope["path"],
        "navigation": NAVIGATION,
        "version": __version__,
        "settings": settings,
    }
    text = _environment().get_template(template).render(context | values)
    return HTMLResponse(encode_text(text), status)


def csrf_token(request: Request) -> str:
    """The token that what this page asks for has to bring."""
    sessions: Sessions = request.app.state.sessions
    return sessions.csrf_token(live_token(request))


def live_token(request: Request) -> str | None:
    """The token of the session that this is asked in; None: there is none, or it is over."""
    if not context_of(request).access.required:
        return None
    token = browser.session_token(request.scope)
    return None if token is None or request.app.state.sessions.find(token) is None else token


def allowed(user: User | None, operation: str, *names: bytes) -> bool:
    """Whether a user may do this to filters of these names."""
    try:
        check(user, operation, *names)
    except errors.BloomeryError:
        return False
    return True


def _environment() -> Any:
    """The templates; with the first page, in a thread: to import and compile takes 0.2 s."""
    from bloomery.service.http.pages import rendering

    return rendering.ENVIRONMENT
