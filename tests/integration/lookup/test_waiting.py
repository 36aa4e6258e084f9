"""A source that is slow: only who asks it waits, and not for ever."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from conftest import require
from integration.conftest import started
from integration.http.asking import Http
from integration.lookup.places import DATABASE, LOCKED, QUERY, configuration, server, url
from integration.resp.wire import Wire, request, shown
from integration.servers import BloomeryServer, PostgresServer, wait_until

UNLOCK = "SELECT pg_advisory_unlock(7)"


def waiting(http: Http) -> int:
    """How many look-ups are under way."""
    (line,) = [
        one
        for one in http.client.get("/metrics").text.splitlines()
        if one.startswith("bloomery_lookups_waiting ")
    ]
    return int(float(line.split()[1]))


def test_others_do_not_wait(http: Http, bound: BloomeryServer, wire: Wire, holder: Any) -> None:
    """While look-ups wait for seconds, commands of others take milliseconds, and so do look-ups
    that the filter answers."""
    http.create("slow", source="slow")
    http.keys("slow", "add", url(1), url(2))
    with ThreadPoolExecutor(2) as pool:
        slow = [pool.submit(ask, bound, "slow", url(number)) for number in (1, 2)]
        assert wait_until(lambda: waiting(http) == 2)
        took = []
        for number in range(20):
            start = time.monotonic()
            assert wire.ask("BF.EXISTS", "slow", url(1)) == b":1\r\n"
            assert b"filter" in wire.ask("BF.LOOKUP", "slow", f"absent {number}")
            took.append(time.monotonic() - start)
        assert not any(one.done() for one in slow)
        holder.execute(UNLOCK)
        assert sorted(took)[10] < 0.1
        assert [one.result() for one in slow] == [["title 1"], ["title 2"]]


def ask(bound: BloomeryServer, name: str, *keys: str) -> list[str]:
    with Http(bound) as http:
        return [answer["value"] for answer in http.keys(name, "lookup", *keys)]


def test_replies_of_one_connection_stay_in_order(
    http: Http, bound: BloomeryServer, holder: Any
) -> None:
    """Commands that come behind a slow look-up are answered behind it."""
    http.create("order", source="slow")
    http.keys("order", "add", url(1))
    with Wire(bound.resp_port) as wire:
        wire.send(
            request("PING")
            + request("BF.LOOKUP", "order", url(1))
            + request("BF.ADD", "order", "late")
            + request("BF.LOOKUP", "order", "absent")
            + request("BF.EXISTS", "order", "late")
        )
        assert wait_until(lambda: waiting(http) == 1)
        holder.execute(UNLOCK)
        replies = [shown(wire.reply()) for _ in range(5)]
    looked_up, absent = [[":1", "$title 1", "$source"]], [[":0", "$-1", "$filter"]]
    assert replies == ["+PONG", looked_up, ":1", absent, ":1"]


def test_only_so_many_wait(http: Http, bound: BloomeryServer, wire: Wire, holder: Any) -> None:
    """Beyond max-lookups one is turned away at once, if it had to wait; a client that hangs up
    does not disturb the others."""
    http.create("many", source="slow")
    http.keys("many", "add", url(1), url(2))
    assert wire.ask("CONFIG", "SET", "max-lookups", 1) == b"+OK\r\n"
    try:
        with Wire(bound.resp_port) as gone:
            gone.send(request("BF.LOOKUP", "many", url(1)))
            assert wait_until(lambda: waiting(http) == 1)
        told = http.ask("POST", "/filters/many/lookup", {"key": url(2)}, 503)
        assert told["code"] == "server-unavailable"
        assert told["detail"] == (
            "1 look-ups wait for their sources already (max-lookups): try again"
        )
        assert wire.ask("BF.LOOKUP", "many", url(2)).startswith(b"-ERR 1 look-ups wait")
        assert shown(wire.ask("BF.LOOKUP", "many", "absent")) == [[":0", "$-1", "$filter"]]
        holder.execute(UNLOCK)
        assert wait_until(lambda: waiting(http) == 0)
    finally:
        assert wire.ask("CONFIG", "SET", "max-lookups", 1000) == b"+OK\r\n"
    assert shown(wire.ask("BF.LOOKUP", "many", url(2))) == [[":1", "$title 2", "$source"]]


def test_a_server_ends_while_look_ups_wait(table: PostgresServer, tmp_path: Path) -> None:
    """On SIGTERM those that end soon are answered, those that do not are hung up on."""
    soon, never = (f'query = "{QUERY.format(seconds)}"\ntimeout = 90\n' for seconds in (3, 60))
    one = server(tmp_path, configuration(tmp_path, table, soon=soon, never=never))
    one.start()
    codes: list[int] = []
    try:
        with Http(one) as http, Wire(one.resp_port) as first, Wire(one.resp_port) as second:
            for wire, name in ((first, "soon"), (second, "never")):
                http.create(name, source=name)
                http.keys(name, "add", url(1))
                wire.send(request("BF.LOOKUP", name, url(1)))
            assert wait_until(lambda: waiting(http) == 2)
            ending = threading.Thread(target=lambda: codes.append(one.stop()))
            ending.start()
            assert b"title 1" in first.reply()
            assert second.closed()
            ending.join()
        assert codes == [0], one.printed()
        assert "error" not in one.printed()
    finally:
        one.kill()


def test_a_row_that_is_committed_is_not_denied_by_an_older_look_up(
    table: PostgresServer, tmp_path: Path
) -> None:
    """One looks a key up, and waits for a lock; its row comes meanwhile: whoever asks then has
    it."""
    config = configuration(tmp_path, table, locked=f'query = "{LOCKED}"\ncache = "none"\n')
    psycopg = require("psycopg")
    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with (
        started(server(tmp_path, config), kill=True) as one,
        Http(one) as http,
        Wire(one.resp_port) as first,
        Wire(one.resp_port) as second,
        psycopg.connect(table.url(DATABASE), autocommit=True) as holder,
    ):
        http.create("older", source="locked")
        http.keys("older", "add", "new row", url(1))
        http.keys("older", "lookup", url(1))  # it knows the types now
        holder.execute("SELECT pg_advisory_lock(7)")
        first.send(request("BF.LOOKUP", "older", "new row"))
        assert wait_until(lambda: holder.execute(waits).fetchone() == (1,))
        holder.execute("INSERT INTO urls (url, title) VALUES ('new row', 'new title')")
        try:
            second.send(request("BF.LOOKUP", "older", "new row"))
            assert wait_until(lambda: waiting(http) == 2)
            holder.execute(UNLOCK)
            assert shown(first.reply()) == [[":0", "$-1", "$source"]]
            assert shown(second.reply()) == [[":1", "$new title", "$source"]]
        finally:
            holder.execute("DELETE FROM urls WHERE url = 'new row'")
