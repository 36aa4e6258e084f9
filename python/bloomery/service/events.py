"""Events that several parts of a server listen to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

_P = ParamSpec("_P")


class Event(Generic[_P]):
    """Something that happens; calling it calls all subscribers, in the order they subscribed."""

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: list[Callable[_P, object]] = []

    def subscribe(self, subscriber: Callable[_P, object]) -> None:
        """Call this function whenever it happens from now on."""
        self._subscribers.append(subscriber)

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Tell all subscribers."""
        for subscriber in self._subscribers:
            subscriber(*args, **kwargs)
