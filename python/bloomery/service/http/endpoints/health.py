"""Health, metrics and alerts, for operators and their tools."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute

from bloomery.service.http import models, problems
from bloomery.service.http.route import ApiResponse, context_of, does, routes

router = routes(APIRoute)
watching = routes()

_NOT_READY = "loading, about to end, or refusing writes"


# Only described here: the server answers these two itself (`http/health.py`).


@router.get("/healthz", response_class=PlainTextResponse)
@router.head("/healthz", name="healthz_head", response_class=PlainTextResponse)
async def healthz() -> None:
    """200 while the server lives."""


@router.get(
    "/readyz",
    response_class=PlainTextResponse,
    responses={
        503: {"description": _NOT_READY, "content": {"text/plain": {}}},
        **problems.describe("invalid-parameter"),
    },
)
@router.head(
    "/readyz",
    name="readyz_head",
    response_class=PlainTextResponse,
    responses={503: {"description": _NOT_READY}, **problems.describe("invalid-parameter")},
)
async def readyz(
    writes: Annotated[
        bool, Query(description="false: for those who only read, who may while writes are refused.")
    ] = True,
) -> None:
    """200 while the server takes requests; 503 while it is loading, when it is about to end, while
    it refuses writes, and while a node has not heard of the others for too long."""


_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@watching.get(
    "/metrics",
    response_class=PlainTextResponse,
    openapi_extra=does("look"),
    responses=problems.describe(*problems.ANY),
)
async def figures(request: Request) -> Response:
    """The server's figures, and those of filters that one may use, as Prometheus reads them."""
    text = request.app.state.metrics(request.state.user)
    return Response(text, media_type=_PROMETHEUS)


@watching.get(
    "/alerts",
    response_model=models.AlertList,
    openapi_extra=does("look"),
    responses=problems.describe(*problems.ANY),
)
async def alerts(request: Request) -> Response:
    """What is wrong now: the server's own, and those of filters that one may use."""
    covers, active = request.state.user.covers, context_of(request).alerts.active.values()
    rows = [alert.as_dict() for alert in active if alert.name is None or covers(alert.name)]
    return ApiResponse({"alerts": rows})
