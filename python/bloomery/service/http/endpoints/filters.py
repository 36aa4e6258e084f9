"""Filters: made, listed, shown, changed, dropped."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Body, Query, Request, Response

from bloomery import errors, names
from bloomery.service.access.glob import glob
from bloomery.service.access.permissions import User
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.operations import LARGE
from bloomery.service.http import models, problems
from bloomery.service.http.limits import MAX_SCANNED
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
from bloomery.service.parameters import NewFilter
from bloomery.service.parts import Parts
from bloomery.service.slices import gathered

router = routes()

_ONE = (*problems.ANY, "unknown-filter")
_CHANGE = ("invalid-parameter", "log-unavailable", "not-enough-memory")
_BODY = {"statuses": (408, 415)}


@router.post(
    "/filters",
    status_code=201,
    response_model=models.FilterInfo,
    openapi_extra=does("create"),
    responses=problems.describe(
        *problems.ANY, *_CHANGE, "filter-exists", "request-too-large", **_BODY
    ),
)
async def create(request: Request, new: Annotated[NewFilter, Body()]) -> Response:
    """Make an empty filter."""
    options = new.model_dump(exclude_unset=True)
    name = names.typed(options.pop("name"))
    authorize_also(request, "create", name)
    if options.get("source") is None:
        options.pop("source", None)
    else:
        authorize_also(request, "change", name)
    entry = await apply_to_filters(request, lambda commands: commands.create(name, **options), name)
    return ApiResponse(await filter_info(context_of(request), entry), 201)


@router.get(
    "/filters",
    response_model=models.FilterList,
    openapi_extra=does("look"),
    responses=problems.describe(*problems.ANY, "invalid-parameter"),
)
async def listed(
    request: Request,
    pattern: Annotated[
        str, Query(max_length=1024, description="Of names: `*`, `?`, `[a-z]`, as in Redis.")
    ] = "*",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[int, Query(ge=0, lt=1 << 63, description="From the answer before.")] = 0,
) -> Response:
    """List filters, as far as one may use them: go on with `cursor` until that is null."""
    user: User = request.state.user
    matches = glob(pattern.encode())
    commands = commands_of(request)
    rows: list[dict[str, Any]] = []
    looked = 0
    while len(rows) < limit and looked < MAX_SCANNED:
        count = min(limit - len(rows), MAX_SCANNED - looked)
        looked += count
        cursor, entries = commands.listing.scan(cursor, count, user)
        matching = await gathered(entries, lambda entry: matches(entry.name))
        rows += [_row(entry) for entry in matching]
        if cursor == 0:
            break
    return ApiResponse({"filters": rows, "cursor": cursor or None})


@router.get(
    "/filters/{name}",
    response_model=models.FilterInfo,
    openapi_extra=does("info"),
    responses=problems.describe(*_ONE),
)
async def info(request: Request, name: Name) -> Response:
    """All that is known about a filter."""
    entry = commands_of(request).find(name)
    return ApiResponse(await filter_info(context_of(request), entry))


@router.patch(
    "/filters/{name}",
    response_model=models.FilterInfo,
    openapi_extra=does("change"),
    responses={
        204: {"description": "expires_at has passed: the filter is dropped"},
        **problems.describe(*_ONE, *_CHANGE, "filter-exists", "request-too-large", **_BODY),
    },
)
async def change(request: Request, name: Name, changes: models.Changes) -> Response:
    """Change a filter's policy, bind it to a source, let it end at a time, or rename it."""
    context = context_of(request)
    await context.engine.locks.unlocked(name)
    commands = commands_of(request)
    commands.find(name)
    to = None
    if changes.name is not None:
        to = names.typed(changes.name)
        authorize_also(request, "change", to)
    given = changes.model_dump(include=changes.model_fields_set - {"name"})
    entry = await apply_to_filters(request, lambda _: commands.amend(name, given, to), name)
    if entry is None:
        return Response(status_code=204)
    return ApiResponse(await filter_info(context, entry))


@router.delete(
    "/filters/{name}",
    status_code=204,
    response_class=Response,
    openapi_extra=does("drop"),
    responses=problems.describe(*_ONE, "log-unavailable"),
)
async def drop(request: Request, name: Name) -> Response:
    """Forget a filter."""
    await context_of(request).engine.locks.unlocked(name)
    commands = commands_of(request)
    commands.find(name)
    if not await commands.drop(name):
        raise errors.UnknownFilter("another client has dropped or renamed the filter")
    return Response(status_code=204)


@router.get(
    "/filters/{name}/samples",
    response_model=models.Samples,
    openapi_extra=does("info"),
    responses=problems.describe(*_ONE, "invalid-parameter", "registry-unavailable"),
)
async def samples(
    request: Request,
    name: Name,
    since: Annotated[float | None, Query(ge=0, le=1e12, description="Unix time.")] = None,
    until: Annotated[float | None, Query(ge=0, le=1e12, description="Unix time.")] = None,
    span: Annotated[
        Literal["0", "60", "3600"] | None,
        Query(description="Raw samples (0), of minutes (60), of hours; else as far as they reach."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """Samples of a filter, oldest first; of more than `limit` the latest."""
    entry = commands_of(request).find(name)
    seconds = None if span is None else int(span)
    rows = await context_of(request).sampler.samples(entry, since, until, seconds, limit)
    return ApiResponse({"samples": rows})


async def filter_info(context: Parts, entry: Entry) -> dict[str, Any]:
    """What is known about a filter, ready for JSON, even if another client drops it meanwhile: a
    request that has changed it succeeds."""
    about = None
    if entry.filter is not None and entry.filter.nbytes > LARGE:
        about = await asyncio.to_thread(entry.filter.info)
    context.sequencer.join()
    context.engine.state.count(entry)
    facts = context.commands.info(entry, about)
    del facts["settings"]  # a seed may be a secret; what can be shown is there anyway
    rebuild = context.rebuilds.of(entry)
    facts["rebuild"] = None if rebuild is None else rebuild.as_dict()
    return facts | _row(entry)


def _row(entry: Entry) -> dict[str, Any]:
    filter = entry.filter
    return {
        "name": names.printable(entry.name),
        "kind": None if filter is None else filter.kind,
        "items": entry.items,
        "nbytes": 0 if filter is None else filter.nbytes,
        "created_at": entry.created_at,
        "expires_at": entry.expires_at,
    }
