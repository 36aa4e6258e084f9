"""Clients for the tests of the HTTP door. What is about commands runs against a server alone and
against a node of a shared log: each command does the same on both."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from integration.conftest import open_folder, started
from integration.http.asking import Http
from integration.servers import BloomeryServer, RedisServer

# The rest is about HTTP itself: heads, bodies, limits, origins.
COMMANDS = {
    *("test_keys.py", "test_key_doors.py", "test_filters.py", "test_file.py", "test_streams.py"),
    *("test_client.py", "test_async_client.py", "test_client_errors.py"),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests of commands twice."""
    if "server" in metafunc.fixturenames and metafunc.definition.path.name in COMMANDS:
        metafunc.parametrize("_place", ["alone", "node"], indirect=True, scope="session")


@pytest.fixture(scope="session")
def _place(request: pytest.FixtureRequest) -> Iterator[BloomeryServer]:
    """The server that tests share, or a node that they share."""
    if getattr(request, "param", "alone") == "alone":
        yield request.getfixturevalue("_shared")
        return
    with ExitStack() as ends:
        store = ends.enter_context(started(RedisServer(ends.enter_context(open_folder()))))
        node = (f"--set=store={store.url}", "--set=store-bootstrap-seconds=0.1")
        server = BloomeryServer(ends.enter_context(open_folder()), *node)
        yield ends.enter_context(started(server, kill=True))


@pytest.fixture
def server(_place: BloomeryServer) -> BloomeryServer:
    """A `bloomery serve` that tests share: each takes names of its own, and ends nothing."""
    return _place


@pytest.fixture
def http(server: BloomeryServer) -> Iterator[Http]:
    """A client of the server that tests share: each takes names of its own."""
    with Http(server) as asking:
        yield asking
