"""The drivers of flows: what is yielded is performed, and the result goes back into the flow."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pytest

from bloomery.flow import drive, drive_async


def in_thread(flow: Generator[Any, Any, Any], perform: Callable[[Any], Any]) -> Any:
    """Run a flow by the driver for threads."""
    return drive(flow, perform)


def on_loop(flow: Generator[Any, Any, Any], perform: Callable[[Any], Any]) -> Any:
    """Run a flow by the driver for asyncio."""

    async def performed(wanted: Any) -> Any:
        await asyncio.sleep(0)
        return perform(wanted)

    return asyncio.run(drive_async(flow, performed))


Run = Callable[[Generator[Any, Any, Any], Callable[[Any], Any]], Any]
both = pytest.mark.parametrize("run", [in_thread, on_loop])


@both
def test_results_are_sent_and_the_value_returned(run: Run) -> None:
    """Each result goes to where it was wanted; what the flow returns is the driver's value."""

    def flow() -> Generator[int, int, list[int]]:
        first = yield 1
        second = yield first + 1
        return [first, second]

    assert run(flow(), lambda wanted: wanted * 10) == [10, 110]


@both
def test_a_flow_that_wants_nothing(run: Run) -> None:
    """It may end before it waits for anything."""

    def flow() -> Generator[int, int, str]:
        yield from ()
        return "at once"

    assert run(flow(), lambda wanted: wanted) == "at once"


@both
def test_a_problem_is_thrown_into_the_flow(run: Run) -> None:
    """It may handle it and go on; its cause is kept."""

    def fails(wanted: str) -> str:
        if wanted == "bad":
            raise ValueError("why") from OSError("first")
        return wanted

    def flow() -> Generator[str, str, tuple[str, BaseException | None]]:
        try:
            yield "bad"
        except ValueError as problem:
            return (yield "good"), problem.__cause__
        raise AssertionError

    value, cause = run(flow(), fails)
    assert value == "good"
    assert isinstance(cause, OSError)


@both
def test_a_problem_nobody_handles_ends_the_flow(run: Run) -> None:
    """It leaves the driver as it came, and what the flow has to clean up is cleaned up."""
    ended = []

    def fails(wanted: object) -> None:
        raise KeyboardInterrupt

    def flow() -> Generator[int, None, None]:
        try:
            yield 1
        finally:
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        run(flow(), fails)
    assert ended == [True]


def test_a_cancellation_is_thrown_into_the_flow() -> None:
    """A task that is cancelled while it waits lets the flow clean up first."""
    ended = []

    def flow() -> Generator[int, bool, None]:
        try:
            yield 1
        except asyncio.CancelledError:
            ended.append(True)
            raise

    async def main() -> None:
        waits = asyncio.Event()
        task = asyncio.create_task(drive_async(flow(), lambda _: waits.wait()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == [True]
