"""Functions as a source of truth."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bloomery.errors import InvalidParameter, InvalidSource
from bloomery.guard.sources.resilient import ASYNC


class CallSource:
    """Any functions: plain ones, or coroutines for an AsyncGuard.

    `one(key)` returns a key's value, None if it is not there; `many(keys)` a mapping of those that
    are there. `add(key, value, idempotency_key)` and `remove(key, idempotency_key)` return True if
    the key is new, or was there.
    """

    def __init__(
        self,
        one: Callable[[Any], Any] | None = None,
        *,
        many: Callable[[Sequence[Any]], Any] | None = None,
        add: Callable[[Any, Any, str], Any] | None = None,
        remove: Callable[[Any, str], Any] | None = None,
        name: str | None = None,
    ) -> None:
        """One of `one` and `many` is needed; with both, batches go to `many`."""
        functions = {"one": one, "many": many, "add": add, "remove": remove}
        for word, function in functions.items():
            if function is not None and not callable(function):
                raise InvalidParameter(
                    f"{word} is a {type(function).__name__}, must be a function: a source is a "
                    "function of a key, or something with get_many"
                )
        first = one or many
        if first is None:
            raise InvalidParameter("a source needs a function that looks up: one=… or many=…")
        self.name = name or getattr(first, "__qualname__", type(first).__name__)
        self._one, self._many = one, many
        if inspect.iscoroutinefunction(first):
            self.get_many: Callable[[Sequence[Any]], Any] = self._get_async
        else:
            self.get_many = self._get
        if add is not None:
            self.add = add
        if remove is not None:
            self.remove = remove

    def _get(self, keys: Sequence[Any]) -> Mapping[Any, Any]:
        if self._many is not None and (len(keys) > 1 or self._one is None):
            values: Mapping[Any, Any] = self._many(keys)
            return values
        assert self._one is not None
        return self._rows_of(keys, [self._one(key) for key in keys])

    async def _get_async(self, keys: Sequence[Any]) -> Mapping[Any, Any]:
        if self._many is not None and (len(keys) > 1 or self._one is None):
            values: Mapping[Any, Any] = await self._many(keys)
            return values
        assert self._one is not None
        return self._rows_of(keys, [await self._one(key) for key in keys])

    def _rows_of(self, keys: Sequence[Any], values: Sequence[Any]) -> Mapping[Any, Any]:
        for value in values:
            if inspect.isawaitable(value):
                if inspect.iscoroutine(value):
                    value.close()
                raise InvalidSource(f"the source {self.name} {ASYNC}")
        return {key: value for key, value in zip(keys, values, strict=True) if value is not None}
