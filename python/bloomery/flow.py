"""The two drivers of flows: one for threads, one for asyncio.

A flow is a generator that does something which must wait for others (a database, a cache, Redis)
and is written once for both worlds. It yields what it wants done, and is sent the result, or thrown
the exception that came of it. A driver runs the flow to its end and returns what it returns; what
can be wanted, and how that is performed, is for whoever writes the flow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

Wanted = TypeVar("Wanted")
Result = TypeVar("Result")
T = TypeVar("T")


def drive(flow: Generator[Wanted, Result, T], perform: Callable[[Wanted], Result]) -> T:
    """Run a flow in the caller's thread."""
    try:
        wanted = next(flow)
        while True:
            try:
                result = perform(wanted)
            except BaseException as problem:  # noqa: BLE001  # the flow's to judge
                wanted = flow.throw(problem)
            else:
                wanted = flow.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


async def drive_async(
    flow: Generator[Wanted, Result, T], perform: Callable[[Wanted], Awaitable[Result]]
) -> T:
    """Run a flow on an event loop; others run while it waits."""
    try:
        wanted = next(flow)
        while True:
            try:
                result = await perform(wanted)
            except BaseException as problem:  # noqa: BLE001  # as above; a cancellation too
                wanted = flow.throw(problem)
            else:
                wanted = flow.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
