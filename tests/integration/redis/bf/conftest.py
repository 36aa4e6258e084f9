"""Servers with BF.*, for all tests of this folder."""

from collections.abc import Iterator
from typing import Any

import pytest

from conftest import require
from integration.conftest import open_folder
from integration.servers import BloomeryServer

redis = require("redis")
LAYOUTS = ("bloomery", "redisbloom")


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, BloomeryServer]]:
    """One of each layout."""
    with open_folder() as one, open_folder() as other:
        found = {
            layout: BloomeryServer(folder, "--bf-layout", layout)
            for layout, folder in zip(LAYOUTS, (one, other), strict=True)
        }
        try:
            for server in found.values():
                server.start()
            yield found
        finally:
            for server in found.values():
                server.kill()


@pytest.fixture(params=[(layout, version) for layout in LAYOUTS for version in (2, 3)], ids=str)
def client(request: Any, servers: dict[str, BloomeryServer]) -> Iterator[Any]:
    """A client of an empty server."""
    layout, version = request.param
    with redis.Redis(port=servers[layout].resp_port, protocol=version) as made:
        made.flushall()
        yield made
