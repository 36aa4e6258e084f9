"""Servers for the tests of the Redis door."""

from collections.abc import Iterator

import pytest

from integration.conftest import open_folder, started
from integration.resp.wire import Wire
from integration.servers import BloomeryServer


@pytest.fixture(scope="session")
def _flushed() -> Iterator[BloomeryServer]:
    with open_folder() as folder, started(BloomeryServer(folder), kill=True) as server:
        yield server


@pytest.fixture
def empty(_flushed: BloomeryServer) -> BloomeryServer:
    """A `bloomery serve` without filters, in the settings it starts with; one test uses it at a
    time, and ends nothing."""
    with Wire(_flushed.resp_port) as wire:
        assert wire.ask("FLUSHALL") == b"+OK\r\n"
        defaults = ("bf-layout", "bloomery", "maxmemory", 0, "timeout", 0, "maxclients", 10_000)
        assert wire.ask("CONFIG", "SET", *defaults) == b"+OK\r\n"
    return _flushed


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def protocol(request: pytest.FixtureRequest) -> int:
    """Either protocol."""
    number: int = request.param
    return number
