"""What is done to whole filters, and to the server: clear, rotate, merge; a snapshot."""

from __future__ import annotations

from fastapi import Request, Response

from bloomery import names
from bloomery.service.http import problems
from bloomery.service.http.endpoints import models
from bloomery.service.http.endpoints.filters import told
from bloomery.service.http.route import Answer, Name, also, does, done_to, routes, server_of

__all__ = ["router"]

router = routes()

_ANY = ("invalid-request", "not-logged-in", "not-allowed", "server-unavailable")
_ONE = (*_ANY, "unknown-filter", "invalid-parameter", "log-unavailable", "read-only-filter")


@router.post(
    "/filters/{name}/clear",
    response_model=models.FilterInfo,
    openapi_extra=does("clear"),
    responses=problems.describe(*_ONE),
)
async def clear(request: Request, name: Name) -> Response:
    """Forget every key of a filter."""
    await done_to(request, lambda commands: commands.clear(name), name)
    return await _done(request, name)


@router.post(
    "/filters/{name}/rotate",
    response_model=models.FilterInfo,
    openapi_extra=does("change"),
    responses=problems.describe(*_ONE, "incompatible-filters"),
)
async def rotate(request: Request, name: Name) -> Response:
    """Let a rotating filter begin a new generation now."""
    await done_to(request, lambda commands: commands.rotate(name), name)
    return await _done(request, name)


@router.post(
    "/filters/{name}/merge",
    response_model=models.FilterInfo,
    openapi_extra=does("change"),
    responses=problems.describe(
        *_ONE,
        *("incompatible-filters", "not-enough-memory", "request-too-large"),
        statuses=(408, 415),
    ),
)
async def merge(request: Request, name: Name, given: models.Merge) -> Response:
    """Add every key of other filters, which must be made alike."""
    sources = [names.typed(source) for source in given.sources]
    also(request, "change", *sources)
    await done_to(request, lambda commands: commands.merge(name, *sources), name, *sources)
    return await _done(request, name)


@router.post(
    "/filters/{name}/rebuild",
    status_code=202,
    response_model=models.FilterInfo,
    openapi_extra=does("change"),
    responses=problems.describe(*_ONE, "request-too-large", statuses=(408, 415)),
)
async def rebuild(request: Request, name: Name, given: models.NewRebuild) -> Response:
    """Begin to build a filter anew from the source it is bound to; it answers meanwhile."""
    server = server_of(request)
    server.turns.join()
    server.rebuilds.start(name, **given.model_dump())
    return Answer(await told(server, name), 202)


@router.post(
    "/snapshot",
    response_model=models.Snapshot,
    openapi_extra=does("server"),
    responses=problems.describe(*_ANY, "snapshot-failed"),
)
async def snapshot(request: Request) -> Response:
    """Make a snapshot of all filters, and wait for it."""
    saving = server_of(request).snapshots
    await saving.save()
    return Answer({"generation": saving.generation, "seconds": saving.seconds})


async def _done(request: Request, name: bytes) -> Response:
    server = server_of(request)
    await server.turns.logged()
    return Answer(await told(server, name))
