"""Every test of a filter in Redis runs for threads and for asyncio."""

from collections.abc import Iterator

import pytest

from integration.redis.either import BOTH, Either


@pytest.fixture(params=BOTH, ids=["threads", "asyncio"])
def either(request: pytest.FixtureRequest) -> Iterator[Either]:
    """Makes filters and clients of one of the two kinds, and closes them."""
    made = Either(request.param)
    try:
        yield made
    finally:
        made.close()
