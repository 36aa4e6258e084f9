"""Filters that nodes make, drop and let end: in one order for all of them."""

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from integration.conftest import open_folder, started
from integration.nodes.fleet import Fleet
from integration.servers import RedisServer, wait_until

PLAIN = ("KIND", "bloom")


@pytest.fixture(scope="module")
def store() -> Iterator[RedisServer]:
    """A Redis for all tests here: each has names of its own."""
    with open_folder() as folder, started(RedisServer(folder), kill=True) as server:
        yield server


@pytest.fixture(scope="module")
def fleet(store: RedisServer) -> Iterator[Fleet]:
    """Two nodes that follow one another."""
    with open_folder() as folder, Fleet(folder, store.url, nodes=2) as made:
        yield made


def _all_know(fleet: Fleet, name: Any, *keys: str) -> bool:
    return wait_until(lambda: fleet.answers(name, list(keys)) == [0, 0])


def _catch_up(fleet: Fleet) -> None:
    """Wait until each node has read all of the stream: what another tells now is behind it."""
    for number in range(2):
        name = f"last {time.monotonic_ns()}"
        with fleet.client(number) as client:
            client.execute_command("BF.ADD", name, "key")
        assert _all_know(fleet, name, "key")


def _knows(client: Any, name: str, key: str) -> bool:
    return bool(client.execute_command("BF.EXISTS", name, key))


def _is_gone(client: Any, name: str) -> bool:
    return bool(client.exists(name) == 0)


def test_a_node_has_no_backup(fleet: Fleet) -> None:
    """Its filters are in Redis, which is what to back up, as the answer says."""
    answer = httpx.get(f"{fleet.nodes[0].url}/backup")
    assert answer.status_code == 422
    assert "back that Redis up" in answer.json()["detail"]


def test_made_dropped_and_made_again_at_one_node(fleet: Fleet) -> None:
    """What the stream tells a node of its own past changes nothing: the keys of the last filter of
    a name stay there, also when it hears of those before."""
    with fleet.client(0) as one, one.pipeline(transaction=False) as together:
        for number in range(30):  # in one turn: it hears of all of it only afterwards
            together.execute_command("BF.RESERVE", "again", 1e-6, 100 + number, *PLAIN)
            together.execute_command("BF.ADD", "again", f"key-{number}")
            if number < 29:
                together.delete("again")
        together.execute()
    assert _all_know(fleet, "again", "key-29")
    _catch_up(fleet)
    assert fleet.answers("again", ["key-29"]) == [0, 0]
    assert fleet.answers("again", ["key-28"]) == [1, 1]


def test_made_and_dropped_at_different_nodes(fleet: Fleet) -> None:
    """One node drops what the other has made, and makes it again, larger."""
    for number in range(20):
        with fleet.client(number % 2) as one, fleet.client(1 - number % 2) as other:
            one.execute_command("BF.RESERVE", "both", 1e-6, 1000 + number, *PLAIN)
            one.execute_command("BF.ADD", "both", f"a{number}")
            assert wait_until(partial(_knows, other, "both", f"a{number}"))
            other.execute_command("BF.ADD", "both", f"b{number}")
            assert _all_know(fleet, "both", f"a{number}", f"b{number}")
            assert other.delete("both") == 1
            assert wait_until(partial(_is_gone, one, "both"))


def test_two_nodes_make_one_filter_at_once(fleet: Fleet) -> None:
    """Alike: both have it, and each has what the other adds. Unlike: exactly one is told that it
    cannot be."""
    with fleet.client(0) as one, fleet.client(1) as other, ThreadPoolExecutor(2) as pool:

        def make(at: Any, name: str, capacity: int) -> Any:
            try:
                at.execute_command("BF.RESERVE", name, 1e-6, capacity, *PLAIN)
            except redis.ResponseError as problem:
                return str(problem)
            return "made"

        for number in range(40):
            same = pool.map(make, (one, other), [f"same{number}"] * 2, (1000, 1000))
            for said in same:
                assert said == "made" or "exists" in said, said
            one.execute_command("BF.ADD", f"same{number}", "a")
            other.execute_command("BF.ADD", f"same{number}", "b")
            said = sorted(pool.map(make, (one, other), [f"apart{number}"] * 2, (1000, 2000)))
            assert said[1] == "made", said
            assert said[0] != "made", said
            assert "exist" in said[0], said
        for number in range(40):
            assert _all_know(fleet, f"same{number}", "a", "b")


@pytest.mark.parametrize(
    "name",
    [b"{a} b", b"}{", b"{}", b"a:1", b"a:1:bits", b"\xff\xfe \x00", "größe ✓".encode(), b" "],
    ids=repr,
)
def test_names(fleet: Fleet, name: bytes) -> None:
    """Braces, spaces, colons and bytes that are no text: each is a name like any other."""
    with fleet.client(0) as one, fleet.client(1) as other:
        one.execute_command("BF.RESERVE", name, 1e-6, 1000, *PLAIN)
        one.execute_command("BF.ADD", name, "a")
        assert wait_until(lambda: other.execute_command("BF.EXISTS", name, "a") == 1)
        other.execute_command("BF.ADD", name, "b")
        assert _all_know(fleet, name, "a", "b")
        assert other.delete(name) == 1
        assert wait_until(lambda: one.exists(name) == 0)


def test_an_end_in_time(fleet: Fleet) -> None:
    """A filter that has expired is gone at every node, at once its name is free, and what is made
    under it then stays."""
    with fleet.client(0) as one, fleet.client(1) as other:
        one.execute_command("BF.RESERVE", "brief", 1e-6, 1000, *PLAIN)
        one.execute_command("BF.ADD", "brief", "old")
        assert wait_until(lambda: other.execute_command("BF.EXISTS", "brief", "old") == 1)
        assert one.pexpire("brief", 3000) == 1  # long enough to be seen at the other node
        assert wait_until(lambda: other.pttl("brief") > 0)
        assert wait_until(lambda: one.exists("brief") == 0)
        one.execute_command("BF.RESERVE", "brief", 1e-6, 1000, *PLAIN)
        one.execute_command("BF.ADD", "brief", "new")
        assert _all_know(fleet, "brief", "new")
        _catch_up(fleet)
        assert fleet.answers("brief", ["new"]) == [0, 0]
        assert fleet.answers("brief", ["old"]) == [1, 1]
        assert other.pttl("brief") == -1
    fleet.nodes[1].kill()
    fleet.nodes[1].start()
    assert fleet.answers("brief", ["new"]) == [0, 0]


def test_a_row_inserted_into_the_registries_of_two_nodes(fleet: Fleet) -> None:
    """Rows of one name at both nodes are one filter of all of them; each row is a filter's, and one
    of them says that there was one already, or that another node was just making it."""
    insert = (
        "INSERT INTO BloomFilterConfig (name, expected_elements, fp_rate, m_bits, k_hashes)"
        " VALUES ('inserted', 1000, 0.01, 9586, 7)"
    )
    files = [node.data / "registry.sqlite" for node in fleet.nodes]

    def numbers() -> list[tuple[int | None, str | None]]:
        found = "SELECT number, problem FROM BloomFilterConfig WHERE name = 'inserted'"
        return [asked for file in files for asked in _sql(file, found)]

    for file in files:
        _sql(file, insert)
    assert wait_until(lambda: all(number is not None for number, _ in numbers())), numbers()
    with fleet.client(0) as client:
        client.execute_command("BF.ADD", "inserted", "key")
    assert _all_know(fleet, "inserted", "key")
    assert [problem for _, problem in numbers()].count(None) >= 1
    with fleet.client(1) as client:
        assert client.execute_command("BF.INFO", "inserted", "CAPACITY") == {b"Capacity": 1000}


def _sql(file: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(file, timeout=30)) as connection, connection:
        return connection.execute(statement).fetchall()
