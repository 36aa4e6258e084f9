"""A rebuild whose source is slow, or hangs: nobody else waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bloomery import Client
from integration.conftest import open_folder, started
from integration.http.asking import Http
from integration.lookup.places import DATABASE, configuration, server
from integration.lookup.test_rebuild import state
from integration.resp.wire import Wire
from integration.servers import BloomeryServer, PostgresServer, wait_until

SLOW = """
CREATE TABLE IF NOT EXISTS slowly (url text PRIMARY KEY);
INSERT INTO slowly SELECT 'url ' || i FROM generate_series(0, 99) AS i ON CONFLICT DO NOTHING;
CREATE OR REPLACE VIEW slow AS SELECT url FROM slowly WHERE pg_sleep(0.01) IS NOT NULL;
"""


@pytest.fixture
def served(table: PostgresServer) -> Iterator[BloomeryServer]:
    """A server whose source takes a second to be read, and has one connection for look-ups."""
    table.run(SLOW, DATABASE)
    with open_folder() as folder:
        lines = 'table = "slow"\nkey = "url"\ncache = "none"\nconnections = 1\ntimeout = 5\n'
        config = configuration(folder, table, slow=lines)
        with started(server(folder, config), kill=True) as one:
            yield one


def test_look_ups_go_on(served: BloomeryServer) -> None:
    """A reading from end to end has a connection of its own."""
    with Client(served.url) as client, Wire(served.resp_port) as wire:
        client.create("seen", capacity=1000, source="slow").add("url 1")
        assert wire.ask("BF.REBUILD", "seen", "SETTLE", "0") == b"+OK\r\n"
        answers = []
        while state(client, "seen")["state"] != "done":
            answers.append(wire.ask("BF.LOOKUP", "seen", "url 1"))
        assert len(answers) > 5
        assert {answer[-8:] for answer in answers} == {b"source\r\n"}


def test_a_source_that_hangs(served: BloomeryServer, table: PostgresServer) -> None:
    """However many rebuilds wait for it, the server writes its log, makes a snapshot and ends."""
    with Client(served.url) as client, Http(served) as http:
        for number in range(8):
            client.create(f"seen {number}", capacity=1000, source="slow")
            http.ask("POST", f"/filters/seen%20{number}/rebuild", {"settle": 0}, 202)
        assert wait_until(lambda: state(client, "seen 7")["of"] is not None)
        table.freeze()
        try:
            client.filter("seen 0").add("while it hangs")
            http.ask("POST", "/snapshot", {}, 200)
            began = time.monotonic()
            assert served.stop() == 0
            assert time.monotonic() - began < 30
        finally:
            table.thaw()
    served.start()
    with Client(served.url) as client:
        assert "while it hangs" in client.filter("seen 0")
        assert len(list(client.names())) == 8
