"""The planner's page: which filter, how large, what it costs, how to make it; all in the URL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request, Response

from bloomery.errors import InvalidParameter
from bloomery.filters.rotating import parse_window
from bloomery.service.access.permissions import User
from bloomery.service.http.origin import PAGES
from bloomery.service.http.pages import frame
from bloomery.service.http.route import ApiResponse, does, routes
from bloomery.service.planner.choice import Choice, Remove, Wrong, choose
from bloomery.service.planner.plans import Wish, planned
from bloomery.sizing import amounts, limits
from bloomery.sizing.family import OPTIONS

data = routes()
# One at a time, in a thread: a plan may take some 60 ms of a core, and others are served meanwhile.
_one_at_a_time = asyncio.Semaphore(1)
_MOST_PRICE = 1e9
_MOST_REQUESTS = 10**12
Text = Annotated[str, Query(max_length=40)]
T = TypeVar("T")
_YES = {"yes": True, "no": False, "": False}


@frame.page(f"{PAGES}planner")
async def show_planner(request: Request, user: User | None) -> Response:
    """The planner."""
    return frame.render(request, "planner.html", user)


@data.get(f"{PAGES}data/planner", openapi_extra=does("look"), include_in_schema=False)
async def plan(
    request: Request,
    kind: Text = "bloom",
    capacity: Text = "",
    error_rate: Text = "",
    memory: Text = "",
    hashes: Text = "",
    layout: Text = "",
    counter_bits: Text = "",
    regions: Text = "",
    grow: Text = "",
    generations: Text = "",
    keys_per_filter: Text = "",
    bucket_size: Text = "",
    window: Text = "",
    price: Text = "",
    checks: Text = "",
    writes: Text = "",
    batch: Text = "",
) -> Response:
    """A plan, with curves, other kinds, cost, nodes and the ways to make it."""
    frame.require_dashboard(request)
    if window:
        parse_window(window)  # or say what is wrong with it
    given: dict[str, Any] = {
        "layout": layout or None,
        "counter_bits": _count("counter_bits", counter_bits),
        "regions": _count("regions", regions),
        "grow": _yes("grow", grow) or None,
        "generations": _count("generations", generations),
        "keys_per_filter": _count("keys_per_filter", keys_per_filter),
        "bucket_size": _count("bucket_size", bucket_size),
    }
    # What another kind has is left alone: it is in the URL while a person compares kinds.
    own = OPTIONS.get(kind, {})
    wish = Wish(
        kind,
        {name: value for name, value in given.items() if name in own and value is not None},
        _count("capacity", capacity),
        _parsed("error_rate", error_rate, limits.parse_rate, "a share: 1%, 0.01 or 1e-6"),
        _parsed("memory", memory, amounts.parse_memory, "an amount: 64MB, 1.5GB or 1GiB"),
        _count("hashes", hashes),
        window or None,
        _parsed("price", price, _price, "a number: 3.50, for 1 GB a month"),
        _requests("checks", checks) or 0,
        _requests("writes", writes) or 0,
        _requests("batch", batch) or 1,
    )
    async with _one_at_a_time:
        return ApiResponse(await asyncio.to_thread(planned, wish))


@data.get(f"{PAGES}data/planner/kind", openapi_extra=does("look"), include_in_schema=False)
async def kind(
    request: Request,
    grow: Text = "no",
    remove: Remove = "no",
    forget: Text = "no",
    known: Text = "no",
    users: Text = "no",
    wrong: Wrong = "little",
) -> Response:
    """Which kind suits, by a few questions."""
    frame.require_dashboard(request)
    chosen: Choice = choose(
        grow=_yes("grow", grow),
        remove=remove,
        forget=_yes("forget", forget),
        known=_yes("known", known),
        users=_yes("users", users),
        wrong=wrong,
    )
    return ApiResponse(chosen.as_dict())


def _yes(name: str, text: str) -> bool:
    if text not in _YES:
        raise InvalidParameter(f"{name} must be yes or no, not {text!r}")
    return _YES[text]


def _parsed(name: str, text: str, parse: Callable[[str], T | None], must: str) -> T | None:
    if not text:
        return None
    value = parse(text)
    if value is None:
        raise InvalidParameter(f"{name} is {text!r}, must be {must}")
    return value


def _count(name: str, text: str) -> int | None:
    return _parsed(name, text, amounts.parse_count, "a whole number: 1000000, 10M or 1e9")


def _requests(name: str, text: str) -> int | None:
    count = _count(name, text)
    if count is not None and count > _MOST_REQUESTS:
        raise InvalidParameter(f"{name} must be at most {_MOST_REQUESTS:,}, not {count:,}")
    return count


def _price(text: str) -> float | None:
    price = limits.parse_rate(text)
    return price if price is not None and 0 <= price <= _MOST_PRICE else None
