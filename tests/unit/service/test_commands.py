"""What a client asks for, done once; on a node again, if the filter it meant was dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from bloomery import errors
from bloomery.service.commands import Commands
from bloomery.service.config.settings import Settings
from bloomery.service.domain.state import FilterDropped, State
from bloomery.service.durability.no_log import NodeLog
from bloomery.service.engine import Engine, SharedLog

MOST = 16  # times that it is done


def commands(*, shared: bool) -> Commands:
    """Those of a server alone, or of a node, whose log none of these operations comes to."""
    engine = Engine(State(), NodeLog())
    engine.shared = cast(SharedLog, object()) if shared else None
    return Commands(engine, Settings())


def dropped(times: int, tried: list[int], *, waits: bool) -> Callable[[], Any]:
    """An operation whose filter is dropped so often before the log comes to it."""

    def at_once() -> str:
        tried.append(len(tried))
        if len(tried) <= times:
            raise FilterDropped("the filter was dropped meanwhile")
        return "done"

    async def later() -> str:
        await asyncio.sleep(0)
        return at_once()

    return later if waits else at_once


async def value_of(commands: Commands, operation: Callable[[], Any]) -> Any:
    """What comes of it, as a protocol waits for it."""
    value = commands.start([b"seen"], operation)
    return await value if isinstance(value, Awaitable) else value


@pytest.mark.parametrize("waits", [False, True])
def test_a_node_does_it_again(waits: bool) -> None:
    """As if it had come after the filter was dropped; a client is told after many times."""
    tried: list[int] = []
    node = commands(shared=True)
    assert asyncio.run(value_of(node, dropped(MOST - 1, tried, waits=waits))) == "done"
    assert len(tried) == MOST
    with pytest.raises(errors.UnknownFilter):
        asyncio.run(value_of(node, dropped(MOST, tried := [], waits=waits)))
    assert len(tried) == MOST


def test_a_server_alone_does_it_once() -> None:
    """There nobody can come in between: what is missing is missing."""
    tried: list[int] = []
    with pytest.raises(errors.UnknownFilter):
        asyncio.run(value_of(commands(shared=False), dropped(1, tried, waits=True)))
    assert len(tried) == 1


def test_what_needs_not_wait_is_done_when_the_call_returns() -> None:
    """In the caller's own step of the event loop, on a node too."""

    async def main() -> None:
        for shared in (False, True):
            assert commands(shared=shared).start([b"seen"], lambda: "done") == "done"

    asyncio.run(main())
