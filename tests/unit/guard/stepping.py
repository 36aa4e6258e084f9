"""Flows driven by hand: step by step, in any order, so that every interleaving can be tried.

A call is two steps: what it does, and the flow that goes on with what came of it. In between others
may do what they like, as threads do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from bloomery.guard.driver import Call, Flow


class Steps:
    """One flow under way. `call` does a call, by default at once."""

    def __init__(self, flow: Flow[Any], call: Callable[[Call], Any] | None = None) -> None:
        self._flow = flow
        self._call = call or (lambda wanted: wanted.what(*wanted.args))  # type: ignore[operator]
        self._came: tuple[Any, BaseException | None] | None = (None, None)
        self._wanted: Call | None = None
        self.ended = False
        self.result: Any = None
        self.problem: BaseException | None = None

    @property
    def ready(self) -> bool:
        """Can it go on? Not while it waits for another."""
        if self.ended:
            return False
        wanted = self._wanted
        waits = wanted is not None and self._came is None and isinstance(wanted.what, Future)
        return not waits or wanted.what.done()  # type: ignore[union-attr]

    def step(self) -> None:
        """Do the call, or go on with what came of it."""
        if self._came is None:
            assert self._wanted is not None
            try:
                what = self._wanted.what
                done = what.result(0) if isinstance(what, Future) else self._call(self._wanted)
                self._came = (done, None)
            except BaseException as problem:  # noqa: BLE001 - the flow's to judge
                self._came = (None, problem)
            return
        (value, raised), self._came = self._came, None
        try:
            self._wanted = self._flow.throw(raised) if raised else self._flow.send(value)
        except StopIteration as end:
            self.ended, self.result = True, end.value
        except Exception as problem:  # noqa: BLE001 - for the test to see
            self.ended, self.problem = True, problem

    def finish(self) -> None:
        """Take all steps that are left."""
        while self.ready:
            self.step()


def every_order(
    begin: Callable[[], tuple[list[Steps], Callable[[], None]]],
) -> Iterator[tuple[list[int], list[Steps]]]:
    """Run the flows that `begin` makes anew each time, in every order there is; after each step,
    and at the end, its second result is called. Yields each order, and the flows, ended."""
    orders: list[list[int]] = [[]]
    while orders:
        order = orders.pop()
        flows, check = begin()
        for chosen in order:
            flows[chosen].step()
        while ready := [n for n, flow in enumerate(flows) if flow.ready]:
            orders += [[*order, other] for other in ready[1:]]
            order = [*order, ready[0]]
            flows[ready[0]].step()
            check()
        yield order, flows
