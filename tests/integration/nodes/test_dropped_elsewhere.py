"""A node that has not heard yet that others dropped a filter, and made another of its name."""

import contextlib
import threading
import time
from collections import Counter
from typing import Any

import httpx
import pytest
import redis
from bloomery.service.replication.catalogue import Catalogue, Listed, new_uid

from bloomery.integrations.redis.bits.strings import create
from bloomery.integrations.redis.config import planned
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.wire.link import Link
from integration.nodes.conftest import StartFleet
from integration.servers import RedisServer, wait_until

# Of one size, so that only the catalogue tells them apart; and a smaller one.
KINDS = ((1000, "xxh3"), (1000, "siphash"), (100, "xxh3"))


def _add(client: Any, key: str) -> bool:
    """Whether it was acknowledged."""
    try:
        client.execute_command("BF.ADD", "f", key)
    except redis.ResponseError as problem:
        if "try again" not in str(problem):
            raise
        return False
    return True


def test_keys_of_the_next_filter_of_that_name(
    start_fleet: StartFleet, redis_server: RedisServer
) -> None:
    """Dropped and made again at one node, with another hash function or size: what is asked of the
    other at once, with shared reads, is known; what it acknowledges is kept."""
    fleet = start_fleet(redis_server.url, nodes=2)
    with (
        fleet.client(0) as one,
        fleet.client(1) as other,
        fleet.client(1, shared=True) as sure,
    ):
        for number in range(60):
            capacity, hasher = KINDS[number % 3]
            one.delete("f")
            one.execute_command("BF.RESERVE", "f", 1e-6, capacity, "HASHER", hasher)
            one.execute_command("BF.ADD", "f", f"x{number}")
            if number % 2:
                assert sure.execute_command("BF.EXISTS", "f", f"x{number}") == 1, number
            else:
                known = [f"x{number}", *([f"y{number}"] if _add(other, f"y{number}") else [])]
                assert wait_until(lambda keys=known: fleet.answers("f", keys) == [0, 0])  # type: ignore[misc]
                assert fleet.answers("f", known, shared=True) == [0, 0]


def test_made_and_dropped_at_once(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """The stream tells a node of what it has made itself, perhaps after it has dropped it: that
    does not bring it back, and the name can be given again."""
    fleet = start_fleet(redis_server.url, nodes=1)
    with fleet.client(0) as one:
        for number in range(300):
            one.execute_command("BF.RESERVE", "f", 1e-6, 1000 + number)
            assert one.delete("f") == 1, number
        assert one.execute_command("KEYS", "*") == []


def test_writes_go_on_while_a_filter_is_dropped(
    start_fleet: StartFleet, redis_server: RedisServer
) -> None:
    """Clients add at one node what another drops: who meets that is told to try again, and adds to
    other filters are not refused; nothing is left in Redis of the filter."""
    fleet = start_fleet(redis_server.url, nodes=2)
    ending, said = threading.Event(), Counter[str]()

    def add() -> None:
        with fleet.client(1) as client:
            while not ending.is_set():
                for words in (("f", "NOCREATE", "ITEMS", "a"), ("stays", "ITEMS", "a")):
                    try:
                        client.execute_command("BF.INSERT", *words)
                    except redis.ResponseError as problem:
                        said[str(problem)] += 1

    workers = [threading.Thread(target=add) for _ in range(2)]
    with fleet.client(0) as one:
        one.execute_command("BF.RESERVE", "stays", 1e-6, 1000)
        for worker in workers:
            worker.start()
        try:
            for number in range(60):
                one.execute_command("BF.RESERVE", "f", 1e-6, 1000 + number)
                time.sleep(0.02)  # any moment of the others' adding
                assert one.delete("f") == 1
        finally:
            ending.set()
            for worker in workers:
                worker.join()
    assert not [text for text in said if "not found" not in text and "try again" not in text], said
    assert wait_until(lambda: fleet.ready(1))
    assert fleet.figures(1)["waiting_keys"] == fleet.figures(1)["restores"] == 0

    def left() -> list[Any]:
        return [key for key in redis_server.run("KEYS", "*") if key.startswith(b"{f")]

    assert wait_until(lambda: not left()), left()


def test_reserved_elsewhere(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """What one node has just reserved can be added to at another at once, in each way; the answer
    to shared reads by a stream of HTTP knows it too."""
    fleet = start_fleet(redis_server.url, nodes=2)
    ways: list[tuple[str, ...]] = [("BF.ADD", "a"), ("BF.MADD", "a"), ("BF.INSERT", "ITEMS", "a")]
    with fleet.client(0) as one, fleet.client(1) as other:
        for number in range(30):
            name, (word, *rest) = f"n{number}", ways[number % 3]
            one.execute_command("BF.RESERVE", name, 1e-6, 1000 + number)
            other.execute_command(word, name, *rest)
        names = [f"n{number}" for number in range(30)]
        assert wait_until(lambda: all(fleet.answers(name, ["a"]) == [0, 0] for name in names))


@pytest.mark.parametrize(
    ("method", "path", "body", "right"),
    [
        ("POST", "/add", {"keys": ["a"]}, 200),
        ("POST", "/contains", {"keys": ["a"]}, 200),
        ("GET", "", None, 200),
        ("PATCH", "", {"on_full": "reject"}, 200),
        ("DELETE", "", None, 204),
    ],
)
def test_made_elsewhere_by_http(
    start_fleet: StartFleet,
    redis_server: RedisServer,
    method: str,
    path: str,
    body: Any,
    right: int,
) -> None:
    """Behind a load balancer the next request goes to another node: it does not say that there is
    no such filter, although the stream has not told it yet."""
    fleet = start_fleet(redis_server.url, nodes=1)
    catalogue, wanted = Catalogue("bloomery", 1000), planned(1000, 0.01, "blocked", "xxh3", 0, 1)
    settings = {"kind": "bloom", "capacity": 1000, "error_rate": 0.01}
    listed = Listed(new_uid(), b"h", wanted.header, wanted.shards, settings, time.time())
    with (
        contextlib.closing(Link(redis_server.url)) as link,
        httpx.Client(base_url=f"http://127.0.0.1:{fleet.ports[0][1]}") as client,
    ):
        assert client.request(method, f"/filters/h{path}", json=body).status_code == 404
        link.run(create(Keys("h"), catalogue.config(listed), None))
        link.run(catalogue.change(b"h", None, listed))  # and no word of it in the stream
        found = client.request(method, f"/filters/h{path}", json=body)
        assert found.status_code == right, found.text
        client.delete("/filters/h")


def test_shared_adds_keep_to_the_capacity(
    start_fleet: StartFleet, redis_server: RedisServer
) -> None:
    """A filter that refuses what is beyond its capacity does so for who asks Redis; and what is new
    is what no node had added, by BF.INSERT too."""
    fleet = start_fleet(redis_server.url, nodes=2)
    with fleet.client(0, shared=True) as one, fleet.client(1, shared=True) as other:
        one.execute_command("BF.RESERVE", "n", 1e-6, 3, "NONSCALING")
        assert [one.execute_command("BF.ADD", "n", key) for key in "abc"] == [1, 1, 1]
        with pytest.raises(redis.ResponseError, match="full"):
            one.execute_command("BF.ADD", "n", "d")
        for number in range(20):
            key = f"k{number}"
            assert one.execute_command("BF.INSERT", "i", "ITEMS", key) == [1]
            assert other.execute_command("BF.INSERT", "i", "ITEMS", key) == [0]
