"""Coroutines that begin at once: what needs not wait is done in the caller's own step.

Operations are coroutines, since on a node they wait for the shared log. On a server alone none of
them waits: then it must be over when the call returns, as part of this turn and before anybody
else's command. A task would begin in the next round of the event loop only.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Coroutine, Generator
from typing import Any


def eagerly(value: Any) -> Any:
    """Run a coroutine up to its first wait: its value, or an awaitable of the rest. Anything else
    is returned as it is."""
    if not inspect.iscoroutine(value):
        return value
    try:
        waited = value.send(None)
    except StopIteration as end:
        return end.value
    return _rest(value, waited)


async def _rest(coroutine: Coroutine[Any, Any, Any], waited: Any) -> Any:
    return await _go_on(coroutine, waited)


@types.coroutine
def _go_on(coroutine: Coroutine[Any, Any, Any], waited: Any) -> Generator[Any, Any, Any]:
    try:
        while True:
            try:
                sent = yield waited
            except BaseException as problem:  # noqa: BLE001  # the coroutine's to judge
                waited = coroutine.throw(problem)
            else:
                waited = coroutine.send(sent)
    except StopIteration as end:
        return end.value
