"""The timed loops (the same for every peer), and the quiet in which they run."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection in the timed region: a collection walks every key in the list."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def time_empty(keys: list[Any]) -> int:
    """The floor: what the loop itself costs."""
    start = time.perf_counter_ns()
    for _key in keys:
        pass
    return time.perf_counter_ns() - start


def time_add(add: Callable[[Any], object], keys: list[Any]) -> int:
    start = time.perf_counter_ns()
    for key in keys:
        add(key)
    return time.perf_counter_ns() - start


def time_in(container: Any, keys: list[Any]) -> int:
    start = time.perf_counter_ns()
    for key in keys:
        key in container  # noqa: B015
    return time.perf_counter_ns() - start


def time_call(call: Callable[..., object], *arguments: Any) -> int:
    """One call, its result freed after the clock stopped."""
    start = time.perf_counter_ns()
    result = call(*arguments)
    elapsed = time.perf_counter_ns() - start
    del result
    return elapsed


class Best:
    """The best time a key of each labelled pass, over the rounds."""

    def __init__(self) -> None:
        self.ns: dict[str, float] = {}
        self.passes: dict[str, int] = {}

    def note(self, label: str, elapsed_ns: int, keys: int) -> None:
        value = elapsed_ns / keys
        self.ns[label] = min(value, self.ns.get(label, value))
        self.passes[label] = self.passes.get(label, 0) + 1


def rotated(items: list[Any], by: int) -> list[Any]:
    """Another one goes first each round, so that no peer always inherits the same cache."""
    turn = by % len(items) if items else 0
    return items[turn:] + items[:turn]


class Progress:
    """One line on standard error: rewritten on a terminal, one a step elsewhere."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.tty = sys.stderr.isatty()
        self._part, self._before, self._expected, self._all = "", 0, 0, 0
        self._since = self.started

    def begin(self, part: str, before: int, expected: int, all_: int) -> None:
        """A part begins: the seconds expected of those before it, of it, and of all."""
        self._part, self._before, self._expected, self._all = part, before, expected, all_
        self._since = time.monotonic()

    def step(self, text: str) -> None:
        clock = int(time.monotonic() - self.started)
        line = f"[{clock // 60:2d}:{clock % 60:02d}]{self._bar()} {text}"
        if self.tty:
            print(f"\r\033[K{line[:110]}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def _bar(self) -> str:
        if not self._all:
            return ""
        # A part that takes longer than it may stays at its end.
        done = self._before + min(time.monotonic() - self._since, self._expected)
        full = min(20, int(20 * done / self._all))
        return f" {'#' * full}{'.' * (20 - full)} {100 * done / self._all:3.0f}% {self._part} |"

    def end(self) -> None:
        if self.tty:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


progress = Progress()


def count_true(answers: Iterable[object]) -> int:
    """How many are True, for a list or a NumPy mask."""
    counted = getattr(answers, "sum", None)
    return int(counted()) if counted is not None else sum(map(bool, answers))
