"""What is done to whole filters, and to the server: clear, rotate, merge; snapshot and backup."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import gmtime, strftime
from typing import Any

from fastapi import Query, Request, Response
from starlette.responses import StreamingResponse

from bloomery import names
from bloomery.service.domain.entry import Entry
from bloomery.service.durability.backup import RATE
from bloomery.service.http import models, problems
from bloomery.service.http.endpoints.filters import filter_info
from bloomery.service.http.route import (
    ApiResponse,
    Name,
    apply_to_filters,
    authorize_also,
    commands_of,
    context_of,
    does,
    routes,
)

router = routes()

_ONE = (*problems.ANY, "unknown-filter", "invalid-parameter", "log-unavailable", "read-only-filter")


@router.post(
    "/filters/{name}/clear",
    response_model=models.FilterInfo,
    openapi_extra=does("clear"),
    responses=problems.describe(*_ONE),
)
async def clear(request: Request, name: Name) -> Response:
    """Forget every key of a filter."""
    entry = await apply_to_filters(request, lambda commands: commands.clear(name), name)
    return await _info(request, entry)


@router.post(
    "/filters/{name}/rotate",
    response_model=models.FilterInfo,
    openapi_extra=does("change"),
    responses=problems.describe(*_ONE, "incompatible-filters"),
)
async def rotate(request: Request, name: Name) -> Response:
    """Let a rotating filter begin a new generation now."""
    entry = await apply_to_filters(request, lambda commands: commands.rotate(name), name)
    return await _info(request, entry)


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
async def merge(request: Request, name: Name, body: models.Merge) -> Response:
    """Add every key of other filters, which must be made alike."""
    sources = [names.typed(source) for source in body.sources]
    authorize_also(request, "change", *sources)
    entry = await apply_to_filters(
        request, lambda commands: commands.merge(name, *sources), name, *sources
    )
    return await _info(request, entry)


@router.post(
    "/filters/{name}/rebuild",
    status_code=202,
    response_model=models.FilterInfo,
    openapi_extra=does("change"),
    responses=problems.describe(*_ONE, "request-too-large", statuses=(408, 415)),
)
async def rebuild(request: Request, name: Name, body: models.NewRebuild) -> Response:
    """Begin to build a filter anew from the source it is bound to; it answers meanwhile."""
    context = context_of(request)
    entry = commands_of(request).find(name)
    context.rebuilds.start(name, **body.model_dump())
    return ApiResponse(await filter_info(context, entry), 202)


@router.post(
    "/snapshot",
    response_model=models.Snapshot,
    openapi_extra=does("server"),
    responses=problems.describe(*problems.ANY, "snapshot-failed"),
)
async def snapshot(request: Request) -> Response:
    """Make a snapshot of all filters, and wait for it."""
    snapshots = context_of(request).snapshots
    await snapshots.save()
    return ApiResponse({"generation": snapshots.snapshot_number, "seconds": snapshots.seconds})


_TAR = "application/x-tar"


@router.get(
    "/backup",
    response_class=Response,
    openapi_extra=does("server"),
    responses={
        200: {
            "description": "all filters in one file: `bloomery restore` makes a data folder of it",
            "content": {_TAR: {"schema": {"type": "string", "format": "binary"}}},
        },
        **problems.describe(*problems.ANY, "snapshot-failed", "invalid-parameter"),
    },
)
async def backup(
    request: Request,
    rate: int = Query(RATE, ge=1 << 16, le=1 << 40, description="Bytes a second, at most."),
) -> Response:
    """Take a backup of all filters, with every key that was acknowledged before."""
    backups = context_of(request).backups
    taken = await backups.begin()
    name = strftime("%Y%m%dT%H%M%SZ", gmtime(taken.taken_at))
    headers = {
        "Content-Length": str(taken.nbytes),
        "Content-Disposition": f'attachment; filename="bloomery-{name}.backup"',
    }
    end = partial(backups.end, taken.folder)
    return _HeldResponse(taken.send(rate), end, headers=headers, media_type=_TAR)


class _HeldResponse(StreamingResponse):
    """A response that lets go of something when it is over, whether it was taken whole or not."""

    def __init__(self, content: Any, end: Callable[[], None], **options: Any) -> None:
        super().__init__(content, **options)
        self._end = end

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


async def _info(request: Request, entry: Entry) -> Response:
    return ApiResponse(await filter_info(context_of(request), entry))
