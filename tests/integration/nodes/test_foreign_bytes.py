"""Somebody else writes to the nodes' keys in Redis, or an operator damages them."""

import json

import pytest

from integration.nodes.conftest import StartFleet
from integration.servers import RedisServer, wait_until

STREAM, CATALOGUE = "{bloomery}:stream", "{bloomery}:filters"
HEAD = b"\0" * 8 + b"\2" + (5).to_bytes(4, "little")  # of a filter that was made
JUNK = [
    {"x": "y"},
    {"w": "12345678", "d": b"\xff" * 30},
    {"w": "12345678", "d": HEAD + b"[[[[["},
    {"w": "12345678", "d": HEAD[:9] + (10**5).to_bytes(4, "little") + b"[" * 10**5},
]


def test_entries_of_the_stream(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """A node that cannot read an entry loads all bits, and goes on behind it."""
    fleet = start_fleet(redis_server.url, nodes=2, store_max_lag_ms=1000)
    with fleet.client(0) as one, fleet.client(1) as other, redis_server.client() as store:
        one.execute_command("BF.RESERVE", "f", 1e-6, 1000)
        for number, junk in enumerate(JUNK):
            store.xadd(STREAM, junk)
            key = f"k{number}"
            one.execute_command("BF.ADD", "f", key)
            assert wait_until(
                lambda key=key: other.execute_command("BF.EXISTS", "f", key) == 1  # type: ignore[misc]
            ), fleet.told(1)
    fleet.wait_ready()
    assert "cannot be read" in fleet.nodes[1].printed()


def test_the_stream_is_deleted(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """Nodes go on, and hear of one another."""
    fleet = start_fleet(redis_server.url, nodes=2)
    with fleet.client(0) as one, fleet.client(1) as other:
        one.execute_command("BF.ADD", "f", "a")
        assert wait_until(lambda: fleet.answers("f", ["a"]) == [0, 0])
        redis_server.run("DEL", STREAM)
        one.execute_command("BF.ADD", "f", "b")
        other.execute_command("BF.ADD", "f", "c")
        assert wait_until(lambda: fleet.answers("f", ["a", "b", "c"]) == [0, 0])


@pytest.mark.parametrize(
    "change",
    [{"shards": 10**9}, {"expires_at": "soon"}, {"settings": []}, {"uid": -5}, {"header": "00"}],
    ids=str,
)
def test_the_catalogue(
    start_fleet: StartFleet, redis_server: RedisServer, change: dict[str, object]
) -> None:
    """A node that is started says what is wrong, in one line, and comes up once it is right."""
    fleet = start_fleet(redis_server.url, nodes=1)
    with fleet.client(0) as one:
        one.execute_command("BF.ADD", "f", "a")
    with redis_server.client() as store:
        right = json.loads(store.hget(CATALOGUE, "f"))
        store.hset(CATALOGUE, "g", json.dumps({**right, "name": "g", "uid": 7} | change))
        fleet.nodes[0].kill()
        fleet.nodes[0].spawn()
        assert wait_until(lambda: "cannot be read" in fleet.nodes[0].printed())
        assert "Traceback" not in fleet.nodes[0].printed()
        store.hdel(CATALOGUE, "g")
    fleet.wait_ready()
    assert fleet.answers("f", ["a"]) == [0]
