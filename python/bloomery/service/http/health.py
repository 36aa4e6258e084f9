"""For those who watch: is it alive, is it ready?"""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from bloomery.service.http import problems
from bloomery.service.http.route import server_of

__all__ = ["ALWAYS", "router"]

router = APIRouter()

# What is answered while the server is loading, too.
ALWAYS = frozenset({"/healthz", "/readyz", "/openapi.json"})


@router.get("/healthz", response_class=PlainTextResponse)
@router.head("/healthz", response_class=PlainTextResponse)
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
    response_class=PlainTextResponse,
    responses={503: {"description": "loading, or about to end"}},
)
async def readyz(request: Request) -> PlainTextResponse:
    """200 while the server takes requests; 503 while it is loading, and when it is about to end."""
    server = server_of(request)
    if server.ready:
        return PlainTextResponse("ok\n")
    text = "draining\n" if server.loaded else "loading\n"
    return PlainTextResponse(text, 503, {"Retry-After": problems.RETRY_SECONDS})
