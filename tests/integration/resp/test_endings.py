"""How connections end: by either side, in the middle of something, or by a reset. What was asked
before is answered, nobody gets what another asked for, and nothing is left of them."""

import os
import socket
import struct

import pytest

from integration.resp.wire import Wire, request
from integration.servers import BloomeryServer, wait_until


def test_a_client_that_ends_its_side_gets_all_replies(empty: BloomeryServer) -> None:
    """On a node a read behind a write waits for the log: the rest was not done when the client had
    said that nothing more comes."""
    with Wire(empty.resp_port) as wire:
        assert wire.ask("BF.RESERVE", "seen", 0.0001, 1000) == b"+OK\r\n"
        wire.send(
            b"".join(
                request("BF.ADD", "seen", key)
                + request("BF.EXISTS", "seen", key)
                + request("ECHO", key)
                for key in range(1000, 1050)
            )
            + b"*2\r\n$4\r\nECHO\r\n$5"  # one that is never whole
        )
        wire.end()
        for key in range(1000, 1050):
            replies = wire.reply() + wire.reply() + wire.reply()
            assert replies == b":1\r\n:1\r\n$4\r\n%d\r\n" % key
        assert wire.reply() == b""


@pytest.mark.parametrize(
    "ending", ["close", "reset", "killed", "quit", "no request", "half", "unread"]
)
def test_nothing_is_left_of_a_connection(empty: BloomeryServer, ending: str) -> None:
    """However a connection ends, with a write under way: the next, whose socket has the same number
    in the server, gets its own replies; and no file stays open."""
    files = f"/proc/{empty.pid}/fd"
    with Wire(empty.resp_port) as other:
        assert other.ask("BF.RESERVE", "seen", 0.01, 1000) == b"+OK\r\n"

        def connected() -> int:
            return other.ask("CLIENT", "LIST").count(b"id=")

        clients, before = connected(), len(os.listdir(files))
        for number in range(20):
            with Wire(empty.resp_port) as wire:
                assert wire.ask("ECHO", number + 10) == b"$2\r\n%d\r\n" % (number + 10)
                wire.send(request("BF.EXISTS", "seen", "no") + request("ECHO", number + 30))
                assert wire.reply() + wire.reply() == b":0\r\n$2\r\n%d\r\n" % (number + 30)
                mine = wire.ask("CLIENT", "ID")[1:-2]
                wire.send(request("BF.ADD", "seen", number))
                if ending == "reset":
                    option = socket.SO_LINGER
                    wire.socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ii", 1, 0))
                elif ending == "killed":
                    assert other.ask("CLIENT", "KILL", "ID", mine) == b":1\r\n"
                elif ending == "quit":
                    wire.send(request("QUIT"))
                    assert wire.closed()
                elif ending == "no request":
                    wire.send(b"*1\r\n:1\r\n")
                    assert wire.closed()
                elif ending == "half":
                    wire.end()
                    assert wire.closed()
                elif ending == "unread":
                    wire.send(request("BF.SCANDUMP", "seen", 0) * 100)
        assert wait_until(lambda: connected() <= clients)
        assert wait_until(lambda: len(os.listdir(files)) <= before)
