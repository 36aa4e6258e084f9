"""A filter of a server, built anew from its source while clients write and ask."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from bloomery import Client
from bloomery.errors import InvalidParameter
from integration.conftest import open_folder, started
from integration.http.asking import Http
from integration.lookup.places import DATABASE, ROWS, configuration, server, url
from integration.resp.wire import Wire
from integration.servers import BloomeryServer, PostgresServer, wait_until

OURS = "rebuilt"  # a table of its own: others count the rows of theirs
PLAIN = f'table = "{OURS}"\nkey = "url"\ncache = "none"\n'


def made(postgres: PostgresServer) -> None:
    """A table of some rows."""
    postgres.run(
        f"DROP TABLE IF EXISTS {OURS}; CREATE TABLE {OURS} (url text PRIMARY KEY);"
        f"INSERT INTO {OURS} SELECT 'url ' || i FROM generate_series(0, {ROWS - 1}) AS i",
        DATABASE,
    )


def state(client: Client, name: str) -> dict[str, Any]:
    """How far it is."""
    found: dict[str, Any] = client.filter(name).info()["rebuild"]
    return found


class Writer(threading.Thread):
    """Adds a key to the filter, then to the table, one after the other, until it is told to stop;
    `acknowledged` are those that are in both."""

    def __init__(self, bound: BloomeryServer, postgres: PostgresServer, name: str) -> None:
        super().__init__()
        self.port, self.place, self.filter = bound.resp_port, postgres.url(DATABASE), name
        self.acknowledged: list[str] = []
        self.problems: list[object] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        place = self.place.replace("postgresql+psycopg", "postgresql")
        with Wire(self.port) as wire, psycopg.connect(place, autocommit=True) as table:
            while not self.stopping.is_set():
                key = f"written {len(self.acknowledged)}"
                added = wire.ask("BF.ADD", self.filter, key)
                if added not in (b":1\r\n", b":0\r\n"):
                    self.problems.append(added)
                table.execute(f"INSERT INTO {OURS} VALUES (%s)", (key,))
                self.acknowledged.append(key)
                asked = wire.ask("BF.MEXISTS", self.filter, *self.acknowledged[-200:])
                if b":0" in asked:
                    self.problems.append("denied")


@pytest.fixture(scope="module")
def _served(_table: PostgresServer) -> Iterator[BloomeryServer]:
    with open_folder() as folder:
        config = configuration(
            folder,
            _table,
            ours=PLAIN,
            looking=f'query = "SELECT url FROM {OURS} WHERE url IN :keys"\n',
            numbers='table = "numbers"\nkey = "id"\nkey-type = "integer"\n',
        )
        with started(server(folder, config), kill=True) as one:
            yield one


@pytest.fixture
def served(_served: BloomeryServer, table: PostgresServer) -> BloomeryServer:
    """A server whose filters may be bound to our table, as it was at first."""
    made(table)
    return _served


def test_rebuilds(served: BloomeryServer, table: PostgresServer) -> None:
    """Under writers an overfull filter becomes one that errs as seldom as it should; no key that
    was written is denied at any moment; and it survives a kill."""
    with Client(served.url) as client:
        filter = client.create("seen", capacity=1000, on_full="alert", source="ours")
        filter.update([url(number) for number in range(ROWS)])
        filter.update([f"deleted {number}" for number in range(3000)])
        writer = Writer(served, table, "seen")
        writer.start()
        try:
            with Wire(served.resp_port) as wire:
                assert wire.ask("BF.REBUILD", "seen", "SETTLE", "0.5") == b"+OK\r\n"
                assert b"rebuilt already" in wire.ask("BF.REBUILD", "seen")
                assert wait_until(lambda: state(client, "seen")["state"] in ("done", "failed"))
        finally:
            writer.stopping.set()
            writer.join()
        assert state(client, "seen")["problem"] is None
        assert not writer.problems
        assert len(writer.acknowledged) > 10
        info = filter.info()
        assert info["capacity"] >= ROWS * 1.2
        assert (info["policy"]["on_full"], info["source"]) == ("alert", "ours")
        keys = [url(number) for number in range(ROWS)] + writer.acknowledged
        assert all(filter.contains_many(keys))
        wrong = sum(filter.contains_many([f"deleted {number}" for number in range(3000)]))
        assert wrong < 120
        served.kill()
        served.start()
        with Client(served.url) as again:
            assert all(again.filter("seen").contains_many(keys))
            assert not [name for name in again.names() if str(name).startswith("\0")]


def test_killed_meanwhile(served: BloomeryServer, table: PostgresServer) -> None:
    """The filter is as it was, and nothing else is there under a name that anybody knows."""
    with Client(served.url) as client, Http(served) as http:
        filter = client.create("kept", capacity=5000, source="ours")
        filter.update([url(number) for number in range(ROWS)])
        http.ask("POST", "/filters/kept/rebuild", {"settle": 60}, 202)
        assert wait_until(lambda: state(client, "kept")["state"] == "settling")
        filter.add("while it waits")
        served.kill()
        served.start()
        with Client(served.url) as again:
            keys = [url(number) for number in range(ROWS)] + ["while it waits"]
            assert all(again.filter("kept").contains_many(keys))
            assert again.filter("kept").info()["rebuild"] is None


def test_what_cannot_be_rebuilt(served: BloomeryServer, table: PostgresServer) -> None:
    """Without a source, with one that only looks up, while keys come that it does not see, or of
    a kind that forgets: one clear error each, and the filter stays."""
    with Client(served.url) as client, Http(served) as http:

        def refused(name: str) -> str:
            told = http.ask("POST", f"/filters/{name}/rebuild", {"settle": 0}, 422)
            return str(told["detail"])

        client.create("plain", capacity=100)
        assert "not bound to a source" in refused("plain")
        client.create("query", capacity=100, source="looking")
        assert "is a query" in refused("query")
        client.create("turning", kind="rotating", capacity=100, source="ours")
        assert "rotating" in refused("turning")
        client.create("merged", capacity=100, on_full="alert", source="ours")
        http.ask("POST", "/filters/merged/rebuild", {"settle": 60}, 202)
        wait_until(lambda: state(client, "merged")["of"] is not None)
        client.filter("merged").clear()
        with pytest.raises(InvalidParameter):
            client.filter("merged").change(source="nobody")
        table.run(f"ALTER TABLE {OURS} RENAME TO elsewhere", DATABASE)
        client.create("gone", capacity=100, source="ours")
        client.filter("gone").add("kept")
        http.ask("POST", "/filters/gone/rebuild", {"settle": 0}, 202)
        assert wait_until(lambda: state(client, "gone")["state"] == "failed")
        assert OURS in state(client, "gone")["problem"]
        assert "kept" in client.filter("gone")


def test_numbers_in_either_form(served: BloomeryServer, table: PostgresServer) -> None:
    """A key of an integer column is found as a number, and as the text that Redis clients send;
    there is room for both."""
    with Client(served.url) as client, Wire(served.resp_port) as wire:
        client.create("ids", capacity=1, source="numbers")
        assert wire.ask("BF.REBUILD", "ids", "SETTLE", "0") == b"+OK\r\n"
        assert wait_until(lambda: state(client, "ids")["state"] in ("done", "failed"))
        assert state(client, "ids")["problem"] is None
        assert 42 in client.filter("ids")
        told = wire.ask("BF.LOOKUP", "ids", "42")
        assert (told[:12], told[-8:]) == (b"*1\r\n*3\r\n:1\r\n", b"source\r\n")
        assert client.filter("ids").info()["capacity"] == 6  # two rows, two forms, half again
        client.filter("ids").rebuild(settle=0, capacity=1000)
        assert wait_until(lambda: client.filter("ids").info()["capacity"] == 1000)
