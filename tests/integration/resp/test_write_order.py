"""Writes that are on their way to the log: their clients, transactions and conditions."""

from __future__ import annotations

import pytest

from integration.resp.wire import Wire, request
from integration.servers import Serve, wait_until

ROUNDS = 50


def test_client_that_closes_its_side_gets_the_reply_to_its_write(serve: Serve) -> None:
    """The log is written by a thread, and the client is gone by then but for its ear."""
    server = serve("--fsync", "always")
    with Wire(server.resp_port) as wire:
        assert wire.ask("BF.RESERVE", "f", 0.001, 10_000) == b"+OK\r\n"
    for number in range(10):
        with Wire(server.resp_port) as wire:
            assert wire.ask("PING") == b"+PONG\r\n"  # native code reads it from now on
            wire.send(request("BF.ADD", "f", number))
            wire.end()
            assert wire.reply() == b":1\r\n"


def test_commands_of_a_transaction_stay_in_order(serve: Serve) -> None:
    """A command of several batches is done before the one that follows it."""
    server = serve()
    with Wire(server.resp_port) as wire:
        assert wire.ask("CF.RESERVE", "c", 100_000) == b"+OK\r\n"
        assert wire.ask("MULTI") == b"+OK\r\n"
        assert wire.ask("CF.INSERT", "c", "ITEMS", *range(9000)) == b"+QUEUED\r\n"
        assert wire.ask("CF.DEL", "c", 8999) == b"+QUEUED\r\n"
        assert wire.ask("EXEC").endswith(b":1\r\n")
        assert wire.ask("CF.EXISTS", "c", 8999) in (b":0\r\n", b":1\r\n")  # a false positive
        assert wire.ask("CF.INFO", "c").count(b"\r\n:8999\r\n") == 1


def test_watched_filter_that_another_client_changes_first(serve: Serve) -> None:
    """EXEC does nothing if a write was acknowledged between WATCH and EXEC, also if it was still on
    its way to the log when EXEC arrived."""
    server = serve("--fsync", "always")
    with Wire(server.resp_port) as one, Wire(server.resp_port) as other:
        assert one.ask("BF.RESERVE", "f", 0.0001, 10_000) == b"+OK\r\n"
        for number in range(ROUNDS):
            assert one.ask("WATCH", "f") == b"+OK\r\n"
            assert one.ask("MULTI") == b"+OK\r\n"
            assert one.ask("BF.EXISTS", "f", number) == b"+QUEUED\r\n"
            assert one.ask("BF.ADD", "f", number) == b"+QUEUED\r\n"
            other.send(request("BF.ADD", "f", number))
            one.send(request("EXEC"))
            added, done = other.reply(), one.reply()
            if done.startswith(b"*2"):  # EXEC was first
                assert (done, added) == (b"*2\r\n:0\r\n:1\r\n", b":0\r\n")
            else:
                assert (done, added) == (b"*-1\r\n", b":1\r\n")


@pytest.mark.parametrize("command", ["EXPIRE", "PERSIST"])
def test_condition_of_an_expiry_holds_when_it_is_applied(serve: Serve, command: str) -> None:
    """Of two clients, one sets the expiry with NX, or removes it."""
    server = serve("--fsync", "always")
    words = ("EXPIRE", "f", 1000, "NX") if command == "EXPIRE" else ("PERSIST", "f")
    with Wire(server.resp_port) as one, Wire(server.resp_port) as other:
        assert one.ask("BF.ADD", "f", "a") == b":1\r\n"
        for _ in range(ROUNDS):
            one.ask(*(("PERSIST", "f") if command == "EXPIRE" else ("EXPIRE", "f", 1000)))
            for wire in (one, other):
                wire.send(request(*words))
            assert sorted([one.reply(), other.reply()]) == [b":0\r\n", b":1\r\n"]


def test_many_filters_that_expire_together_do_not_stop_others(serve: Serve) -> None:
    """All of them are dropped, while another client is served."""
    server = serve()
    with Wire(server.resp_port) as wire, Wire(server.resp_port) as other:
        for number in range(2000):
            wire.send(request("BF.RESERVE", number, 0.01, 10))
        assert {wire.reply() for _ in range(2000)} == {b"+OK\r\n"}
        for number in range(2000):
            wire.send(request("PEXPIRE", number, 1500))
        assert {wire.reply() for _ in range(2000)} == {b":1\r\n"}

        def empty() -> bool:
            assert other.ask("PING") == b"+PONG\r\n"
            return wire.ask("DBSIZE") == b":0\r\n"

        assert wait_until(empty)
        assert wire.ask("EXISTS", *range(2000)) == b":0\r\n"
