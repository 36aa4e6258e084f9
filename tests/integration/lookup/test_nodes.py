"""Look-ups on nodes: the filter and the local cache are each node's, the cache in Redis and the
database are shared; and a filter is rebuilt by one node for all."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from integration.http.asking import Http
from integration.lookup.places import DATABASE, LOCKED, PLAIN, configuration, url
from integration.lookup.test_forget import looked_up, retitle
from integration.nodes.fleet import Fleet
from integration.servers import PostgresServer, RedisServer, wait_until

OURS = "rebuilt_on_nodes"  # a table of its own
ROWS = 30_000
StartBound = Callable[..., Fleet]


@pytest.fixture
def start_bound(
    tmp_path: Path, table: PostgresServer, redis_server: RedisServer
) -> Iterator[StartBound]:
    """Start nodes with sources of the database: `start_bound(urls=PLAIN)`."""
    with ExitStack() as ends:

        def start(nodes: int = 2, **sources: str) -> Fleet:
            fleet = Fleet(tmp_path, f"redis://127.0.0.1:{redis_server.port}/0", nodes=nodes)
            config = configuration(tmp_path, table, **sources)
            for one in fleet.nodes:
                one.arguments = (*one.arguments, "--config", str(config))
            return ends.enter_context(fleet)

        yield start


def https(fleet: Fleet, ends: ExitStack) -> list[Http]:
    """A client of each node's HTTP."""
    return [ends.enter_context(Http(one)) for one in fleet.nodes]


def shared(redis_server: RedisServer) -> str:
    return f'{PLAIN}cache = "redis://127.0.0.1:{redis_server.port}/1"\n'


def test_filter_and_caches(
    start_bound: StartBound, redis_server: RedisServer, table: PostgresServer
) -> None:
    """A filter that one node binds is bound on all; each asks the database once and has its local
    cache then, and with a cache in Redis one asks for all. What is forgotten by one node is asked
    for anew by all, at once where reads are strong."""
    fleet = start_bound(urls=PLAIN, shared=shared(redis_server))
    with ExitStack() as ends:
        one, other = https(fleet, ends)
        client = ends.enter_context(fleet.client(1, strong=True))
        for source, by in (("urls", "source"), ("shared", "cache")):
            key = url(1500 + len(source))
            one.create(source)
            with fleet.client(0) as resp:
                assert resp.execute_command("BF.BIND", source, source) == b"OK"
                resp.execute_command("BF.ADD", source, key)
            retitle(table, 1500 + len(source), "before")
            strong = f"/filters/{source}/lookup?consistency=strong"
            assert looked_up(one, source, key) == ("before", "source")
            assert other.ask("POST", strong, {"key": key})["by"] == by
            assert looked_up(other, source, key) == ("before", "cache")
            assert other.ask("POST", strong, {"key": "never added"})["by"] == "filter"
            retitle(table, 1500 + len(source), "after")
            assert looked_up(other, source, key) == ("before", "cache")
            with fleet.client(0) as resp:
                assert resp.execute_command("BF.FORGET", source, key) == b"OK"
            found, value, _ = client.execute_command("BF.LOOKUP", source, key)[0]
            assert (found, value) == (1, b"after")
            assert looked_up(one, source, key)[0] == "after"
            assert looked_up(other, source, key) == ("after", "cache")
            retitle(table, 1500 + len(source), "last")
            other.ask("POST", f"/filters/{source}/forget", {"key": key}, 204)
            assert one.ask("POST", strong, {"key": key})["value"] == "last"
        other.ask("PATCH", "/filters/urls", {"source": None})
        told = one.ask("POST", "/filters/urls/lookup?consistency=strong", {"key": url(1)}, 422)
        assert "is not bound" in told["detail"]


@pytest.mark.parametrize("cache", ["local", "redis"])
def test_a_look_up_of_another_node_does_not_bring_it_back(
    start_bound: StartBound, redis_server: RedisServer, holder: Any, cache: str
) -> None:
    """A look-up is under way on one node while the other forgets its key: it is not cached."""
    place = "local" if cache == "local" else f"redis://127.0.0.1:{redis_server.port}/1"
    fleet = start_bound(slow=f'query = "{LOCKED}"\ncache = "{place}"\nconnections = 2\n')
    with ExitStack() as ends:
        one, other = https(fleet, ends)
        one.create("race", source="slow")
        one.keys("race", "add", url(1))
        answers: list[Any] = []
        ask = {"key": url(1)}
        path = "/filters/race/lookup?consistency=strong"
        thread = threading.Thread(target=lambda: answers.append(other.ask("POST", path, ask)))
        thread.start()
        try:
            metrics = ends.enter_context(Http(fleet.nodes[1])).client
            assert wait_until(
                lambda: "bloomery_lookups_waiting 1.0" in metrics.get("/metrics").text
            )
            one.ask("POST", "/filters/race/forget", {"key": url(1)}, 204)
            # The other node has read it, once it answers strongly.
            with fleet.client(1, strong=True) as client:
                assert client.execute_command("BF.EXISTS", "race", url(1)) == 1
        finally:
            holder.execute("SELECT pg_advisory_unlock(7)")
            thread.join()
        assert answers[0]["by"] == "source"
        assert looked_up(other, "race", url(1)) == ("title 1", "source")
        assert looked_up(other, "race", url(1)) == ("title 1", "cache")


def test_an_outage_of_the_database(
    start_bound: StartBound, table: PostgresServer, tmp_path: Path
) -> None:
    """Every node answers as `on-outage` has it: with an error, by its old answer, with a maybe;
    what the filter denies is denied all the while."""
    fleet = start_bound(
        failing=f'{PLAIN}cache = "none"\ntimeout = 2\n',
        stale=f'{PLAIN}on-outage = "stale"\nttl = 0.001\nstale-for = 600\ntimeout = 2\n',
        maybe=f'{PLAIN}cache = "none"\non-outage = "maybe"\ntimeout = 2\n',
    )
    with ExitStack() as ends:
        nodes = https(fleet, ends)
        for name in ("failing", "stale", "maybe"):
            nodes[0].create(name, source=name)
            nodes[0].keys(name, "add", url(3))
            for http in nodes:
                path = f"/filters/{name}/lookup?consistency=strong"
                assert http.ask("POST", path, {"key": url(3)})["value"] == "title 3"
        table.kill()
        try:
            for http in nodes:
                told = http.ask("POST", "/filters/failing/lookup", {"key": url(3)}, 503)
                assert told["code"] == "source-unavailable"
                assert looked_up(http, "stale", url(3)) == ("title 3", "stale")
                assert looked_up(http, "maybe", url(3)) == (None, "unconfirmed")
                assert looked_up(http, "failing", "never added") == (None, "filter")
        finally:
            table.start()


# Rebuilds.


@pytest.fixture
def rows(table: PostgresServer) -> str:
    """A table of some rows; the source of it."""
    table.run(
        f"DROP TABLE IF EXISTS {OURS}; CREATE TABLE {OURS} (url text PRIMARY KEY);"
        f"INSERT INTO {OURS} SELECT 'url ' || i FROM generate_series(0, {ROWS - 1}) AS i",
        DATABASE,
    )
    return f'table = "{OURS}"\nkey = "url"\ncache = "none"\n'


class Writer(threading.Thread):
    """Adds keys by one node, each then to the table, until it is told to stop; all that it was
    acknowledged must be there, on both nodes, whenever it asks."""

    def __init__(self, fleet: Fleet, at: int, postgres: PostgresServer, name: str) -> None:
        super().__init__()
        self.fleet, self.at, self.filter = fleet, at, name
        self.place = postgres.url(DATABASE).replace("postgresql+psycopg", "postgresql")
        self.acknowledged: list[str] = []
        self.problems: list[object] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        ask = "BF.MEXISTS"
        with (
            self.fleet.client(self.at) as own,
            self.fleet.client(1 - self.at, strong=True) as other,
            psycopg.connect(self.place, autocommit=True) as table,
        ):
            while not self.stopping.is_set():
                key = f"written by {self.at}: {len(self.acknowledged)}"
                try:
                    own.execute_command("BF.ADD", self.filter, key)
                    table.execute(f"INSERT INTO {OURS} VALUES (%s)", (key,))
                    self.acknowledged.append(key)
                    last = self.acknowledged[-200:]
                    for client in (own, other):
                        if not all(client.execute_command(ask, self.filter, *last)):
                            self.problems.append(f"{key}: denied")
                except Exception as problem:  # noqa: BLE001  # the test tells
                    self.problems.append(repr(problem.args))
                    return

    def end(self) -> list[str]:
        """Stop it; what it was acknowledged."""
        self.stopping.set()
        self.join()
        assert not self.problems, self.problems[:3]
        return self.acknowledged


def rebuild(http: Http, name: str = "seen") -> Any:
    """What a node knows of the rebuild of a filter."""
    return http.ask("GET", f"/filters/{name}")["rebuild"]


def stale_keys(http: Http) -> list[str]:
    """Keys that are only in the old filter, and go with it."""
    gone = [f"gone {number}" for number in range(500)]
    http.keys("seen", "add", *gone)
    return gone


def test_a_rebuild_is_swapped_in_on_all_nodes(
    start_bound: StartBound, rows: str, table: PostgresServer
) -> None:
    """While both nodes add keys, one rebuilds the filter: nothing that was acknowledged is denied
    at any time by any node, and what only the old one had is gone from both at last."""
    fleet = start_bound(ours=rows)
    with ExitStack() as ends:
        one, other = https(fleet, ends)
        one.create("seen", 2000, source="ours", error_rate=0.0001)
        gone = stale_keys(one)
        writers = [Writer(fleet, at, table, "seen") for at in (0, 1)]
        for writer in writers:
            writer.start()
        try:
            one.ask("POST", "/filters/seen/rebuild", {"settle": 1}, 202)
            assert wait_until(lambda: rebuild(other) is not None)
            assert rebuild(other)["state"] in ("elsewhere", "done")
            with fleet.client(1) as client:
                assert client.execute_command("KEYS", "*") == [b"seen"]
            assert wait_until(lambda: rebuild(one)["state"] not in ("settling", "reading"))
            assert rebuild(one)["state"] == "done", rebuild(one)
        finally:
            written = [key for writer in writers for key in writer.end()]
        keys = [url(number) for number in range(ROWS)] + written
        assert len(written) > 50
        assert fleet.answers("seen", keys, strong=True) == [0, 0]
        for missing in fleet.answers("seen", gone, strong=True):
            assert missing > 480
        infos = [http.ask("GET", "/filters/seen") for http in (one, other)]
        assert [info["source"] for info in infos] == ["ours", "ours"]
        assert infos[0]["capacity"] == infos[1]["capacity"] >= ROWS
        files = [http.client.get("/filters/seen/file").content for http in (one, other)]
        assert files[0] == files[1]
        other.ask("POST", "/filters/seen/rebuild", {"settle": 0}, 202)
        assert wait_until(lambda: rebuild(other)["state"] == "done")


def test_the_node_that_rebuilds_is_killed(
    start_bound: StartBound, rows: str, redis_server: RedisServer
) -> None:
    """The old filter goes on, with all that is added to it; what was built has an end, is told to
    nobody, and no other rebuild begins before that."""
    fleet = start_bound(ours=rows)
    with ExitStack() as ends:
        one, other = https(fleet, ends)
        one.create("seen", ROWS, source="ours")
        gone = stale_keys(one)
        one.ask("POST", "/filters/seen/rebuild", {"settle": 60}, 202)
        assert wait_until(lambda: rebuild(other) is not None)
        fleet.nodes[0].kill()
        assert rebuild(other)["state"] == "elsewhere"
        later = [f"later {number}" for number in range(1000)]
        with fleet.client(1) as client:
            assert all(client.execute_command("BF.MADD", "seen", *later[:500]))
            assert client.execute_command("KEYS", "*") == [b"seen"]
            left = left_over(redis_server)
            assert 0 < client.ttl(left) <= 60
            told = other.ask("POST", "/filters/seen/rebuild", {"settle": 0}, 422)
            assert "being rebuilt already" in told["detail"]
            client.delete(left)  # as its end would
            assert all(client.execute_command("BF.MADD", "seen", *later[500:]))
            assert all(client.execute_command("BF.MEXISTS", "seen", *gone, *later))
        other.keys("seen", "add", *(url(number) for number in range(10)))
        other.ask("POST", "/filters/seen/rebuild", {"settle": 0}, 202)
        assert wait_until(lambda: rebuild(other)["state"] == "done")
        fleet.nodes[0].start()
        fleet.wait_ready()
        keys = [url(number) for number in range(ROWS)]
        assert fleet.answers("seen", keys, strong=True) == [0, 0]


def left_over(redis_server: RedisServer) -> bytes:
    """The name of the filter that is being built, which nobody is told."""
    with redis.Redis(port=redis_server.port) as store:
        (log,) = [key for key in store.scan_iter() if key.endswith(b":log")]
        text = b"".join(value for _, entry in store.xrange(log) for value in entry.values())
    found = re.search(rb"\0(rebuild:[0-9a-f]{16})", text)
    assert found is not None
    return b"\0" + found[1]


def test_filters_that_are_changed_as_a_whole(start_bound: StartBound, rows: str) -> None:
    """Another node clears one, merges into one, or binds one to another source: what is built lacks
    what that brings, and is given up."""
    fleet = start_bound(ours=rows, others=PLAIN)
    with ExitStack() as ends:
        one, other = https(fleet, ends)
        for name in ("clear", "merge", "bind", "other"):
            one.create(name, ROWS, kind="bloom", source="ours", seed=1)
            one.keys(name, "add", "before", f"only in {name}")
        for name in ("clear", "merge", "bind"):
            one.ask("POST", f"/filters/{name}/rebuild", {"settle": 2}, 202)
            assert wait_until(lambda: rebuild(other, name) is not None)  # noqa: B023
        other.ask("POST", "/filters/clear/clear")
        other.ask("POST", "/filters/merge/merge", {"sources": ["other"]})
        other.ask("PATCH", "/filters/bind", {"source": "others"})
        for name in ("clear", "merge", "bind"):
            other.keys(name, "add", "behind it")
            assert wait_until(lambda: rebuild(one, name)["state"] == "failed")  # noqa: B023
            assert "during the rebuild" in rebuild(one, name)["problem"]
            assert wait_until(lambda: rebuild(other, name) is None)  # noqa: B023
        for name, keys in (
            ("clear", ["behind it"]),
            ("merge", ["before", "only in merge", "only in other", "behind it"]),
            ("bind", ["before", "only in bind", "behind it"]),
        ):
            assert fleet.answers(name, keys, strong=True) == [0, 0]
        assert fleet.answers("clear", ["before", url(1)], strong=True) == [2, 2]
