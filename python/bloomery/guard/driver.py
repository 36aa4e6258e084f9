"""What a guard does, written once for threads and for asyncio, and run by `bloomery.flow`.

A flow of a guard yields what must be waited for as a `Call`, and is sent what came of it: `run`
makes the calls from the caller's thread, `arun` from an event loop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from bloomery.flow import drive, drive_async
from bloomery.guard.sources.workers import Workers

T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """A function to be called, or a future to be waited for; `timeout` in seconds.

    `blocking`: it may take long, so an event loop lets a thread do it. With a timeout a thread does
    it either way: no other way ends a wait for a function that hangs.
    """

    what: Callable[..., Any] | Future[Any]
    args: tuple[Any, ...] = ()
    timeout: float | None = None
    blocking: bool = True


Flow: TypeAlias = Generator[Call, Any, T]


def run(flow: Flow[T], workers: Workers) -> T:
    """Run a flow in the caller's thread."""
    return drive(flow, lambda call: _call(call, workers))


def _call(call: Call, workers: Workers) -> Any:
    what = call.what
    if isinstance(what, Future):
        return _wait(what, call)
    if call.timeout is None:
        return what(*call.args)
    asked = workers.submit(what, *call.args)
    try:
        return _wait(asked, call)
    except BaseException:
        asked.cancel()  # if no thread has begun with it, none does
        raise


def _wait(future: Future[Any], call: Call) -> Any:
    try:
        return future.result(call.timeout)
    except FutureTimeout:
        if future.done():
            return future.result()  # its own problem, or an answer at the last moment
        raise TimeoutError(f"no answer within {call.timeout:g} s") from None


async def arun(flow: Flow[T], workers: Workers) -> T:
    """Run a flow on the event loop."""
    return await drive_async(flow, lambda call: _acall(call, workers))


async def _acall(call: Call, workers: Workers) -> Any:
    what = call.what
    if isinstance(what, Future):
        # Shielded: who gives up waiting must not cancel what others wait for.
        waited: Any = asyncio.shield(asyncio.wrap_future(what))
    elif inspect.iscoroutinefunction(what):
        waited = what(*call.args)
    elif call.blocking:
        threads = workers.aside if call.timeout is None else workers
        waited = asyncio.wrap_future(threads.submit(what, *call.args))
    else:
        result = what(*call.args)
        if not inspect.isawaitable(result):
            return result
        waited = result
    if call.timeout is None:
        return await waited
    waited = asyncio.ensure_future(waited)
    try:
        return await asyncio.wait_for(waited, call.timeout)
    except asyncio.TimeoutError:
        if waited.done() and not waited.cancelled():
            return waited.result()  # as above
        raise TimeoutError(f"no answer within {call.timeout:g} s") from None
