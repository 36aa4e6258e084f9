"""What the tests of the guard share."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter
from bloomery.guard import Guard, SqliteQueue
from unit.guard.flaky import QUIET, Flaky
from unit.guard.harness import guards


@pytest.fixture(params=["threads", "asyncio", "coroutines"])
def guard_of(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Guard, or AsyncGuard asked in the same words."""
    with guards(request.param) as made:
        yield made


@pytest.fixture
def source() -> Flaky:
    """One that is down."""
    made = Flaky()
    made.mode = "down"
    return made


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[SqliteQueue]:
    """An empty queue."""
    made = SqliteQueue(tmp_path / "q", fsync=False)
    yield made
    made.close()


@pytest.fixture
def guard(source: Flaky, queue: SqliteQueue) -> Iterator[Guard]:
    """A guard that drains when it is told to."""
    with Guard(BloomFilter(10_000), source, queue=queue, **QUIET) as made:
        yield made
