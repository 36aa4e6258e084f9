"""Two clients ask for one filter in the same round of the server's loop: whoever comes first, each
is answered, and what was acknowledged is there, also after `kill -9`.

The server is stopped while both send, and so it finds both when it goes on. Which of the two it
takes first is not said: what is asserted holds for either order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from bloomery import BloomFilter
from integration.resp.wire import Wire, dump, request, shown
from integration.servers import BloomeryServer, Serve

ROUNDS = 3
LARGE = 8_000_000  # keys: what is done to all of such a filter is done in a thread
MANY = [f"k{at}" for at in range(5000)]  # more than are done at once
_HANGS = 30.0  # seconds without an answer


@contextmanager
def clients(server: BloomeryServer, count: int = 2) -> Iterator[list[Wire]]:
    """Connections that the server knows of."""
    with ExitStack() as ends:
        found = [ends.enter_context(Wire(server.resp_port, timeout=_HANGS)) for _ in range(count)]
        for one in found:
            assert one.ask("PING") == b"+PONG\r\n"
        yield found


def together(server: BloomeryServer, *sent: tuple[Wire, bytes]) -> None:
    """Let all of it be there before the server does any of it."""
    server.freeze()
    try:
        for wire, data in sent:
            wire.send(data)
    finally:
        server.thaw()


def pipeline(*commands: Iterable[bytes | str | int]) -> bytes:
    """Several commands, as one client sends them."""
    return b"".join(request(*words) for words in commands)


def killed(server: BloomeryServer) -> Wire:
    """A client of the server after `kill -9`."""
    server.kill()
    server.start()
    return Wire(server.resp_port, timeout=_HANGS)


def asked(wire: Wire, name: str, keys: Iterable[str]) -> list[str]:
    """What a filter says of keys, one by one."""
    found = shown(wire.ask("BF.MEXISTS", name, *keys))
    return found if isinstance(found, list) else [found]


def reserve(wire: Wire, name: str, capacity: int = LARGE) -> None:
    assert wire.ask("BF.RESERVE", name, "0.01", capacity, "KIND", "bloom") == b"+OK\r\n"


def queue(wire: Wire, name: str, keys: Iterable[str]) -> int:
    """Begin a transaction that adds these keys one by one; how many."""
    adds = [("BF.ADD", name, key) for key in keys]
    wire.send(pipeline(("MULTI",), *adds))
    assert wire.reply() == b"+OK\r\n"
    assert {wire.reply() for _ in adds} == {b"+QUEUED\r\n"}
    return len(adds)


def hold(server: BloomeryServer, wire: Wire, other: Wire) -> None:
    """Have a thread of the server work on all of "held" for some 100 ms; its reply is to come."""
    merge = request("BF.MERGE", "held", *["other"] * 100)
    together(server, (wire, merge), (other, request("PING")))
    assert other.reply() == b"+PONG\r\n"  # sent at the end of the round in which it began


def test_many_keys_for_a_filter_that_is_being_loaded_are_refused(serve: Serve) -> None:
    """As few are, and the load goes on after a kill."""
    server = serve()
    with clients(server) as (wire, _):
        reserve(wire, "whole", 10_000)
        wire.ask("BF.MADD", "whole", "first", "second")
        (head, raw), *rest = dump(wire, "BF.SCANDUMP", "whole")
        assert wire.ask("BF.LOADCHUNK", "part", head, raw) == b"+OK\r\n"
        for command in ("BF.MADD", "BF.MEXISTS"):
            for keys in (["one"], MANY):
                reply = wire.ask(command, "part", *keys)
                assert reply.startswith(b"-"), (command, len(keys), reply[:100])
                assert b"still being loaded" in reply
    with killed(server) as wire:
        for iterator, raw in rest:
            assert wire.ask("BF.LOADCHUNK", "part", iterator, raw) == b"+OK\r\n"
        assert asked(wire, "part", ["first", "second"]) == [":1", ":1"]
        assert set(shown(wire.ask("BF.MADD", "part", *MANY))) <= {":0", ":1"}
        assert asked(wire, "part", MANY) == [":1"] * len(MANY)


@pytest.mark.parametrize("whole", [["BF.CLEAR", "big"], ["COPY", "big", "copied"]])
def test_another_filter_of_the_same_name(serve: Serve, whole: list[str]) -> None:
    """What is done to all of a filter is done to that one, and not to the one that has its name
    when it is done: memory and log agree on which it was."""
    server = serve()
    keys = ["old", "new", "again"]
    there = "big" if whole[0] == "BF.CLEAR" else "copied"
    for _ in range(ROUNDS):
        with clients(server) as (one, other):
            other.ask("DEL", "big", "copied")
            reserve(one, "big")
            assert one.ask("BF.ADD", "big", "old") == b":1\r\n"
            together(
                server,
                (one, request(*whole)),
                (
                    other,
                    pipeline(
                        ("DEL", "big"),
                        ("BF.RESERVE", "big", "0.01", 1000, "KIND", "bloom"),
                        ("BF.ADD", "big", "new"),
                    ),
                ),
            )
            done = one.reply()
            assert done[:1] in b"+:-", done
            assert b"internal" not in done
            assert [other.reply() for _ in range(3)] == [b":1\r\n", b"+OK\r\n", b":1\r\n"]
            # "new" may have been cleared; what is added now is there.
            assert one.ask("BF.ADD", "big", "again") == b":1\r\n"
            other.ask("BF.ADD", "big", "new")
            before = asked(one, there, keys)
            assert asked(one, "big", keys) == [":0", ":1", ":1"]
        with killed(server) as wire:
            assert asked(wire, "big", keys) == [":0", ":1", ":1"]
            assert asked(wire, there, keys) == before


def test_two_long_transactions_of_one_name(serve: Serve) -> None:
    """The second waits for the first; so does who comes meanwhile."""
    server = serve()
    with clients(server, 12) as (one, other, *waiting):
        counts = [queue(one, "t", MANY), queue(other, "t", [*MANY, *MANY])]
        together(
            server,
            (one, request("EXEC")),
            (other, request("EXEC")),
            *((wire, request("BF.ADD", "t", "x")) for wire in waiting[:5]),
        )
        for at, wire in enumerate(waiting[5:]):
            wire.send(request("BF.MADD", "t", f"y{at}", *MANY[:200]))
        for wire, count in zip((one, other), counts, strict=True):
            reply = wire.reply()
            assert reply.startswith(b"*%d\r\n" % count), reply[:100]
            assert b"-" not in reply
        assert all(wire.reply()[:1] in b":" for wire in waiting[:5])
        assert all(wire.reply().startswith(b"*201\r\n") for wire in waiting[5:])
        added = [*MANY, "x", *(f"y{at}" for at in range(5))]
        assert asked(one, "t", added) == [":1"] * len(added)
    assert "internal error" not in server.printed()
    with killed(server) as wire:
        assert asked(wire, "t", added) == [":1"] * len(added)


def test_a_clear_and_a_long_transaction(serve: Serve) -> None:
    """One comes before the other, in memory and in the log."""
    server = serve()
    with clients(server) as (one, other):
        reserve(one, "big")
        count = queue(other, "big", MANY)
        together(server, (one, request("BF.CLEAR", "big")), (other, request("EXEC")))
        assert one.reply() == b"+OK\r\n"
        reply = other.reply()
        assert reply.startswith(b"*%d\r\n" % count), reply[:100]
        assert b"-" not in reply
        found = asked(one, "big", MANY)
        assert len(set(found)) == 1, "the transaction was cleared half-way"
        # Only what is not there goes into the log now: so it has to be in it by now if it is there.
        assert len(shown(one.ask("BF.MADD", "big", *MANY[::2]))) == len(MANY) / 2
        found = asked(one, "big", MANY)
        assert found[::2] == [":1"] * len(found[::2])
    with killed(server) as wire:
        assert asked(wire, "big", MANY) == found


@pytest.mark.parametrize("transaction", [True, False])
def test_a_large_restore_loses_nothing(serve: Serve, transaction: bool) -> None:
    """RESTORE … REPLACE is done, or it is refused and the filter that was there is there."""
    payload = BloomFilter(5_000_000, 0.01)
    payload.add("restored")
    command = ("RESTORE", "r", 0, payload.to_bytes(), "REPLACE")
    server = serve()
    with clients(server) as (wire, _):
        assert wire.ask("BF.ADD", "r", "acknowledged") == b":1\r\n"
        if transaction:
            assert wire.ask("MULTI") == b"+OK\r\n"
            assert wire.ask(*command) == b"+QUEUED\r\n"
            (done,) = shown(wire.ask("EXEC"))
        else:
            done = shown(wire.ask(*command))
        right = [":0", ":1"] if done == "+OK" else [":1", ":0"]
        assert done == "+OK" or done.startswith("-"), done
        assert asked(wire, "r", ["acknowledged", "restored"]) == right, done
    with killed(server) as wire:
        assert asked(wire, "r", ["acknowledged", "restored"]) == right


def replies(wire: Wire, data: bytes, reply: bytes, count: int) -> int:
    """Send, and read all the while; how many of `count` replies with this in them came."""

    def send() -> None:
        with suppress(OSError):  # the count tells
            wire.send(data)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    found = 0
    with suppress(OSError):
        while found < count and (some := wire.socket.recv(1 << 16)):
            found += some.count(reply)
    wire.socket.close()
    thread.join()
    return found


def test_a_pipeline_behind_a_write_and_a_filter_that_is_held(serve: Serve) -> None:
    """It waits for the log and for the filter at once, and goes on after both."""
    server = serve("--fsync", "always")
    pings = 150_000
    with clients(server) as (one, other):
        reserve(one, "held")
        reserve(one, "other")
        for round in range(ROUNDS):
            hold(server, one, other)
            sent = pipeline(("BF.ADD", "u", round), ("BF.MEXISTS", "held", *MANY))
            with Wire(server.resp_port, timeout=_HANGS / 3) as wire:
                found = replies(wire, sent + request("PING") * pings, b"+", pings)
            assert found == pings, f"round {round}"
            assert one.reply() == b"+OK\r\n"


def test_a_long_pipeline_that_is_read_all_the_while(serve: Serve) -> None:
    """However much it is: a client that takes its replies is never turned away for its input."""
    server = serve("--set", "max-input-bytes=4mb")
    count = 60_000
    sent = b"".join(request("BF.INSERT", "c", "ITEMS", "y" * 400 + str(at)) for at in range(count))
    with clients(server) as (wire, _):
        assert replies(wire, sent, b"*", count) == count


def test_a_filter_that_has_to_grow_in_a_transaction(serve: Serve) -> None:
    """It grows, however large it is: to try again would help nobody."""
    server = serve()
    with clients(server) as (wire, _):
        assert wire.ask("BF.RESERVE", "grows", "0.001", 300_000) == b"+OK\r\n"
        for start in range(0, 600_000, 10_000):
            keys = [f"k{at}" for at in range(start, start + 10_000)]
            wire.send(pipeline(("MULTI",), ("BF.MADD", "grows", *keys), ("EXEC",)))
            assert [wire.reply() for _ in range(2)] == [b"+OK\r\n", b"+QUEUED\r\n"]
            reply = wire.reply()
            assert reply.startswith(b"*1\r\n*10000\r\n"), (start, reply[:120])
            assert b"-" not in reply
        assert asked(wire, "grows", keys) == [":1"] * len(keys)


@pytest.mark.parametrize("whole", [["BF.CLEAR", "held"], ["COPY", "held", "copied"], None])
def test_flushall_drops_what_is_held(serve: Serve, whole: list[str] | None) -> None:
    """In the round in which a thread begins with a filter, and in one while it works."""
    server = serve()
    with clients(server) as (one, other):
        for _ in range(ROUNDS):
            for name in range(20):
                assert other.ask("BF.ADD", f"small {name}", "x") == b":1\r\n"
            reserve(one, "held")
            reserve(one, "other")
            if whole is None:
                hold(server, one, other)
                other.send(request("FLUSHALL"))
            else:
                together(server, (one, request(*whole)), (other, request("FLUSHALL")))
            assert other.reply() == b"+OK\r\n"
            assert one.reply()[:1] in b"+-:"
            assert other.ask("KEYS", "*") == b"*0\r\n"
    with killed(server) as wire:
        assert wire.ask("KEYS", "*") == b"*0\r\n"
