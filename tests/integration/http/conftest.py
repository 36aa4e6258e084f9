"""Clients for the tests of the HTTP door."""

from collections.abc import Iterator

import pytest

from integration.http.asking import Http
from integration.servers import BloomeryServer


@pytest.fixture
def http(server: BloomeryServer) -> Iterator[Http]:
    """A client of the server that tests share: each takes names of its own."""
    with Http(server) as asking:
        yield asking
