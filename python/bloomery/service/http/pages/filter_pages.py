"""The pages of filters: all in a table, and each by itself; and the data that they fetch."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal
from urllib.parse import quote, unquote_to_bytes

from fastapi import Query, Request, Response

from bloomery import errors
from bloomery.names import printable
from bloomery.service.access.permissions import User, check, exporting
from bloomery.service.http.body import bodies
from bloomery.service.http.endpoints.filters import filter_info
from bloomery.service.http.endpoints.keys import keys_in
from bloomery.service.http.origin import PAGES
from bloomery.service.http.pages import anatomy, frame
from bloomery.service.http.pages.board import SORTS, board_of
from bloomery.service.http.pages.series import MAX_SECONDS, series
from bloomery.service.http.route import ApiResponse, Name, commands_of, context_of, does, routes

data = routes()
# What a filter says of itself that stays as it is, in words.
_FACTS = {
    "layout": "How its bits are laid out: blocked is fast, classic a little smaller.",
    "hasher": "The function that turns a key into its places.",
    "num_bits": "Bits of memory.",
    "num_hashes": "Bits that one key sets.",
    "counter_bits": "Bits of a counter.",
    "slot_bits": "Bits of a slot, which holds a key's fingerprint.",
    "regions": "Regions: of one where no two keys met, keys can be removed.",
    "collided_regions": "Regions in which keys met: their bits stay.",
    "estimated_removable_share": "Share of the keys that can still be removed.",
    "growth": "How much larger it becomes in a step.",
    "generations": "Generations that its window is cut into.",
    "window": "Seconds that a key is remembered.",
    "generation_count": "Keys that came in the current generation.",
    "bits_per_key": "Bits of memory a key.",
    "users": "Users that have a filter of their own in the bank.",
    "keys_per_filter": "Keys that one user is planned to have.",
    "num_layers": "Layers: when one is full, a larger one is added.",
    "expansion": "How many times larger the next layer is.",
    "num_buckets": "Buckets of fingerprints.",
}


@frame.page(frame.HOME)
async def show_filters(request: Request, user: User | None) -> Response:
    """The table of all filters."""
    sources = sorted(context_of(request).lookups.sources)
    return frame.render(request, "filters.html", user, sources=sources)


@frame.page(f"{PAGES}filters/{{name}}")
async def show_filter(request: Request, user: User | None) -> Response:
    """One filter."""
    name = unquote_to_bytes(request.path_params["name"])
    check(user, "info", name)
    context = context_of(request)
    await context.commands.discover(name)
    entry = commands_of(request).find(name)
    facts = await filter_info(context, entry)
    about = [(word, facts[word], what) for word, what in _FACTS.items() if word in facts]
    return frame.render(
        request,
        "filter.html",
        user,
        raw_name=name,
        name=printable(name),
        at=f"/filters/{quote(name, safe='')}",
        kind=facts["kind"],
        facts=about,
        removes=facts["kind"] in ("counting", "deletable", "cuckoo", "rediscuckoo"),
        rotates=facts["kind"] == "rotating",
        created_at=facts["created_at"],
        policy=facts["policy"],
        source=facts["source"],
        sources=sorted(context.lookups.sources),
        target=facts.get("error_rate"),
        exports=frame.allowed(user, exporting(entry.filter), name),
    )


@data.get(f"{PAGES}data/filters", openapi_extra=does("look"), include_in_schema=False)
async def table(
    request: Request,
    search: Annotated[str, Query(max_length=1024)] = "",
    sort: Annotated[str, Query(max_length=20)] = "name",
    order: Literal["up", "down"] = "up",
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> Response:
    """A page of the table of filters."""
    if sort not in SORTS:
        raise errors.InvalidParameter(f"sort is {sort!r}, must be one of {', '.join(SORTS)}")
    answer = await board_of(request).table(request.state.user, search, sort, order == "down", page)
    return Response(answer, media_type=bodies.JSON)


@data.get(f"{PAGES}data/filters/{{name}}", openapi_extra=does("info"), include_in_schema=False)
async def live(request: Request, name: Name) -> Response:
    """What changes about a filter."""
    return Response(board_of(request).live(request.state.user, name), media_type=bodies.JSON)


@data.get(
    f"{PAGES}data/filters/{{name}}/series", openapi_extra=does("info"), include_in_schema=False
)
async def charts(
    request: Request, name: Name, seconds: Annotated[int, Query(ge=60, le=MAX_SECONDS)]
) -> Response:
    """The samples that the charts draw."""
    entry = commands_of(request).find(name)
    return ApiResponse(await series(context_of(request), entry, seconds))


@data.get(
    f"{PAGES}data/filters/{{name}}/anatomy", openapi_extra=does("info"), include_in_schema=False
)
async def look_inside(request: Request, name: Name) -> Response:
    """The heat map of a filter's memory, and its parts."""
    entry = commands_of(request).find(name)
    if entry.filter is None:
        raise errors.InvalidParameter("this filter is still being loaded")
    return ApiResponse(await asyncio.to_thread(anatomy.anatomy, entry.filter))


@data.post(
    f"{PAGES}data/filters/{{name}}/test", openapi_extra=does("contains"), include_in_schema=False
)
async def test(request: Request, name: Name) -> Response:
    """Whether a key may be in a filter, and what in its memory says so."""
    bodies.require_json(request.scope)
    body = await bodies.read(context_of(request), request.scope, request.receive, 1 << 16)
    keys, single = await keys_in(body)
    if not single:
        raise errors.InvalidRequest('one key at a time: {"key": ...}')
    commands = commands_of(request)
    maybe = bool((await commands.read(name, keys))[0])
    return ApiResponse({"maybe": maybe, "evidence": _evidence(request, name, keys[0])})


def _evidence(request: Request, name: bytes, key: Any) -> dict[str, Any]:
    filter = commands_of(request).find(name).filter
    if not frame.allowed(request.state.user, exporting(filter), name):
        return anatomy.NO_EVIDENCE  # by the places of many keys one finds keys that collide
    return anatomy.evidence(filter, key)
