"""A guard around a look-up function that is there already."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from bloomery.errors import InvalidParameter
from bloomery.guard.aio import AsyncGuard
from bloomery.guard.guard import Guard

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from bloomery.guard.options import GuardOptions

F = TypeVar("F", bound=Callable[..., Any])


def guarded(filter: Any, *, cache: Any = None, **options: Unpack[GuardOptions]) -> Callable[[F], F]:
    """Put a guard in front of a function, or coroutine, of a key.

        @guarded(filter, cache=LocalCache(10_000), ttl=60)
        def user(name): ...

    It is called as before, and returns None for what is not there; `user.guard` is the guard.
    """
    outage = options.get("on_outage", "raise")
    if outage in ("queue", "maybe"):
        raise InvalidParameter(
            f"on_outage is {outage!r}, which answers without a value: a decorated function can "
            "'raise' or be 'stale'; use a Guard for the others"
        )

    def decorate(function: F) -> F:
        if inspect.iscoroutinefunction(function):
            there = AsyncGuard(filter, function, cache=cache, **options)

            @functools.wraps(function)
            async def aguarded(key: Any) -> Any:
                return (await there.get(key)).value

            aguarded.guard = there  # type: ignore[attr-defined]
            return aguarded  # type: ignore[return-value]
        here = Guard(filter, function, cache=cache, **options)

        @functools.wraps(function)
        def called(key: Any) -> Any:
            return here.get(key).value

        called.guard = here  # type: ignore[attr-defined]
        return called  # type: ignore[return-value]

    return decorate
