"""The playground's page: tiny filters whose bits are all seen. Keys come in bodies, so that they
are in no address and no log, and are forgotten with the answer."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Request, Response
from pydantic import Field

from bloomery.service.access.permissions import User
from bloomery.service.http.origin import PAGES
from bloomery.service.http.pages import frame
from bloomery.service.http.route import ApiResponse, does, routes
from bloomery.service.parameters import StrictModel
from bloomery.service.playground import sstables, tiny

data = routes()
Key = Annotated[str, Field(min_length=1, max_length=tiny.MOST_KEY)]


class _Step(StrictModel):
    action: tiny.Action
    key: Key


class _Game(StrictModel):
    """What was done, and a key to ask for."""

    steps: list[_Step] = Field(max_length=tiny.MOST_STEPS)
    asked: Key | None = None
    bits: int = Field(10, ge=tiny.BITS[0], le=tiny.BITS[-1])
    hashes: int = Field(3, ge=tiny.HASHES[0], le=tiny.HASHES[-1])


class _Read(StrictModel):
    """A key to read."""

    key: Key


@frame.page(f"{PAGES}playground")
async def show_playground(request: Request, user: User | None) -> Response:
    """The playground."""
    return frame.render(
        request,
        "playground.html",
        user,
        tables=sstables.tables(),
        examples=sstables.examples(),
    )


@data.post(f"{PAGES}data/playground", openapi_extra=does("look"), include_in_schema=False)
async def play(request: Request, game: Annotated[_Game, Body()]) -> Response:
    """The tiny filters after some steps, and what they answer."""
    frame.require_dashboard(request)
    steps = [tiny.TinyStep(step.action, step.key) for step in game.steps]
    return ApiResponse(tiny.play(steps, game.asked, game.bits, game.hashes))


@data.post(f"{PAGES}data/playground/read", openapi_extra=does("look"), include_in_schema=False)
async def read(request: Request, wanted: Annotated[_Read, Body()]) -> Response:
    """A read through three SSTables."""
    frame.require_dashboard(request)
    return ApiResponse(sstables.read(wanted.key))
