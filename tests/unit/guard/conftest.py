"""What the tests of the guard share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from unit.guard.harness import guards


@pytest.fixture(params=["threads", "asyncio", "coroutines"])
def guard_of(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Guard, or AsyncGuard asked in the same words."""
    with guards(request.param) as made:
        yield made
