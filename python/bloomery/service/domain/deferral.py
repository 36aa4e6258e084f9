"""Operations in two steps: what takes long is done in a thread first, then the operation is done.

An operation does its long part (to copy, merge or clear a filter of gigabytes) through
`Deferral.run`, before it changes anything. In a replay, and for who can wait, that part is done at
once. A running server defers it instead (`try_now`): the operation ends in `Deferred`, with the
work; `background` does the work in a thread, and then the operation again, now with the result
(`resume`). So the same code does it live and in a replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")
LARGE = 4 << 20  # bytes of a filter: what is done to all of a larger one takes milliseconds


class Deferred(Exception):
    """An operation has a long part, which is to be done in a thread. Nothing has changed.
    `grows`: that part is only that a filter grows, ahead of what is added to it."""

    def __init__(self, work: Callable[[], Any], *, grows: bool = False) -> None:
        self.work = work
        self.grows = grows


class Deferral:
    """Whether the long part of an operation is deferred, or has been done already."""

    def __init__(self) -> None:
        self.allowed = False
        self._result: tuple[Any] | None = None

    @property
    def resumed(self) -> bool:
        """Is an operation done again, with the result of its long part not yet used?"""
        return self._result is not None

    def run(self, nbytes: int, work: Callable[[], _T]) -> _T:
        """Do the part of an operation that goes through so many bytes, before anything is changed;
        or raise `Deferred`; or return what came of it in the thread."""
        if self._result is not None:
            (result,), self._result = self._result, None
            return result  # type: ignore[no-any-return]
        if self.allowed and nbytes > LARGE:
            raise Deferred(work)
        return work()

    def try_now(self, operation: Callable[[], _T], *, allowed: bool) -> _T:
        """Do an operation; `allowed`: it may end in `Deferred`."""
        self.allowed = allowed
        try:
            return operation()
        finally:
            self.allowed = False

    def resume(self, operation: Callable[[], _T], result: Any) -> _T:
        """Do an operation again, whose long part has this result."""
        self._result = (result,)
        try:
            return operation()
        finally:
            self._result = None
