"""Logging in and out on a page: a form, asked by fetch, and a cookie for the session."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from starlette.routing import Route

from bloomery import errors
from bloomery.service.access.permissions import User
from bloomery.service.access.sessions import Sessions
from bloomery.service.http import browser
from bloomery.service.http.body import bodies
from bloomery.service.http.limits import MAX_PLAIN_BODY
from bloomery.service.http.login import authenticate
from bloomery.service.http.origin import PAGES
from bloomery.service.http.pages import frame
from bloomery.service.http.problems import NoSession
from bloomery.service.http.route import ApiResponse, context_of


@frame.page(frame.LOGIN, operation="connect")
async def show_login(request: Request, user: User | None) -> Response:
    """The form to log in."""
    to = request.query_params.get("to", frame.HOME)
    local = to == "/docs" or to.startswith(PAGES)  # never another site
    return frame.render(request, "login.html", user, to=to if local else frame.HOME)


async def _log_in(request: Request) -> Response:
    frame.require_dashboard(request)
    context, sessions = context_of(request), _sessions(request)
    browser.check_csrf(sessions, request.scope, frame.live_token(request))
    bodies.require_json(request.scope)
    body = await bodies.read(context, request.scope, request.receive, MAX_PLAIN_BODY)
    name, word = _credentials(bodies.parse_plain(body))
    address = request.client.host if request.client else ""
    try:
        login = await context.access.log_in(name, word, address, protocol="http")
    except errors.NotLoggedIn as problem:
        raise NoSession(str(problem)) from None
    _end_session(request)
    token, seconds = sessions.begin(login), context.settings.session_seconds
    return Response(
        status_code=204, headers={"Set-Cookie": browser.cookie(request.scope, token, seconds)}
    )


def _credentials(value: Any) -> tuple[str | None, str]:
    """The name (None: a token needs none) and the password or token."""
    fields = value if isinstance(value, dict) else {}
    name, word = fields.get("name", ""), fields.get("password", "")
    if not isinstance(name, str) or not isinstance(word, str):
        raise errors.InvalidRequest("name and password must be text")
    return name or None, word


async def _log_out(request: Request) -> Response:
    browser.check_csrf(_sessions(request), request.scope, frame.live_token(request))
    _end_session(request)
    return Response(status_code=204, headers={"Set-Cookie": browser.cookie(request.scope, None, 0)})


async def _tell(request: Request) -> Response:
    """Who looks, and the token of this session: for pages that were open through a restart."""
    frame.require_dashboard(request)
    user = await authenticate(context_of(request), request.scope)
    if user is None:
        raise NoSession("log in first: there is no session, or it is over")
    return ApiResponse({"user": user.name, "csrf": frame.csrf_token(request)})


def _end_session(request: Request) -> None:
    token = browser.session_token(request.scope)
    if token is not None:
        _sessions(request).end(token)


def _sessions(request: Request) -> Sessions:
    sessions: Sessions = request.app.state.sessions
    return sessions


routes = [
    Route(frame.LOGIN, _log_in, methods=["POST"], include_in_schema=False),
    Route(f"{PAGES}logout", _log_out, methods=["POST"], include_in_schema=False),
    Route(f"{PAGES}session", _tell, methods=["GET"], include_in_schema=False),
]
