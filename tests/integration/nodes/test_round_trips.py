"""How often a node asks Redis for one HTTP request, as Redis itself counts it."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import redis

from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import Fleet
from integration.servers import RedisServer

REQUESTS = 40
# What a node may ask by itself meanwhile: that it is alive, and whether it missed something.
OWN = REQUESTS // 2
CatchUps = Callable[[], int]


@pytest.fixture
def catch_ups(redis_server: RedisServer) -> Iterator[CatchUps]:
    """Count the requests to Redis for new log entries, but for those that wait for one (XREAD):
    each ends with ROLE."""
    with redis.Redis(port=redis_server.port) as client:

        def count() -> int:
            stats: dict[str, Any] = client.info("commandstats")

            def calls(command: str) -> int:
                return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))

            return calls("role") - calls("xread")

        yield count


def start(start_fleet: StartFleet, redis_server: RedisServer, consistency: str) -> Fleet:
    """Start one node, with a filter of one key."""
    fleet = start_fleet(redis_server.url, nodes=1, store_consistency=consistency)
    with fleet.client(0) as client:
        client.execute_command("BF.RESERVE", "seen", 0.01, 1000)
        client.execute_command("BF.ADD", "seen", "a")
    return fleet


@pytest.mark.parametrize("as_stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize(
    ("consistency", "query", "times"),
    [
        ("strong", "", 1),
        ("local", "?consistency=strong", 1),
        ("strong", "?consistency=local", 0),
        ("local", "", 0),
    ],
)
def test_strong_read_catches_up_once(
    start_fleet: StartFleet,
    redis_server: RedisServer,
    catch_ups: CatchUps,
    consistency: str,
    query: str,
    times: int,
    as_stream: bool,
) -> None:
    """A strong read waits for one round trip to Redis, and a local one for none, whether the
    request or the setting says which it is, and in each form of a body."""
    fleet = start(start_fleet, redis_server, consistency)
    body = b'"a"\n' if as_stream else b'{"keys":["a"]}'
    media = "application/x-ndjson" if as_stream else "application/json"
    with httpx.Client(base_url=fleet.nodes[0].url, headers={"content-type": media}) as http:
        before = catch_ups()
        for _ in range(REQUESTS):
            answer = http.post(f"/filters/seen/contains{query}", content=body)
            assert answer.json() == ({"keys": 1, "maybe": 1} if as_stream else {"maybe": [True]})
        asked = catch_ups() - before
    assert times * REQUESTS <= asked < times * REQUESTS + OWN


def test_add_does_not_catch_up(
    start_fleet: StartFleet, redis_server: RedisServer, catch_ups: CatchUps
) -> None:
    """An add to a known filter is decided by the log: it asks for no entries before it."""
    fleet = start(start_fleet, redis_server, "strong")
    with httpx.Client(base_url=fleet.nodes[0].url) as http:
        before = catch_ups()
        for number in range(REQUESTS):
            answer = http.post("/filters/seen/add", json={"key": f"new {number}"})
            assert answer.status_code == 200
        asked = catch_ups() - before
    assert asked < OWN


def test_strong_read_of_an_unknown_filter_catches_up_once(
    start_fleet: StartFleet, redis_server: RedisServer, catch_ups: CatchUps
) -> None:
    """The same round trip brings the filter that another node has just made."""
    fleet = start(start_fleet, redis_server, "strong")
    with httpx.Client(base_url=fleet.nodes[0].url) as http:
        before = catch_ups()
        for number in range(REQUESTS):
            answer = http.post(f"/filters/none-{number}/contains", json={"key": "a"})
            assert answer.json()["code"] == "unknown-filter"
        asked = catch_ups() - before
    assert REQUESTS <= asked < REQUESTS + OWN
