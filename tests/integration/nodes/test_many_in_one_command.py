"""A command of many keys or names on a node that is some milliseconds away from Redis: the node
sends many of them with each round trip."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from integration.nodes.fleet import Fleet
from integration.nodes.proxy import Proxy
from integration.servers import RedisServer

DELAY = 0.008  # seconds from the node to Redis, and as many back
KEYS = 9000
NAMES = [f"name {number}" for number in range(600)]


@pytest.fixture(scope="module")
def far(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a node, and the node's link to Redis."""
    server: RedisServer = request.getfixturevalue("_redis")
    server.ask(b"FLUSHALL\r\n")
    with (
        Proxy(server.address) as link,
        Fleet(tmp_path_factory.mktemp("far"), [link.url]) as fleet,
        fleet.client(0, socket_timeout=100) as client,
    ):
        yield client, link


@pytest.mark.parametrize(
    ("items", "command", "reply"),
    [
        (KEYS, ["BF.MADD", "bloom", *range(KEYS)], [1] * KEYS),
        (KEYS, ["BF.INSERT", "bloom", "ITEMS", *range(KEYS, 2 * KEYS)], [1] * KEYS),
        (1000, ["CF.INSERT", "cuckoo", "ITEMS", *range(1000)], [1] * 1000),
        (len(NAMES), ["DEL", *NAMES], len(NAMES)),
        (len(NAMES), ["UNLINK", *NAMES], len(NAMES)),
        (len(NAMES), ["FLUSHALL"], True),
    ],
    ids=["BF.MADD", "BF.INSERT", "CF.INSERT", "DEL", "UNLINK", "FLUSHALL"],
)
def test_many_items_need_few_round_trips(
    far: tuple[Any, Proxy], items: int, command: list[Any], reply: object
) -> None:
    """A round trip for each item takes several times as long as this test allows."""
    client, link = far
    link.delay = 0
    client.flushall()
    client.execute_command("BF.RESERVE", "bloom", 1e-6, 3 * KEYS)
    client.execute_command("CF.RESERVE", "cuckoo", 3 * KEYS)
    if items == len(NAMES):
        pipeline = client.pipeline(transaction=False)
        for name in NAMES:
            pipeline.execute_command("BF.RESERVE", name, 0.01, 10)
        pipeline.execute()
    link.delay = DELAY
    start = time.monotonic()
    assert client.execute_command(*command) == reply
    seconds = time.monotonic() - start
    assert seconds < min(items, 1000) * 2 * DELAY / 3, seconds
