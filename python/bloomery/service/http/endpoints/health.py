"""For those who watch: is it alive, is it ready, what are its figures, is something wrong?"""

from __future__ import annotations

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute

from bloomery.service.http import problems
from bloomery.service.http.endpoints import models
from bloomery.service.http.route import Answer, does, routes, server_of
from bloomery.service.observe import metrics

__all__ = ["ALWAYS", "router", "watching"]

router = routes(APIRoute)
watching = routes()

# What is answered while the server is loading, too.
ALWAYS = frozenset({"/healthz", "/readyz", "/openapi.json"})


@router.get("/healthz", response_class=PlainTextResponse)
@router.head("/healthz", name="healthz_head", response_class=PlainTextResponse)
async def healthz() -> PlainTextResponse:
    """200 while the server lives."""
    return PlainTextResponse("ok\n")


@router.get(
    "/readyz",
    response_class=PlainTextResponse,
    responses={503: {"description": "loading, or about to end", "content": {"text/plain": {}}}},
)
@router.head(
    "/readyz",
    name="readyz_head",
    response_class=PlainTextResponse,
    responses={503: {"description": "loading, or about to end"}},
)
async def readyz(request: Request) -> PlainTextResponse:
    """200 while the server takes requests; 503 while it is loading, when it is about to end,
    and while a node has not heard of the others for too long."""
    server = server_of(request)
    if server.ready:
        return PlainTextResponse("ok\n")
    text = "draining\n" if server.loaded else "loading\n"
    if server.serving and server.node is not None and (why := server.node.unfit()):
        text = f"unfit: {why}\n"  # who balances cuts clients off, which at "draining" it does not
    return PlainTextResponse(text, 503, {"Retry-After": problems.RETRY_SECONDS})


_ANY = ("invalid-request", "not-logged-in", "not-allowed", "server-unavailable")


@watching.get(
    "/metrics",
    response_class=PlainTextResponse,
    openapi_extra=does("look"),
    responses=problems.describe(*_ANY),
)
async def figures(request: Request) -> Response:
    """The server's figures, and those of filters that one may use, as Prometheus reads them."""
    shown = server_of(request).metrics.render(request.state.user)
    return Response(shown, media_type=metrics.CONTENT_TYPE)


@watching.get(
    "/alerts",
    response_model=models.AlertList,
    openapi_extra=does("look"),
    responses=problems.describe(*_ANY),
)
async def alerts(request: Request) -> Response:
    """What is wrong now: the server's own, and those of filters that one may use."""
    covers, active = request.state.user.covers, server_of(request).alerts.active.values()
    found = [alert.as_dict() for alert in active if alert.name is None or covers(alert.name)]
    return Answer({"alerts": found})
