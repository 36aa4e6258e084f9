"""Threads that run at once, and as much in each other's way as they can be."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def switching_often() -> Iterator[None]:
    """Let threads take turns as often as they can, so that a race has many chances."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def beside(work: Callable[[], object], *watchers: Callable[[], object]) -> None:
    """Run the watchers over and over, a thread each, while `work` runs; raise what one raised."""
    done, problems = threading.Event(), list[BaseException]()

    def watch(watcher: Callable[[], object]) -> None:
        try:
            while not done.is_set():
                watcher()
        except BaseException as problem:  # noqa: BLE001 - raised below
            problems.append(problem)

    threads = [threading.Thread(target=watch, args=[watcher]) for watcher in watchers]
    with switching_often():
        for thread in threads:
            thread.start()
        try:
            work()
        finally:
            done.set()
            for thread in threads:
                thread.join()
    if problems:
        raise problems[0]
