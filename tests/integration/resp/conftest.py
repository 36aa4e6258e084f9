"""Servers for the tests of the Redis door."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from integration.conftest import open_folder, started
from integration.resp.wire import Wire
from integration.servers import BloomeryServer, RedisServer


@pytest.fixture(scope="session", params=["alone", "node"])
def _flushed(request: pytest.FixtureRequest) -> Iterator[BloomeryServer]:
    """A server alone, and a node of a shared log: each command does the same on both."""
    with ExitStack() as ends:
        arguments = []
        if request.param == "node":
            store = ends.enter_context(started(RedisServer(ends.enter_context(open_folder()))))
            arguments = [f"--set=store={store.url}", "--set=store-bootstrap-seconds=0.1"]
        server = BloomeryServer(ends.enter_context(open_folder()), *arguments)
        yield ends.enter_context(started(server, kill=True))


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
